//! Files below the directories of the session, and nothing else: every path goes through [`SessionPath`], and
//! every file is opened by the kernel beneath a directory that is already open. Nothing is looked at first and
//! opened later.

mod hints;
mod path_error;
mod session_path;
mod target;
#[cfg(test)]
mod tests;
mod workspace;
mod writing;

pub use path_error::PathError;
pub use session_path::SessionPath;
pub use target::{Parents, Target};
pub(crate) use workspace::kind_name;
pub use workspace::{FoundFile, Workspace};
pub use writing::{Expected, FileMode, Seen, Written};
