//! Access to the files below the session's directories, and to nothing else. Every path becomes a
//! [`SessionPath`]; the kernel opens every file beneath a directory that is already open. No path is checked first
//! and opened later.

mod hints;
mod path_error;
mod session_path;
mod target;
#[cfg(test)]
mod tests;
mod workspace;
mod writing;

pub(crate) use path_error::PathError;
pub(crate) use session_path::SessionPath;
pub(crate) use target::{Parents, Target};
pub(crate) use workspace::{FoundFile, Workspace, kind_name};
pub(crate) use writing::{Expected, FileMode, Seen};
