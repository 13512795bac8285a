//! One copy of a project.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::apply::{Ancestor, Applied, ApplyError, ApplyRequest, Undone};
use crate::changes::{ChangeOptions, Changes};
use crate::error::StagingError;
use crate::history::{Event, HistoryLine};
use crate::path_text;
use crate::record::{Record, Tree};

/// A copy that was found.
#[derive(Debug)]
pub struct WorkspaceCopy {
    pub(crate) directory: PathBuf,
    pub(crate) record: Record,
}

/// Keeps other processes from using a copy. Ends when it is dropped, or with this process.
#[derive(Debug)]
pub struct Occupied {
    lock: File,
}

impl Occupied {
    /// The lock itself, which holds the copy as long as it is open.
    pub fn into_lock(self) -> File {
        self.lock
    }
}

/// What changed in the base since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BaseDrift {
    /// New or changed.
    #[serde(with = "path_text::list")]
    pub changed: Vec<PathBuf>,
    /// Deleted, among the paths that changed in the copy.
    #[serde(with = "path_text::list")]
    pub deleted: Vec<PathBuf>,
    /// How many entries of the base are gone in all.
    pub entries_gone: usize,
}

/// What would be lost with a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsaved {
    /// Commits that the project does not have, as the caller knows.
    pub commits: usize,
}

impl WorkspaceCopy {
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The copy's own directory. No fence shows it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a fence mounts: the first is the project, others are git directories outside it.
    pub fn trees(&self) -> &[Tree] {
        &self.record.trees
    }

    /// Changes what callers may change in the record, and writes it.
    pub fn update(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), StagingError> {
        let _ = change;
        todo!()
    }

    /// Takes the copy for this process, or says which process has it. `use_as` is shown to others: `gateway`, `command`.
    pub fn occupy(&self) -> Result<Occupied, StagingError> {
        todo!()
    }

    /// The process that uses the copy.
    pub fn user(&self) -> Option<u32> {
        todo!()
    }

    pub fn changes(&self, options: &ChangeOptions) -> Result<Changes, StagingError> {
        let _ = options;
        todo!()
    }

    /// What changed in the base since the start. Walks the base.
    pub fn base_drift(&self) -> Result<BaseDrift, StagingError> {
        todo!()
    }

    /// Takes changes over into the base, all or nothing. Works while the copy is in use; what the agent writes meanwhile
    /// is a change of the next apply.
    pub fn apply(&self, request: &ApplyRequest, ancestor: Ancestor<'_>) -> Result<Applied, ApplyError> {
        let _ = (request, ancestor);
        todo!()
    }

    /// Gives the base back what the last apply replaced. Refused if the files were changed since.
    pub fn undo(&self) -> Result<Undone, ApplyError> {
        todo!()
    }

    /// Whether there is an apply that can be undone.
    pub fn can_undo(&self) -> bool {
        todo!()
    }

    /// Bytes on disk.
    pub fn disk_use(&self) -> Result<u64, StagingError> {
        todo!()
    }

    pub fn history(&self) -> Result<Vec<HistoryLine>, StagingError> {
        todo!()
    }

    pub fn note(&self, event: Event) -> Result<(), StagingError> {
        let _ = event;
        todo!()
    }
}
