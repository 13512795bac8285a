//! Takes changes over into the base, all or nothing.

mod engine;
mod journal;
mod plan;
mod slots;
mod transaction;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::error::StagingError;
use crate::path_text;
use crate::quoting::quote;

pub(crate) use engine::Hook;
#[cfg(test)]
pub(crate) use engine::Moment;
pub(crate) use journal::Files;
pub(crate) use slots::is_own;
pub(crate) use transaction::Transactions;

/// Gives the content of a file, relative to the base, at the commit of the start. `None`: there was no such file, or it
/// is not known.
pub type Ancestor<'a> = &'a dyn Fn(&Path) -> Option<Vec<u8>>;

/// What to take over.
#[derive(Clone, Debug, Default)]
pub struct ApplyRequest {
    /// Paths (with what is below them) and globs, relative to the base; all if empty. A glob without a slash names
    /// files in every directory.
    pub only: Vec<PathBuf>,
    /// Take over what programs outside execute or obey, too.
    pub include_executables: bool,
    /// Take over ignored files, too.
    pub include_ignored: bool,
    /// As in [`crate::ChangeOptions`].
    pub executed: Vec<PathBuf>,
    /// The fingerprint of the changes that were reviewed. Others are refused.
    pub reviewed: Option<String>,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// What was taken over.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Applied {
    #[serde(with = "path_text::list")]
    pub paths: Vec<PathBuf>,
    /// Those among them that were merged with changes of the base.
    #[serde(with = "path_text::list")]
    pub merged: Vec<PathBuf>,
    /// Those that the base had already.
    #[serde(with = "path_text::list")]
    pub equal: Vec<PathBuf>,
    /// Left out because programs outside would execute or obey them.
    #[serde(with = "path_text::list")]
    pub executables_left_out: Vec<PathBuf>,
    /// Special files and the like, which are never taken over.
    pub left_aside: Vec<crate::changes::LeftAside>,
    /// Directories that stay because the base has something new in them.
    #[serde(with = "path_text::list")]
    pub directories_kept: Vec<PathBuf>,
}

/// What an undo gave back.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Undone {
    #[serde(with = "path_text::list")]
    pub paths: Vec<PathBuf>,
}

/// A path at which base and copy cannot be brought together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    #[serde(with = "path_text")]
    pub path: PathBuf,
    pub reason: ConflictReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictReason {
    /// Both changed the same lines.
    SameLines,
    /// Both changed it, and it cannot be merged: binary, too large, a link, or its content at the start is not known.
    BothChanged,
    BothAdded,
    DeletedInBase,
    DeletedInCopy,
    /// One has a file where the other has a directory or link.
    TypeDiffers,
    /// The base changed while the changes were taken over.
    ChangedMeanwhile,
    /// On another file system than the rest of the project.
    OtherFileSystem,
}

#[derive(Debug, Error)]
pub enum ApplyError {
    #[error("the project and the session workspace changed the same: {}", list(.0))]
    Conflicts(Vec<Conflict>),
    #[error("nothing that changed matches {}", .pattern.display())]
    NothingMatches { pattern: PathBuf },
    #[error("the session workspace has other changes than those that were reviewed")]
    NotAsReviewed,
    #[error("{} was changed in the session workspace while it was read", .path.display())]
    CopyChanged { path: PathBuf },
    #[error("there is no apply to undo")]
    NothingToUndo,
    /// Everything was rolled back, but these could not be restored; their originals are kept at `kept`.
    #[error("the project was changed while it was being restored: {}", list(.conflicts))]
    NotRestored { conflicts: Vec<Conflict>, kept: PathBuf },
    #[error(transparent)]
    Staging(#[from] StagingError),
}

/// The most conflicts that a message names.
const MAX_NAMED: usize = 20;

fn list(conflicts: &[Conflict]) -> String {
    let mut text = String::new();
    for (number, conflict) in conflicts.iter().take(MAX_NAMED).enumerate() {
        let separator = if number == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{} ({})", quote("", &conflict.path), conflict.reason);
    }
    if conflicts.len() > MAX_NAMED {
        let _ = write!(text, " and {} more", conflicts.len() - MAX_NAMED);
    }
    text
}

impl std::fmt::Display for ConflictReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::SameLines => "both changed the same lines",
            Self::BothChanged => "both changed it, and it cannot be merged",
            Self::BothAdded => "both added it",
            Self::DeletedInBase => "deleted in the project",
            Self::DeletedInCopy => "deleted in the workspace, changed in the project",
            Self::TypeDiffers => "a file here, a directory or link there",
            Self::ChangedMeanwhile => "the project was changed meanwhile",
            Self::OtherFileSystem => "on another file system than the project",
        })
    }
}

impl ApplyError {
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Conflicts(_) => {
                "nothing was taken over; bring the project's changes into the workspace, or leave these out with `--only`"
            }
            Self::NothingMatches { .. } => "`ringfence session diff NAME` shows what changed",
            Self::NotAsReviewed => "look at the changes again: `ringfence session diff NAME`",
            Self::CopyChanged { .. } => "nothing was taken over; wait until the agent rests, and try again",
            Self::NothingToUndo => return None,
            Self::NotRestored { .. } => "compare the kept originals with the project's files",
            Self::Staging(error) => return error.hint(),
        })
    }
}

/// What was done about an apply that a crash interrupted.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    pub name: crate::WorkspaceName,
    pub outcome: RecoveryOutcome,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryOutcome {
    /// It was finished.
    Finished,
    /// The base has moved on, so everything is as before.
    RolledBack,
    /// These files were changed since; they stay as they are, with the originals in the copy's directory.
    NotRestored {
        conflicts: Vec<Conflict>,
        #[serde(with = "path_text")]
        kept: PathBuf,
    },
    /// It could not be looked at now: the base is gone, for example. It is tried again.
    Postponed { reason: String },
}
