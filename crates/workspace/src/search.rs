//! Searches the workspace by file name and by content. The walk underneath never follows links and reads ignore
//! files as ripgrep does.

mod fuzzy;
mod grep;
mod ignore_files;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use fuzzy::find_by_name;
pub(crate) use grep::{GrepHit, GrepQuery, GrepReport, grep};
pub(crate) use walk::{Finding, LISTING_BYTES, Patience, Walk, WalkFilter, known_kind, list_entries};
