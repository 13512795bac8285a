//! Why a patch cannot be read or applied.

use thiserror::Error;

use crate::edit::quote::{Place, list, numbers};

/// Why a patch was refused. Hunks of a file and lines count from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum PatchError {
    #[error("line {line} of the patch: {reason}")]
    Malformed { line: usize, reason: &'static str },
    #[error("the patch of {path} is binary; only text can be patched")]
    Binary { path: String },
    #[error(
        "hunk {hunk} does not fit: `{expected}` is expected at line {line}, where the file {}{}",
        has(actual.as_ref()),
        resembling(nearest)
    )]
    Mismatch {
        hunk: usize,
        expected: String,
        /// Where the line was expected.
        line: usize,
        /// The line that is there; `None` after the end of the file.
        actual: Option<Place>,
        nearest: Vec<Place>,
    },
    #[error(
        "hunk {hunk} fits several places, at lines {}, and none is where its header says; correct its line \
         numbers or add lines of context",
        numbers(lines)
    )]
    Ambiguous { hunk: usize, lines: Vec<usize> },
    #[error(
        "hunk {hunk} only adds lines and does not say where; add a line of context or the line number in its header"
    )]
    NoPlace { hunk: usize },
}

impl PatchError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "patch_malformed",
            Self::Binary { .. } => "patch_binary",
            Self::Mismatch { .. } => "patch_mismatch",
            Self::Ambiguous { .. } => "patch_ambiguous",
            Self::NoPlace { .. } => "patch_without_place",
        }
    }
}

fn has(actual: Option<&Place>) -> String {
    actual.map_or_else(|| "ends before it".into(), |place| format!("has `{}`", place.text))
}

fn resembling(nearest: &[Place]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    format!(". Lines that resemble it:{}", list(nearest, nearest.len()))
}
