//! Refuses changes that look like accidents, unless the caller confirms them.
//!
//! Each guard prevents a loss that has happened: a file overwritten by a fragment, cut in half by a merge, or grown
//! without end. All edit tools share them, in dry runs too.

use thiserror::Error;

use crate::text::split_lines;

/// Files shorter than this many lines may lose most of them.
const MIN_LINES: usize = 40;
/// Percentage of its lines that a longer file must keep.
const MIN_PERCENT_LEFT: usize = 60;
/// Largest size after replacing several occurrences, in percent of the size before.
const MAX_PERCENT_GROWN: usize = 150;

/// Why a change was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum GuardError {
    #[error(
        "the file exists, and the content has no marker line such as `// ... existing code ...`, so it would \
         replace the whole file. Mark what stays, or set full_replace to replace the whole file"
    )]
    Overwrite,
    #[error(
        "the content has markers for existing code, but the file does not exist. Check the path, or send the \
         whole content without markers"
    )]
    PhantomBase,
    #[error(
        "the change would leave {after} of {before} lines. Check that nothing was left out without a marker; set \
         allow_shrink if the file is meant to shrink"
    )]
    Collapse { before: usize, after: usize },
    #[error(
        "replacing {hits} occurrences would grow the file from {before} to {after} bytes. Check that the \
         replacement does not repeat too much; set allow_growth if the file is meant to grow"
    )]
    Growth { hits: usize, before: usize, after: usize },
}

impl GuardError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite_guard",
            Self::PhantomBase => "phantom_base",
            Self::Collapse { .. } => "collapse_guard",
            Self::Growth { .. } => "growth_guard",
        }
    }
}

/// Checks that content with or without markers suits a file that exists or does not.
pub(crate) fn check_base(file_exists: bool, has_markers: bool, full_replace: bool) -> Result<(), GuardError> {
    match (file_exists, has_markers) {
        (true, false) if !full_replace => Err(GuardError::Overwrite),
        (false, true) => Err(GuardError::PhantomBase),
        _ => Ok(()),
    }
}

/// Checks that a change leaves enough of the file.
pub(crate) fn check_collapse(original: &str, result: &str, allow_shrink: bool) -> Result<(), GuardError> {
    let (before, after) = (lines_of(original), lines_of(result));
    if allow_shrink || before < MIN_LINES || after * 100 >= before * MIN_PERCENT_LEFT {
        return Ok(());
    }
    Err(GuardError::Collapse { before, after })
}

/// Checks that replacing `hits` occurrences does not grow the file too much.
pub(crate) fn check_growth(
    original: &str,
    result: &str,
    hits: usize,
    allow_growth: bool,
) -> Result<(), GuardError> {
    let (before, after) = (original.len(), result.len());
    if allow_growth || hits < 2 || after * 100 <= before * MAX_PERCENT_GROWN {
        return Ok(());
    }
    Err(GuardError::Growth { hits, before, after })
}

/// Counts the lines without the blank ones at the end.
fn lines_of(text: &str) -> usize {
    split_lines(text).iter().rposition(|line| !line.is_blank()).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_overwritten_by_accident() {
        assert_eq!(check_base(true, false, false), Err(GuardError::Overwrite));
        assert_eq!(check_base(true, false, true), Ok(()));
        assert_eq!(check_base(true, true, false), Ok(()));
        assert_eq!(check_base(false, false, false), Ok(()));
    }

    #[test]
    fn markers_need_a_file() {
        assert_eq!(check_base(false, true, false), Err(GuardError::PhantomBase));
        assert_eq!(check_base(false, true, true), Err(GuardError::PhantomBase));
    }

    #[test]
    fn a_long_file_does_not_collapse_by_accident() {
        let lines = |count: usize| "x\n".repeat(count);
        assert_eq!(check_collapse(&lines(39), "", false), Ok(()));
        assert_eq!(check_collapse(&lines(40), &lines(24), false), Ok(()));
        let refused = check_collapse(&lines(40), &lines(23), false);
        assert_eq!(refused, Err(GuardError::Collapse { before: 40, after: 23 }));
        assert_eq!(check_collapse(&lines(40), &lines(23), true), Ok(()));
        let padded = format!("{}{}", lines(23), "\n \n".repeat(20));
        assert_eq!(
            check_collapse(&lines(40), &padded, false),
            refused,
            "blank lines at the end do not count"
        );
        assert_eq!(check_collapse(&format!("{}{}", lines(39), "\n\n"), "", false), Ok(()));
    }

    #[test]
    fn a_file_does_not_grow_by_accident() {
        let (before, after) = ("x".repeat(100), "x".repeat(151));
        assert_eq!(check_growth(&before, &after, 1, false), Ok(()));
        assert_eq!(check_growth(&before, &"x".repeat(150), 2, false), Ok(()));
        let refused = check_growth(&before, &after, 2, false).unwrap_err();
        assert_eq!(refused.code(), "growth_guard");
        assert!(refused.to_string().contains("from 100 to 151 bytes"), "{refused}");
        assert_eq!(check_growth(&before, &after, 2, true), Ok(()));
    }
}
