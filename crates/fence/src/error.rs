//! Why a command does not run in a fence: the setup failed, the policy cannot be enforced here, or the launch
//! failed. One error for all callers, with a hint where the user can act.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::paths::ScopeError;
use crate::refusal::Refusal;

/// How long a silent launcher is waited for. It may be stuck on a dead network mount.
pub(crate) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Why nothing runs in the fence.
#[derive(Debug, Error)]
pub enum FenceError {
    #[error(transparent)]
    Setup(#[from] FenceSetupError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

impl FenceError {
    /// The error as a whole message, which says whether the fence was refused or the command could not be executed.
    pub fn message(&self) -> String {
        match self {
            Self::Setup(FenceSetupError::Directory(_)) => self.to_string(),
            Self::Launch(LaunchError::Exec { .. }) => format!("cannot execute {self}"),
            _ => format!("refused: {self}"),
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Setup(error) => error.hint(),
            Self::Refused(refusal) => Some(refusal.hint()),
            Self::Launch(error) => error.hint(),
        }
    }
}

/// Why a fence could not be set up.
#[derive(Debug, Error)]
pub enum FenceSetupError {
    #[error(transparent)]
    Scope(#[from] ScopeError),
    #[error("cannot make a directory for the session: {0}")]
    Directory(io::Error),
    #[error("{count} files of the scope have another name outside it, for example {}", .example.display())]
    SharedFiles { count: u64, example: PathBuf },
    #[error("{} lies in {} or around it, which stays as it is while a copy is shown there", .directory.display(), .base.display())]
    BesideCopy { directory: PathBuf, base: PathBuf },
}

impl FenceSetupError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Scope(error) => Some(error.hint().to_owned()),
            Self::SharedFiles { .. } => Some(
                "install packages again with copies instead of links (uv: UV_LINK_MODE=copy, pnpm: \
                 package-import-method=copy), or run with --hardlinks protect or --hardlinks warn"
                    .to_owned(),
            ),
            Self::BesideCopy { .. } => {
                Some("let commands write in the whole directory, or in none of its own parts".to_owned())
            }
            Self::Directory(_) => None,
        }
    }
}

/// Why a launch failed.
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error("the fence could not be put up: {step}: {reason}")]
    Refused { step: String, reason: String },
    #[error("{}: {error}", .program.display())]
    Exec { program: PathBuf, error: io::Error },
    #[error("the launcher ended unexpectedly")]
    Lost,
    #[error("the launcher did not finish within {} seconds", LAUNCH_TIMEOUT.as_secs())]
    Stuck,
    #[error("cannot start the launcher: {0}")]
    Io(#[from] io::Error),
}

impl LaunchError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exec { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => Some(
                "the command, or the program that its first line names, is not executable or not readable \
                 inside the fence; --read PATH makes a path readable"
                    .to_owned(),
            ),
            Self::Refused { .. } => Some("`ringfence doctor` shows what this host can enforce".to_owned()),
            _ => None,
        }
    }
}

impl From<rustix::io::Errno> for LaunchError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}
