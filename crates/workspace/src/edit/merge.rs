//! The marker merge: an edit shows the new code, with `... existing code ...` where the file stays as it is.
//!
//! Markers split the edit into segments. A segment replaces the lines of the file from its first line to its last
//! one; these two stay, and every line under a marker stays byte for byte. Where the edit begins (ends) without a
//! marker, its first (last) segment reaches to the start (end) of the file.
//!
//! Nothing is guessed. The first and last lines of all segments must occur in the file, in order, in exactly one
//! way. A last line such as `}` occurs often, so the lines before it may decide which one is meant, provided that
//! no shortest diff could mean another one.

mod anchors;
mod assemble;
mod error;
mod last_line;
mod markers;
mod placement;
#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

pub(crate) use error::MergeError;
pub(crate) use markers::has_markers;

use crate::text::split_lines;

/// Returns the file after the edit. The same input always gives the same bytes or the same error.
pub(crate) fn merge(original: &str, edit: &str) -> Result<String, MergeError> {
    let (old, written) = (split_lines(original), split_lines(edit));
    let segments = markers::segments(&written)?;
    let spans = placement::place(&old, &segments)?;
    Ok(assemble::assemble(original, &old, &segments, &spans))
}
