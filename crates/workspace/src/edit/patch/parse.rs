//! Reads unified diffs, with or without git's headers.

use super::envelope;
use super::file_names;
use super::{FilePatch, Hunk, HunkLine, PatchError, Position, Role};
use crate::text::{Line, split_lines};

/// Reads a patch, file by file. Skips text around the diffs.
pub(crate) fn parse(patch: &str) -> Result<Vec<FilePatch>, PatchError> {
    let lines = split_lines(patch);
    let first = lines.iter().position(|line| !line.is_blank());
    if let Some(at) = first.filter(|at| lines[*at].body.trim_end() == envelope::BEGIN) {
        return envelope::parse(&lines[at + 1..], at + 2);
    }
    let mut reader = Reader { lines: &lines, at: 0 };
    let mut files = Vec::new();
    while let Some(file) = reader.next_file()? {
        files.push(file);
    }
    if files.is_empty() {
        let reason =
            "this is not a patch: there is neither `diff --git` nor `---` and `+++` before a hunk `@@`";
        return Err(PatchError::Malformed { line: 1, reason });
    }
    Ok(files)
}

/// What the header lines of one file say.
#[derive(Default)]
struct Header {
    /// From `diff --git`.
    git: Option<(String, String)>,
    /// From `---` and `+++`.
    names: Option<(Option<String>, Option<String>)>,
    renamed: (Option<String>, Option<String>),
    is_new: bool,
    is_deleted: bool,
    new_mode: Option<String>,
}

struct Reader<'a> {
    lines: &'a [Line<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    fn line(&self, at: usize) -> Option<&'a str> {
        self.lines.get(at).map(|line| line.body)
    }

    fn starts(&self, at: usize, prefix: &str) -> bool {
        self.line(at).is_some_and(|line| line.starts_with(prefix))
    }

    fn malformed(&self, reason: &'static str) -> PatchError {
        PatchError::Malformed { line: self.at + 1, reason }
    }

    /// Whether a file's part begins at `at` with `---` and `+++` lines.
    fn is_plain_header(&self, at: usize) -> bool {
        let is_followed = self.starts(at + 2, "@@") || self.lines[at..].iter().skip(2).all(Line::is_blank);
        self.starts(at, "--- ") && self.starts(at + 1, "+++ ") && is_followed
    }

    fn next_file(&mut self) -> Result<Option<FilePatch>, PatchError> {
        while self.at < self.lines.len() {
            if self.starts(self.at, "diff --git ") || self.is_plain_header(self.at) {
                return self.file().map(Some);
            }
            if self.starts(self.at, "@@") {
                return Err(self.malformed("a hunk without `---` and `+++` lines that name its file"));
            }
            self.at += 1;
        }
        Ok(None)
    }

    fn file(&mut self) -> Result<FilePatch, PatchError> {
        let start = self.at;
        let mut header = Header::default();
        while let Some(line) = self.line(self.at) {
            let is_next = self.at > start && (line.starts_with("diff --git ") || header.names.is_some());
            if line.starts_with("@@") || is_next {
                break;
            }
            if self.is_plain_header(self.at) {
                let next = self.line(self.at + 1).unwrap_or_default();
                header.names =
                    Some((file_names::from_header(&line[4..]), file_names::from_header(&next[4..])));
                self.at += 2;
                continue;
            }
            header.read(line)?;
            self.at += 1;
        }
        let mut file = header.finish().ok_or(PatchError::Malformed {
            line: start + 1,
            reason: "it is not clear which file is meant; add `---` and `+++` lines",
        })?;
        let lf_header = self.lines.get(self.at).is_some_and(|line| line.ending == "\n");
        while self.starts(self.at, "@@") {
            file.hunks.push(self.hunk()?);
        }
        let has_crlf = file.hunks.iter().flat_map(|hunk| &hunk.lines).any(|line| line.is_crlf);
        file.has_own_endings = lf_header && has_crlf;
        Ok(file)
    }

    fn hunk(&mut self) -> Result<Hunk, PatchError> {
        let position = self.line(self.at).and_then(position);
        let start = self.at;
        self.at += 1;
        let mut hunk = Hunk { position, ..Hunk::default() };
        let counted = position.and_then(|said| self.counted_end(said));
        while let Some(line) = self.lines.get(self.at) {
            if counted.map_or_else(|| self.ends_hunk(&hunk), |end| Ok(self.at >= end))? {
                break;
            }
            let (role, body) = match line.body.as_bytes().first() {
                // Editors and agents drop the leading blank of an empty context line.
                None => (Role::Keep, ""),
                Some(b' ') => (Role::Keep, &line.body[1..]),
                Some(b'-') => (Role::Remove, &line.body[1..]),
                Some(b'+') => (Role::Add, &line.body[1..]),
                Some(b'\\') => {
                    hunk.lines.last_mut().into_iter().for_each(|last| last.lacks_newline = true);
                    self.at += 1;
                    continue;
                }
                Some(_) => {
                    return Err(self.malformed("a line of a hunk begins with a blank, `+`, `-` or `\\`"));
                }
            };
            let is_crlf = line.ending == "\r\n";
            hunk.lines.push(HunkLine { role, body: body.to_owned(), is_crlf, lacks_newline: false });
            self.at += 1;
        }
        self.drop_spacing(&mut hunk, start);
        if hunk.lines.is_empty() {
            return Err(PatchError::Malformed { line: start + 1, reason: "the hunk has no lines" });
        }
        Ok(hunk)
    }

    /// Where the hunk ends according to the counts in its header, if they agree with its lines.
    fn counted_end(&self, said: Position) -> Option<usize> {
        let (mut old, mut new) = (said.old_count, said.new_count);
        let mut at = self.at;
        while old > 0 || new > 0 {
            let sign = self.line(at)?.as_bytes().first().copied().unwrap_or(b' ');
            let (is_old, is_new) = (matches!(sign, b' ' | b'-'), matches!(sign, b' ' | b'+'));
            if !is_old && !is_new && sign != b'\\' {
                return None;
            }
            old = old.checked_sub(usize::from(is_old))?;
            new = new.checked_sub(usize::from(is_new))?;
            at += 1;
        }
        at += usize::from(self.starts(at, "\\"));
        let is_over = self.line(at).is_none_or(is_other_text) || self.is_plain_header(at);
        is_over.then_some(at)
    }

    /// Whether the hunk ends before the current line. Its counts are only a hint, because they are often wrong.
    fn ends_hunk(&self, hunk: &Hunk) -> Result<bool, PatchError> {
        let (old, new) = hunk.counts();
        let line = self.lines[self.at].body;
        if line.starts_with("@@") || line.starts_with("diff --git ") {
            return Ok(true);
        }
        let is_complete = hunk.position.is_some_and(|said| (said.old_count, said.new_count) == (old, new));
        if self.is_plain_header(self.at) {
            let is_open = hunk.position.is_some_and(|said| said.old_count > old && said.new_count > new);
            let reason = "by the counts of its header the hunk goes on here, but this looks like the next file; correct the counts";
            return if is_open { Err(self.malformed(reason)) } else { Ok(true) };
        }
        Ok(is_complete && is_other_text(line))
    }

    /// Drops empty lines at the end of a hunk, unless its header counts them.
    fn drop_spacing(&self, hunk: &mut Hunk, start: usize) {
        let written = &self.lines[start + 1..self.at];
        let empty = written.iter().rev().take_while(|line| line.body.is_empty()).count();
        let (old, new) = hunk.counts();
        let counted = (0..=empty).find(|dropped| {
            hunk.position
                .is_some_and(|said| (said.old_count, said.new_count) == (old - dropped, new - dropped))
        });
        hunk.lines.truncate(hunk.lines.len() - counted.unwrap_or(empty));
    }
}

impl Header {
    fn read(&mut self, line: &str) -> Result<(), PatchError> {
        let after = |prefix: &str| line.strip_prefix(prefix).map(file_names::alone);
        if let Some(names) = line.strip_prefix("diff --git ") {
            self.git = file_names::from_git_line(names);
        } else if let Some(mode) = after("new mode ").or_else(|| after("new file mode ")) {
            self.new_mode = Some(mode);
        } else if let Some(name) = after("rename from ") {
            self.renamed.0 = Some(name);
        } else if let Some(name) = after("rename to ") {
            self.renamed.1 = Some(name);
        } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
            let path = self.git.take().map_or_else(|| "a file".to_owned(), |(_, new)| new);
            return Err(PatchError::Binary { path: path.trim_start_matches("b/").to_owned() });
        }
        self.is_new |= line.starts_with("new file mode ");
        self.is_deleted |= line.starts_with("deleted file mode ");
        Ok(())
    }

    fn finish(self) -> Option<FilePatch> {
        let from_git = self.git.map(|(old, new)| (Some(old), Some(new)));
        let (old, new) = match (self.renamed, self.names.or(from_git)) {
            ((Some(old), Some(new)), _) => (Some(old), Some(new)),
            (_, names) => {
                let (old, new) = names?;
                file_names::strip_prefixes(old, new)
            }
        };
        let old_path = old.filter(|_| !self.is_new);
        let new_path = new.filter(|_| !self.is_deleted);
        if old_path.is_none() && new_path.is_none() {
            return None;
        }
        let is_rename = old_path.is_some() && new_path.is_some() && old_path != new_path;
        let executable = self.new_mode.map(|mode| mode.ends_with("755"));
        Some(FilePatch { old_path, new_path, is_rename, executable, ..FilePatch::default() })
    }
}

/// Whether a line cannot belong to a hunk: a header, a mail signature, or other text.
fn is_other_text(line: &str) -> bool {
    line == "-- " || line == "--" || !line.starts_with([' ', '+', '-', '\\'])
}

/// The numbers of `@@ -1,2 +3,4 @@`, if they are there.
fn position(header: &str) -> Option<Position> {
    let inner = header.strip_prefix("@@ -")?;
    let (old, rest) = inner.split_once(" +")?;
    let new = rest.split_once(" @@").map_or(rest, |(new, _)| new);
    let range = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        // `u32` keeps the arithmetic with offsets from overflowing; no file has more lines.
        let number = |text: &str| usize::try_from(text.trim().parse::<u32>().ok()?).ok();
        Some((number(start)?, number(count)?))
    };
    let ((old_start, old_count), (_, new_count)) = (range(old)?, range(new)?);
    Some(Position { old_start, old_count, new_count })
}
