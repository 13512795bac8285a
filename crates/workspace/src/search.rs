//! Looking through the workspace: a walk that never follows a link, ignore files as ripgrep reads them, and
//! what is searched for in names and contents.

mod fuzzy;
mod grep;
mod ignore_files;
#[cfg(test)]
mod tests;
mod walk;

pub use fuzzy::{FuzzyHit, find_by_name};
pub use grep::{GrepHit, GrepQuery, GrepReport, GrepRequestError, HitLine, grep};
pub use walk::{Finding, Patience, Walk, WalkFilter, WalkOutcome};
pub(crate) use walk::{LISTING_BYTES, known_kind, list_entries};
