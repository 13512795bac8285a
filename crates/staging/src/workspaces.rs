//! All copies of a user: finding, creating, discarding, pruning.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::apply::Recovered;
use crate::copy::{Unsaved, WorkspaceCopy};
use crate::error::StagingError;
use crate::method::Method;
use crate::name::WorkspaceName;
use crate::record::{Record, StartCommit};

/// How long the trash keeps a copy, unless the caller says otherwise.
pub(crate) const TRASH_PERIOD: Duration = Duration::from_hours(7 * 24);

/// The state root with all copies.
#[derive(Clone, Debug)]
pub struct Workspaces {
    root: PathBuf,
}

/// A copy to make.
#[derive(Clone, Debug)]
pub struct NewCopy {
    pub base: PathBuf,
    pub method: Method,
    /// `None`: one from the base's name.
    pub name: Option<WorkspaceName>,
    /// Further directories that the copy needs beside its base: git directories outside it.
    pub beside: Vec<NewTree>,
    /// Secrets to bring along, as paths relative to the base; beside what `.worktreeinclude` names.
    pub include_secrets: Vec<PathBuf>,
    pub start: Option<StartCommit>,
    pub staged_for: Option<String>,
    pub cancel: Cancel,
}

/// A directory beside the base.
#[derive(Clone, Debug)]
pub struct NewTree {
    pub base: PathBuf,
    /// Where the index and its tree are, if this is the git directory of the base.
    pub worktree: Option<PathBuf>,
}

/// Stops a copy that is being made, from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl NewCopy {
    pub fn of(base: &Path, method: Method) -> Self {
        Self {
            base: base.to_owned(),
            method,
            name: None,
            beside: Vec::new(),
            include_secrets: Vec::new(),
            start: None,
            staged_for: None,
            cancel: Cancel::default(),
        }
    }
}

/// A copy in the trash.
#[derive(Clone, Debug)]
pub struct Trashed {
    pub record: Record,
    pub deadline: Timestamp,
}

/// What to remove.
#[derive(Clone, Debug, Default)]
pub struct PruneRules {
    /// Copies that were not used for so long.
    pub older_than: Option<Duration>,
    /// The least recently used ones, until all take no more than this.
    pub most_bytes: Option<u64>,
    /// Also copies with changes that were not taken over.
    pub force: bool,
    /// Only say what would be removed.
    pub dry_run: bool,
}

/// What was removed.
#[derive(Clone, Debug, Default)]
pub struct Pruned {
    /// These went to the trash (or, with `most_bytes`, for good).
    pub removed: Vec<WorkspaceName>,
    /// These stay: in use, or with changes that were not taken over.
    pub kept: Vec<(WorkspaceName, String)>,
    /// The trash gave these up.
    pub expired: usize,
    pub freed_bytes: u64,
}

impl Workspaces {
    /// `$XDG_STATE_HOME/ringfence/workspaces`, else `~/.local/state/ringfence/workspaces`.
    pub fn default_root(state_home: Option<&OsStr>, home: &Path) -> PathBuf {
        let state = state_home.map(Path::new).filter(|path| path.is_absolute());
        let state = state.map_or_else(|| home.join(".local/state"), Path::to_owned);
        state.join("ringfence/workspaces")
    }

    /// Opens the state root, makes it if it is missing, and removes what creations left that a crash ended.
    pub fn open(root: &Path) -> Result<Self, StagingError> {
        let _ = root;
        todo!()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All copies, by name. Those whose record cannot be read are errors of their own.
    pub fn list(&self) -> Result<Vec<Result<WorkspaceCopy, StagingError>>, StagingError> {
        todo!()
    }

    pub fn find(&self, name: &str) -> Result<WorkspaceCopy, StagingError> {
        let _ = name;
        todo!()
    }

    /// Makes a copy. One that fails or is cancelled leaves nothing.
    pub fn create(&self, new: NewCopy) -> Result<WorkspaceCopy, StagingError> {
        let _ = new;
        todo!()
    }

    /// Moves a copy to the trash. Refused without `force` if something would be lost, and while another process uses it.
    pub fn discard(
        &self,
        copy: WorkspaceCopy,
        unsaved: Unsaved,
        force: bool,
    ) -> Result<Trashed, StagingError> {
        let _ = (copy, unsaved, force);
        todo!()
    }

    pub fn trash(&self) -> Result<Vec<Trashed>, StagingError> {
        todo!()
    }

    /// Takes a copy out of the trash, under another name if `name` says so.
    pub fn restore(
        &self,
        trashed: &Trashed,
        name: Option<WorkspaceName>,
    ) -> Result<WorkspaceCopy, StagingError> {
        let _ = (trashed, name);
        todo!()
    }

    /// Removes old copies, and what the trash kept until its deadline. `unsaved` knows of commits.
    pub fn prune(
        &self,
        rules: &PruneRules,
        unsaved: &dyn Fn(&WorkspaceCopy) -> Unsaved,
    ) -> Result<Pruned, StagingError> {
        let _ = (rules, unsaved);
        todo!()
    }

    /// Finishes or rolls back every apply that a crash interrupted. To be called at every start; harmless at any time.
    pub fn recover(&self) -> Result<Vec<Recovered>, StagingError> {
        todo!()
    }
}
