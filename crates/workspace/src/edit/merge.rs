//! The marker merge: an edit shows the new code, and says `... existing code ...` where the file stays.
//!
//! Markers split the edit into segments. A segment takes the place of the lines of the file from its first
//! line to its last one, both of which stay; every line under a marker stays byte for byte. Where the edit
//! begins (ends) without a marker, its first (last) segment reaches to the start (end) of the file.
//!
//! Nothing is guessed. An edit can be read in as many ways as its first and last lines occur in the file, in
//! the order of the edit; only if there is one way it is followed. A last line such as `}` occurs often, though:
//! it may also be settled by the lines before it, if no shortest diff could have been meant by another one.

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

pub use error::{MergeError, Side};
pub use markers::has_markers;

use crate::text::split_lines;

/// The file after the edit. The same input always gives the same bytes, or the same error.
pub fn merge(original: &str, edit: &str) -> Result<String, MergeError> {
    let (old, written) = (split_lines(original), split_lines(edit));
    let segments = markers::segments(&written)?;
    let spans = placement::place(&old, &segments)?;
    Ok(assemble::assemble(original, &old, &segments, &spans))
}
