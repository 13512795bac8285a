//! Applies the hunks of a patch to the text of its file.

use super::{Applied, FilePatch, Hunk, PatchError, Role};
use crate::edit::nearest::nearest;
use crate::edit::quote::{Place, cut};
use crate::text::{Line, LineEnding, split_lines};

impl FilePatch {
    /// Returns the file after the patch; the original of a new file is empty. Each hunk goes where its header
    /// says if its lines are there, or else to the only other place after the previous hunk that has them.
    pub(crate) fn apply(&self, original: &str) -> Result<Applied, PatchError> {
        let old = split_lines(original);
        let mut output = Output { ending: LineEnding::dominant(original), lines: Vec::new() };
        let mut offsets = Vec::with_capacity(self.hunks.len());
        let mut done = 0;
        for (number, hunk) in self.hunks.iter().enumerate() {
            let at = Finder { old: &old, from: done, hunk, number: number + 1 }.find()?;
            output.lines.extend(&old[done..at]);
            done = at + output.push_hunk(hunk, &old[at..], self.has_own_endings);
            offsets.push(hunk.expected().map_or(0, |expected| at.cast_signed() - expected.cast_signed()));
        }
        output.lines.extend(&old[done..]);
        // The end of the file stays as it was, unless the patch mentions it.
        let says = self.hunks.iter().flat_map(|hunk| &hunk.lines).any(|line| line.lacks_newline);
        let keeps_break = says || original.is_empty() || original.ends_with('\n');
        Ok(Applied { text: output.finish(keeps_break), offsets })
    }
}

impl Hunk {
    /// The index of the line that the header points at.
    fn expected(&self) -> Option<usize> {
        let position = self.position?;
        // Without old lines, the header names the line before.
        let only_adds = position.old_count == 0 && self.old_lines().next().is_none();
        Some(if only_adds { position.old_start } else { position.old_start.saturating_sub(1) })
    }
}

struct Output<'a> {
    ending: &'a str,
    lines: Vec<Line<'a>>,
}

impl<'a> Output<'a> {
    /// Adds the lines of a hunk and returns how many old lines it used. Kept lines keep their bytes.
    fn push_hunk(&mut self, hunk: &'a Hunk, old: &[Line<'a>], has_own_endings: bool) -> usize {
        let mut used = 0;
        for line in &hunk.lines {
            match line.role {
                Role::Keep => self.lines.push(old[used]),
                Role::Remove => {}
                Role::Add => {
                    let ending = match (line.lacks_newline, has_own_endings, line.is_crlf) {
                        (true, _, _) => "",
                        (false, true, true) => "\r\n",
                        (false, true, false) => "\n",
                        (false, false, _) => self.ending,
                    };
                    self.lines.push(Line { body: &line.body, ending });
                }
            }
            used += usize::from(line.role != Role::Add);
        }
        used
    }

    fn finish(&self, keeps_break: bool) -> String {
        let mut text = String::new();
        for (number, line) in self.lines.iter().enumerate() {
            let is_last = number + 1 == self.lines.len();
            text.push_str(line.body);
            match (is_last, line.ending) {
                (true, _) if !keeps_break => {}
                (false, "") => text.push_str(self.ending),
                (_, own) => text.push_str(own),
            }
        }
        text
    }
}

/// Finds the place of one hunk.
struct Finder<'a> {
    old: &'a [Line<'a>],
    /// Lines before this one belong to other hunks.
    from: usize,
    hunk: &'a Hunk,
    number: usize,
}

impl Finder<'_> {
    fn find(&self) -> Result<usize, PatchError> {
        if self.hunk.old_lines().next().is_none() {
            return self.find_insertion();
        }
        let expected = self.hunk.expected().filter(|at| *at >= self.from);
        if let Some(at) = expected.filter(|at| self.fits(*at, true) || self.fits(*at, false)) {
            return Ok(at);
        }
        let all = |exactly| (self.from..self.old.len()).filter(move |at| self.fits(*at, exactly)).collect();
        let exact: Vec<usize> = all(true);
        let places = if exact.is_empty() { all(false) } else { exact };
        match places.as_slice() {
            [] => Err(self.mismatch()),
            [only] => Ok(*only),
            several => self.narrow(several).ok_or_else(|| PatchError::Ambiguous {
                hunk: self.number,
                lines: several.iter().map(|at| at + 1).collect(),
            }),
        }
    }

    /// Whether the old lines of the hunk are at `at`.
    fn fits(&self, at: usize, exactly: bool) -> bool {
        let mut lines = self.old[at.min(self.old.len())..].iter();
        self.hunk.old_lines().all(|wanted| lines.next().is_some_and(|line| same(line, &wanted.body, exactly)))
    }

    /// Picks one of several places: the one at the end of the file, or the first after the unique line that the
    /// section names.
    fn narrow(&self, places: &[usize]) -> Option<usize> {
        let length = self.hunk.old_lines().count();
        if self.hunk.is_at_end {
            return places.iter().copied().find(|at| at + length == self.old.len());
        }
        let section = self.section()?;
        places.iter().copied().find(|at| *at > section)
    }

    fn section(&self) -> Option<usize> {
        let section = self.hunk.section.as_deref()?;
        let mut found = (self.from..self.old.len()).filter(|at| self.old[*at].body.trim() == section.trim());
        found.next().filter(|_| found.next().is_none())
    }

    fn find_insertion(&self) -> Result<usize, PatchError> {
        let at_end = self.hunk.is_at_end.then_some(self.old.len());
        let after_section = self.section().map(|at| at + 1);
        let in_nothing = self.old.is_empty().then_some(0);
        let place = in_nothing.or(self.hunk.expected()).or(at_end).or(after_section);
        place
            .filter(|at| (self.from..=self.old.len()).contains(at))
            .ok_or(PatchError::NoPlace { hunk: self.number })
    }

    /// Reports the first line that does not match, at the place where most of the hunk does.
    fn mismatch(&self) -> PatchError {
        let agreeing = |at: usize| {
            let pairs = self.old[at..].iter().zip(self.hunk.old_lines());
            pairs.take_while(|(line, wanted)| same(line, &wanted.body, false)).count()
        };
        let expected = self.hunk.expected().unwrap_or(self.from).clamp(self.from, self.old.len());
        let best = (self.from..self.old.len()).rev().max_by_key(|at| agreeing(*at));
        let at = best.filter(|at| agreeing(*at) > agreeing(expected)).unwrap_or(expected);
        let missing = at + agreeing(at);
        let wanted = self.hunk.old_lines().nth(agreeing(at)).map_or("", |line| &line.body);
        PatchError::Mismatch {
            hunk: self.number,
            expected: cut(wanted),
            line: missing + 1,
            actual: self.old.get(missing).map(|line| Place::new(missing, line.body)),
            nearest: nearest(self.old, wanted),
        }
    }
}

fn same(line: &Line<'_>, wanted: &str, exactly: bool) -> bool {
    line.body == wanted || (!exactly && line.body.trim_end() == wanted.trim_end())
}
