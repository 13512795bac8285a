//! Why a command on session workspaces failed: one message, and a hint.

use std::path::PathBuf;

use fence::{FenceSetupError, ScopeError};
use staging::{ApplyError, StagingError};
use thiserror::Error;

use crate::fenced::FencedCommandError;

#[derive(Debug, Error)]
pub(crate) enum SessionCommandError {
    #[error("{0}")]
    Staging(#[from] StagingError),
    #[error("{0}")]
    Apply(#[from] ApplyError),
    #[error("{}", .0.message())]
    Fence(FencedCommandError),
    #[error("{0}")]
    Scope(#[from] ScopeError),
    #[error("session workspaces need a directory for their files, and HOME is not set")]
    NoState,
    #[error("git is not installed")]
    NoGit,
    #[error("{} is in no git repository", .0.display())]
    NoRepository(PathBuf),
    #[error("the project has no commit `{0}`")]
    NoCommit(String),
    #[error("git could not {what}: {complaint}")]
    Git { what: &'static str, complaint: String },
    #[error("the session workspace has no commits that the project does not have")]
    NothingToMerge,
    #[error("`{0}` is no name for a branch")]
    BadBranch(String),
    #[error("the branch {0} has other commits, which would be lost")]
    BranchMoved(String),
    #[error("the branch {0} is checked out")]
    BranchInUse(String),
    #[error("the commits change what programs on this machine execute or obey: {}", .0.join(", "))]
    Executables(Vec<String>),
    #[error("the set-up command failed with {0}; the workspace is there")]
    SetUp(String),
    #[error("the address of the endpoint is not known before it is served")]
    NoEndpoint,
    #[error("the trash has no session workspace `{0}`")]
    NotInTrash(String),
    #[error("{option} has no meaning for `ringfence session run`: the command works in the workspace")]
    NotWithRun { option: &'static str },
    #[error("cannot write the answer: {0}")]
    Output(#[from] std::io::Error),
}

impl SessionCommandError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Staging(error) => return error.hint().map(str::to_owned),
            Self::Apply(error) => return error.hint().map(str::to_owned),
            Self::Fence(error) => return error.hint(),
            Self::Scope(error) => error.hint(),
            Self::NoState => "set HOME, or XDG_STATE_HOME",
            Self::NoGit => "install git, or leave out what needs it: --base, --clean, merge",
            Self::NoRepository(_) => "use `ringfence session apply`, which takes over files without git",
            Self::NoCommit(_) => "name a branch, a tag or a commit: git log",
            Self::NothingToMerge => {
                "let the agent commit in its workspace, or take the files over: ringfence session apply NAME"
            }
            Self::BadBranch(_) => "name one such as ringfence/fix-login",
            Self::BranchMoved(_) => "name another branch with --into, or add --force",
            Self::BranchInUse(_) => "name another branch with --into",
            Self::Executables(_) => {
                "look at them with `ringfence session diff NAME`, then add --include-executables"
            }
            Self::SetUp(_) => "`ringfence session log NAME` shows its output",
            Self::NoEndpoint => "give a --port other than 0",
            Self::NotInTrash(_) => "`ringfence session list` shows the trash, too",
            Self::NotWithRun { .. } => "leave it out",
            Self::Git { .. } | Self::Output(_) => return None,
        };
        Some(hint.to_owned())
    }
}

impl From<FencedCommandError> for SessionCommandError {
    fn from(error: FencedCommandError) -> Self {
        Self::Fence(error)
    }
}

impl From<FenceSetupError> for SessionCommandError {
    fn from(error: FenceSetupError) -> Self {
        Self::Fence(error.into())
    }
}
