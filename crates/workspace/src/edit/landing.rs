//! Describes a change: its diff, how many lines it touched, and where.

use std::fmt::Write as _;

use similar::udiff::UnifiedHunkHeader;
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use crate::text::{Line, split_lines};

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Limits for the diff that is shown.
const MAX_LINES: usize = 400;
const MAX_BYTES: usize = 32 * 1024;
/// Lines of both texts together, without their common start and end, that are compared one by one. Comparing
/// takes more than linear time; above this limit everything counts as replaced.
const MAX_COMPARED: usize = 100_000;

/// Where a change landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    /// A unified diff. A long one is cut and tells how many lines were left out.
    pub diff: String,
    pub added: usize,
    pub removed: usize,
    /// First and last line of the new text that changed, counted from 1. For a deletion, the line that took the
    /// place of the deleted ones. `None` if nothing changed or the new text is empty.
    pub changed: Option<(usize, usize)>,
}

impl Landing {
    /// Compares two texts. The same texts always give the same result.
    pub fn between(old: &str, new: &str, path: &str) -> Self {
        let (old_lines, new_lines) = (split_lines(old), split_lines(new));
        let ops = compare(&old_lines, &new_lines);
        let changes = || ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
        Self {
            added: changes().map(|op| op.new_range().len()).sum(),
            removed: changes().map(|op| op.old_range().len()).sum(),
            changed: changed(changes(), new_lines.len()),
            diff: render(&old_lines, &new_lines, ops, path),
        }
    }
}

fn changed<'a>(mut changes: impl Iterator<Item = &'a DiffOp>, total: usize) -> Option<(usize, usize)> {
    let first = changes.next()?;
    let last = changes.last().unwrap_or(first);
    let begin = (first.new_range().start + 1).min(total);
    (total > 0).then(|| (begin, last.new_range().end.max(begin)))
}

/// Lines that end differently are different.
fn compare(old: &[Line<'_>], new: &[Line<'_>]) -> Vec<DiffOp> {
    let prefix = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[prefix..], &new[prefix..]);
    let suffix = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let old_rest = &old_rest[..old_rest.len() - suffix];
    let new_rest = &new_rest[..new_rest.len() - suffix];
    let equal = |old_index, new_index, len| DiffOp::Equal { old_index, new_index, len };
    let mut ops = Vec::new();
    ops.extend((prefix > 0).then(|| equal(0, 0, prefix)));
    if old_rest.len() + new_rest.len() > MAX_COMPARED {
        ops.push(block(prefix, old_rest.len(), new_rest.len()));
    } else {
        let text =
            |lines: &[Line<'_>]| lines.iter().map(|line| format!("{}{}", line.body, line.ending)).collect();
        let [old_text, new_text]: [Vec<String>; 2] = [text(old_rest), text(new_rest)];
        let middle = capture_diff_slices(Algorithm::Myers, &old_text, &new_text);
        ops.extend(middle.into_iter().map(|op| moved(op, prefix)));
    }
    ops.extend((suffix > 0).then(|| equal(old.len() - suffix, new.len() - suffix, suffix)));
    ops
}

fn block(start: usize, old_len: usize, new_len: usize) -> DiffOp {
    match (old_len, new_len) {
        (_, 0) => DiffOp::Delete { old_index: start, old_len, new_index: start },
        (0, _) => DiffOp::Insert { old_index: start, new_index: start, new_len },
        _ => DiffOp::Replace { old_index: start, old_len, new_index: start, new_len },
    }
}

fn moved(mut op: DiffOp, by: usize) -> DiffOp {
    match &mut op {
        DiffOp::Equal { old_index, new_index, .. }
        | DiffOp::Delete { old_index, new_index, .. }
        | DiffOp::Insert { old_index, new_index, .. }
        | DiffOp::Replace { old_index, new_index, .. } => {
            *old_index += by;
            *new_index += by;
        }
    }
    op
}

/// Collects the text of a diff up to its limits.
#[derive(Default)]
struct Page {
    text: String,
    lines: usize,
    left_out: usize,
}

impl Page {
    fn push(&mut self, sign: char, line: &Line<'_>) {
        let is_full = self.left_out > 0 || self.lines >= MAX_LINES;
        if is_full || self.text.len() + line.body.len() + 32 > MAX_BYTES {
            self.left_out += 1;
            return;
        }
        self.lines += 1;
        self.text.push(sign);
        self.text.push_str(line.body);
        let ending = if line.ending.is_empty() { "\n\\ No newline at end of file\n" } else { line.ending };
        self.text.push_str(ending);
    }
}

fn render(old: &[Line<'_>], new: &[Line<'_>], ops: Vec<DiffOp>, path: &str) -> String {
    let mut page = Page::default();
    let has_changes = |group: &Vec<DiffOp>| group.iter().any(|op| !matches!(op, DiffOp::Equal { .. }));
    for group in group_diff_ops(ops, CONTEXT).into_iter().filter(has_changes) {
        if page.text.is_empty() {
            page.text = format!("--- a/{path}\n+++ b/{path}\n");
        }
        if page.left_out == 0 {
            // Writing to a string does not fail.
            let _ = writeln!(page.text, "{}", UnifiedHunkHeader::new(&group));
        }
        for op in &group {
            if let DiffOp::Equal { .. } = op {
                new[op.new_range()].iter().for_each(|line| page.push(' ', line));
            } else {
                old[op.old_range()].iter().for_each(|line| page.push('-', line));
                new[op.new_range()].iter().for_each(|line| page.push('+', line));
            }
        }
    }
    if page.left_out > 0 {
        let _ = writeln!(page.text, "({} more lines of the diff were left out)", page.left_out);
    }
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_its_place() {
        let landing = Landing::between("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\nE\nf\nG\n", "src/x.rs");
        let diff = "--- a/src/x.rs\n+++ b/src/x.rs\n@@ -2,5 +2,6 @@\n b\n c\n d\n-e\n+E\n f\n+G\n";
        assert_eq!(landing.diff, diff);
        assert_eq!((landing.added, landing.removed, landing.changed), (2, 1, Some((5, 7))));
    }

    #[test]
    fn nothing_changed_is_nothing_to_show() {
        let landing = Landing::between("a\n", "a\n", "x");
        assert_eq!(landing, Landing { diff: String::new(), added: 0, removed: 0, changed: None });
    }

    #[test]
    fn deletions_have_a_place_too() {
        assert_eq!(Landing::between("a\nb\nc\n", "a\nc\n", "x").changed, Some((2, 2)));
        assert_eq!(Landing::between("a\nb\n", "a\n", "x").changed, Some((1, 1)));
        assert_eq!(Landing::between("a\n", "", "x").changed, None);
        assert_eq!(Landing::between("", "a\nb\n", "x").changed, Some((1, 2)));
    }

    #[test]
    fn the_end_of_the_file_and_of_lines_count() {
        let landing = Landing::between("a\nb", "a\nb\n", "x");
        assert!(landing.diff.ends_with("-b\n\\ No newline at end of file\n+b\n"), "{}", landing.diff);
        assert_eq!(Landing::between("a\r\n", "a\n", "x").removed, 1);
    }

    #[test]
    fn a_long_diff_says_how_much_is_left_out() {
        let new = "x\n".repeat(1000);
        let landing = Landing::between("", &new, "x");
        assert_eq!(landing.added, 1000);
        assert!(landing.diff.ends_with("(600 more lines of the diff were left out)\n"));
        let wide = Landing::between("", &format!("{}\n", "x".repeat(MAX_BYTES)), "x");
        assert!(wide.diff.len() < 200 && wide.diff.contains("1 more lines"), "{}", wide.diff);
    }

    #[test]
    fn huge_texts_count_as_replaced_between_their_equal_ends() {
        let text = |word: &str| {
            let middle: Vec<_> = (0..200_000).map(|number| format!("{word} {number}")).collect();
            format!("first\n{}\nlast\n", middle.join("\n"))
        };
        let landing = Landing::between(&text("old"), &text("new"), "x");
        assert_eq!((landing.added, landing.removed), (200_000, 200_000));
        assert_eq!(landing.changed, Some((2, 200_001)));
    }
}
