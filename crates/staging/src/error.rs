//! What can go wrong with copies, and what the user can do about it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use crate::name::NameError;

#[derive(Debug, Error)]
pub enum StagingError {
    #[error("{what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("no space is left for the copy of {}", base.display())]
    NoSpace { base: PathBuf },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("there is a session workspace `{name}` already")]
    NameTaken { name: String },
    #[error("there is no session workspace `{name}`")]
    NotFound { name: String },
    #[error("the session workspace `{name}` is in use by process {}", pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string()))]
    InUse { name: String, pid: Option<u32> },
    #[error("the session workspace `{name}` has {what} that the project does not have")]
    Unsaved { name: String, what: String },
    #[error("{} is gone, or another directory took its place", base.display())]
    BaseReplaced { base: PathBuf },
    #[error("the record of the session workspace at {} cannot be read: {reason}", path.display())]
    DamagedRecord { path: PathBuf, reason: String },
    #[error("{} belongs to another user, or others can write there", path.display())]
    NotPrivate { path: PathBuf },
    #[error("`{pattern}` in {place} is no pattern: {reason}")]
    Pattern { pattern: String, place: &'static str, reason: String },
    #[error("the file system of {} cannot share the blocks of files", path.display())]
    NoReflink { path: PathBuf },
    #[error("more than {most} entries changed")]
    TooManyChanges { most: usize },
    #[error("the copy was cancelled")]
    Cancelled,
}

impl StagingError {
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoSpace { .. } => "free some space, or prune workspaces: `ringfence session prune`",
            Self::Name(_) => {
                "use letters, digits, `.`, `_` and `-`, at most 64, beginning with a letter or digit"
            }
            Self::NameTaken { .. } => "choose another name, or go on with that one: `ringfence session list`",
            Self::NotFound { .. } => "`ringfence session list` shows what there is",
            Self::InUse { .. } => "stop it first: `ringfence session stop NAME`",
            Self::Unsaved { .. } => {
                "look at them with `ringfence session diff`, or discard them with `--force`"
            }
            Self::BaseReplaced { .. } => "put the project back where it was; the workspace keeps its changes",
            Self::NoReflink { .. } => "use `--method copy`",
            Self::Pattern { .. } => "write paths, or globs such as `src/**` and `*.rs`",
            Self::TooManyChanges { .. } => "add what is generated to `.gitignore`",
            _ => return None,
        })
    }

    /// Makes the error of one operation on one path.
    pub(crate) fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { what, path: path.to_owned(), source: source.into() }
    }

    /// Whether the disk or the quota is full.
    pub(crate) fn is_no_space(&self) -> bool {
        let full = [Errno::NOSPC, Errno::DQUOT].map(|errno| Some(errno.raw_os_error()));
        matches!(self, Self::Io { source, .. } if full.contains(&source.raw_os_error()))
    }
}
