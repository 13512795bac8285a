//! Why an edit cannot be merged, with advice for its author.

use std::fmt;

use thiserror::Error;

use crate::edit::quote::{Place, list};

/// Which end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    First,
    Last,
}

/// Why an edit was not merged. Segments count from 1; `anchor` is a line of the edit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum MergeError {
    #[error(
        "segment {segment} has no place: neither its first nor its last line is in the file. Looked for `{anchor}`. \
         Begin and end the segment with unchanged lines of the file, copied exactly{}",
        resembling(nearest)
    )]
    AnchorNotFound { segment: usize, anchor: String, nearest: Vec<Place> },
    #[error(
        "segment {segment} could be meant for several places: its {side} line `{anchor}` is in the file {total} \
         times there:{}\n{}",
        list(places, *total),
        advice(*side, instead.as_ref())
    )]
    AmbiguousAnchor {
        segment: usize,
        side: Side,
        anchor: String,
        /// The first of the candidates.
        places: Vec<Place>,
        total: usize,
        /// A unique line that the segment could begin or end with.
        instead: Option<Place>,
    },
    #[error(
        "segment {segment} is out of order: its {side} line `{anchor}` is in the file only before line {after}, \
         which an earlier line of the edit stands for (it is at {found}). Write the segments in the order of the \
         file, each from its first to its last line"
    )]
    AnchorOrder { segment: usize, side: Side, anchor: String, found: Place, after: usize },
    #[error(
        "segment {segment} has only one end in the file: it holds {found}, but its {side} line `{missing}` is not in \
         the file, so it cannot be known what the segment replaces. {}",
        repeat(*side, neighbour.as_ref())
    )]
    OneSidedAnchor {
        segment: usize,
        /// The end that is missing.
        side: Side,
        missing: String,
        /// A line of the file that the segment contains: the other end or, at an edge of the file, any line.
        found: Place,
        /// The line next to it in the file.
        neighbour: Option<Place>,
    },
    #[error("the edit has only markers for existing code, and no code to put between them")]
    OnlyMarkers,
    #[error("the edit has no marker line such as `// ... existing code ...`")]
    NoMarkers,
}

impl MergeError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::AnchorNotFound { .. } => "anchor_not_found",
            Self::AmbiguousAnchor { .. } => "ambiguous_anchor",
            Self::AnchorOrder { .. } => "anchor_order",
            Self::OneSidedAnchor { .. } => "one_sided_anchor",
            Self::OnlyMarkers => "only_markers",
            Self::NoMarkers => "no_markers",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::First => "first",
            Self::Last => "last",
        })
    }
}

fn resembling(nearest: &[Place]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    format!(". Lines that resemble it:{}", list(nearest, nearest.len()))
}

fn advice(side: Side, instead: Option<&Place>) -> String {
    let (verb, where_to) = match side {
        Side::First => ("Begin", "further up"),
        Side::Last => ("End", "further down"),
    };
    match instead {
        Some(place) => {
            format!("{verb} the segment {where_to}, with a line that occurs once, such as {place}")
        }
        None => format!("{verb} the segment with a line that occurs once in the file"),
    }
}

fn repeat(side: Side, neighbour: Option<&Place>) -> String {
    let (verb, before_or_after) = match side {
        Side::First => ("Begin", "before"),
        Side::Last => ("End", "after"),
    };
    match neighbour {
        Some(place) => format!(
            "{verb} the segment with the line of the file that stays {before_or_after} the change; to only insert, \
             that is {place}"
        ),
        None => format!("There is no line {before_or_after} it: leave out the marker there"),
    }
}
