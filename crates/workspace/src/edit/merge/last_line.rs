//! Decides which occurrence of a segment's last line is meant, by the lines before it.
//!
//! Code ends in lines such as `}`, so a segment that rewrites one function often has many candidates for its end.
//! The longest run of its last lines may occur only once in the file. But the same segment could also have been
//! written to delete more of the file, up to a later `}`. A candidate is taken only if that is impossible: if no
//! shortest diff of that other result, with deletions moved as far down as they go, would look like this segment.

use std::collections::HashMap;

use crate::text::Line;

/// Limit for the lines of the file times the lines of the segment to compare.
const MAX_WORK: usize = 4_000_000;

/// The only possible candidate, if there is one. `start` is where the segment begins in the file; with `has_head`
/// its first line matches there.
pub(crate) fn settle(
    old: &[Line<'_>],
    start: usize,
    lines: &[Line<'_>],
    has_head: bool,
    candidates: &[usize],
) -> Option<usize> {
    let best = longest(old, start, lines, candidates)?;
    let (last, before) = lines.split_last()?;
    // A blank line is no context: the change could also be further up, before it.
    if before.last()?.is_blank() {
        return None;
    }
    let begin = start + usize::from(has_head);
    let inner = &before[usize::from(has_head)..];
    let end = *candidates.last()?;
    if (end - begin + 1).saturating_mul(inner.len() + 1) > MAX_WORK {
        return None;
    }
    let window = Window::new(&old[begin..=end], inner, last);
    let others = candidates.iter().filter(|candidate| **candidate != best);
    others.clone().all(|other| !window.can_end_at(other - begin)).then_some(best)
}

/// How many of the last lines match the file up to `at`, not before `start`.
pub(crate) fn run(old: &[Line<'_>], at: usize, start: usize, lines: &[Line<'_>]) -> usize {
    let pairs = old[start..=at].iter().rev().zip(lines.iter().rev());
    pairs.take_while(|(old, new)| old.body == new.body).count()
}

/// The candidate with the longest run of matching lines, if it is unique and the run has at least two lines.
fn longest(old: &[Line<'_>], start: usize, lines: &[Line<'_>], candidates: &[usize]) -> Option<usize> {
    let mut runs: Vec<_> = candidates.iter().map(|at| (run(old, *at, start, lines), *at)).collect();
    runs.sort_unstable_by(|one, other| other.cmp(one));
    match runs.as_slice() {
        [(best, at), (next, _), ..] if best > next && *best >= 2 => Some(*at),
        _ => None,
    }
}

/// The lines between the first line of a segment and the last place where it may end.
struct Window {
    /// Lines of the file, as numbers.
    old: Vec<usize>,
    last: usize,
    last_inner: Option<usize>,
    /// For each prefix of `old`, the length of its longest common subsequence with the segment's inner lines.
    common: Vec<usize>,
    /// The same without the last inner line.
    common_before: Vec<usize>,
}

impl Window {
    fn new(old: &[Line<'_>], inner: &[Line<'_>], last: &Line<'_>) -> Self {
        let mut numbers = HashMap::new();
        let mut number = |line: &Line<'_>| {
            let next = numbers.len();
            *numbers.entry(line.body.to_owned()).or_insert(next)
        };
        let old: Vec<_> = old.iter().map(&mut number).collect();
        let inner: Vec<_> = inner.iter().map(&mut number).collect();
        let last = number(last);
        let (mut common, mut common_before) = (vec![0], vec![0]);
        let mut row = vec![0; inner.len() + 1];
        for line in &old {
            let mut diagonal = 0;
            for (column, wanted) in inner.iter().enumerate() {
                let above = row[column + 1];
                row[column + 1] = if line == wanted { diagonal + 1 } else { above.max(row[column]) };
                diagonal = above;
            }
            common.push(row[inner.len()]);
            common_before.push(row[inner.len().saturating_sub(1)]);
        }
        Self { old, last, last_inner: inner.last().copied(), common, common_before }
    }

    /// Whether a shortest diff can exist that keeps the line at `end` as the end of the segment, with a change
    /// right before it. Deletions are moved as far down as they go, so a diff that deletes from a line that equals
    /// `last` up to `end` would have kept that line instead.
    fn can_end_at(&self, end: usize) -> bool {
        let Some(last_inner) = self.last_inner else {
            // The segment has no inner lines: it deletes from the start of the window.
            return end >= 1 && self.old[0] != self.last;
        };
        let common = self.common[end];
        if self.common_before[end] == common {
            // The line before the last one can be new, which is a change.
            return true;
        }
        (0..end.saturating_sub(1)).any(|at| {
            self.old[at] == last_inner
                && self.common_before[at] + 1 == common
                && self.old[at + 1] != self.last
        })
    }
}
