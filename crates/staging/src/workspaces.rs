//! All copies of a user: finding, creating, discarding, pruning.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence::VettedDirectory;
use jiff::Timestamp;

use crate::apply::{Files, Recovered, RecoveryOutcome};
use crate::cancel::Cancel;
use crate::changes::ChangeOptions;
use crate::copy::{Unsaved, WorkspaceCopy, disk_use};
use crate::creation::{make_tree, survey};
use crate::error::StagingError;
use crate::held_tree::HeldTree;
use crate::history::Event;
use crate::manifest::Manifest;
use crate::method::{Method, can_reflink};
use crate::name::WorkspaceName;
use crate::record::{self, CopyId, OutsideRepository, Record, StartCommit, Tree};
use crate::removal::remove_tree;
use crate::state_files::{
    Lock, lock, lock_holder, make_private_directory, sync_directory, try_lock, write_json,
};

/// How long the trash keeps a copy, unless the caller says otherwise.
pub(crate) const TRASH_PERIOD: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const TRASH: &str = "trash";
/// The beginning of the names of copies that are being made.
const UNFINISHED: &str = ".new-";
/// A creation takes its lock within less time.
const YOUNG: Duration = Duration::from_secs(60);

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
        let failed = |error| StagingError::io("cannot open", root, error);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(root).map_err(failed)?;
        // The paths of overlays are written down, and are resolved without links.
        let root = root.canonicalize().map_err(failed)?;
        let metadata = root.metadata().map_err(failed)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(StagingError::NotPrivate { path: root });
        }
        let workspaces = Self { root };
        workspaces.sweep()?;
        Ok(workspaces)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All copies, by name. Those whose record cannot be read are errors of their own, at the end.
    pub fn list(&self) -> Result<Vec<Result<WorkspaceCopy, StagingError>>, StagingError> {
        let mut found: Vec<_> = self.directories(&self.root)?.into_iter().map(WorkspaceCopy::read).collect();
        found.sort_by(|one, other| match (one, other) {
            (Ok(one), Ok(other)) => one.record.name.cmp(&other.record.name),
            (one, other) => one.is_err().cmp(&other.is_err()),
        });
        Ok(found)
    }

    /// The directories of copies in the root or the trash.
    fn directories(&self, of: &Path) -> Result<Vec<PathBuf>, StagingError> {
        let entries = match std::fs::read_dir(of) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| self.failed(error))?,
        };
        let is_copy = |entry: &std::fs::DirEntry| {
            let name = entry.file_name();
            name != TRASH
                && !name.as_bytes().starts_with(b".")
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        Ok(entries.flatten().filter(is_copy).map(|entry| entry.path()).collect())
    }

    pub fn find(&self, name: &str) -> Result<WorkspaceCopy, StagingError> {
        let found = self.list()?.into_iter().flatten().find(|copy| copy.name() == name);
        found.ok_or_else(|| StagingError::NotFound { name: name.to_owned() })
    }

    /// Makes a copy. One that fails or is cancelled leaves nothing.
    pub fn create(&self, new: NewCopy) -> Result<WorkspaceCopy, StagingError> {
        if let Some(name) = &new.name {
            self.check_free(name)?;
        }
        let id = CopyId(uuid::Uuid::new_v4().simple().to_string());
        let unfinished = self.root.join(format!("{UNFINISHED}{id}"));
        make_private_directory(&unfinished).map_err(|error| self.failed(error))?;
        let made = self.fill(new, &id, &unfinished);
        if made.is_err() {
            // What cannot be removed now is swept later.
            let _ = remove_tree(&unfinished);
        }
        made
    }

    /// Fills the directory of a new copy, and gives it its name.
    fn fill(&self, new: NewCopy, id: &CopyId, unfinished: &Path) -> Result<WorkspaceCopy, StagingError> {
        // Held until the end: the lock says that the directory is not abandoned.
        let lock = try_lock(&unfinished.join("making.lock")).map_err(|error| self.failed(error))?;
        let _lock = lock.map_err(|_| self.failed(io::ErrorKind::WouldBlock.into()))?;
        let vetted = VettedDirectory::own(&new.base);
        let vetted = vetted.map_err(|_| StagingError::BaseReplaced { base: new.base.clone() })?;
        let identity =
            vetted.identity().map_err(|error| StagingError::io("cannot look at", &new.base, error))?;
        let base = open(vetted.path())?;
        if new.method == Method::Reflink && !can_reflink(base.path(), &self.root) {
            return Err(StagingError::NoReflink { path: new.base.clone() });
        }
        let survey = survey(&base, &new)?;
        let trees = self.make_trees(&base, &new, (id, unfinished), &survey.left_out)?;
        let write = || -> io::Result<()> {
            let files = Files { copy: unfinished };
            survey.manifest.save(&files.base_manifest())?;
            match new.method {
                Method::Overlay => Manifest::empty(),
                // As it was made: what differs from this later was changed in the copy.
                _ => Manifest::of(&HeldTree::open(&unfinished.join("project/tree"))?, &|_| Ok(()))?,
            }
            .save(&files.copy_manifest())
        };
        write().map_err(|error| no_space(&new.base, self.failed(error)))?;
        let outside = new.beside.iter().filter_map(|tree| {
            Some(OutsideRepository { git_directory: tree.base.clone(), worktree: tree.worktree.clone()? })
        });
        let record = Record {
            version: record::VERSION,
            id: id.clone(),
            name: new.name.unwrap_or_else(|| WorkspaceName::automatic(base.path(), id.as_str())),
            method: new.method,
            created: Timestamp::now(),
            used: Timestamp::now(),
            base: identity,
            trees,
            left_out: survey.left_out,
            not_copied: if new.method == Method::Overlay { Vec::new() } else { survey.special },
            repositories: outside.collect(),
            start: new.start,
            set_up: None,
            staged_for: new.staged_for,
            notes: String::new(),
            deadline: None,
            more: serde_json::Map::new(),
        };
        self.settle(record, unfinished).map_err(|error| no_space(&new.base, error))
    }

    fn make_trees(
        &self,
        base: &HeldTree,
        new: &NewCopy,
        (id, unfinished): (&CopyId, &Path),
        left_out: &[PathBuf],
    ) -> Result<Vec<Tree>, StagingError> {
        let settled = self.root.join(id.as_str());
        let mut trees = vec![make_tree(
            base,
            new.method,
            (&unfinished.join("project"), &settled.join("project")),
            left_out,
            &new.cancel,
        )?];
        for (number, tree) in new.beside.iter().enumerate() {
            let name = format!("beside-{number}");
            let places = (unfinished.join(&name), settled.join(&name));
            let base = open(&tree.base)?;
            trees.push(make_tree(&base, new.method, (&places.0, &places.1), &[], &new.cancel)?);
        }
        Ok(trees)
    }

    /// Writes the record and gives the finished directory its name.
    fn settle(&self, record: Record, unfinished: &Path) -> Result<WorkspaceCopy, StagingError> {
        let directory = self.root.join(record.id.as_str());
        let copy = WorkspaceCopy { directory: unfinished.to_owned(), record };
        copy.note(Event::Created { method: copy.record.method })?;
        write_json(&unfinished.join("record.json"), &copy.record).map_err(|error| self.failed(error))?;
        let _lock = self.lock_names()?;
        self.check_free(&copy.record.name)?;
        let named = std::fs::rename(unfinished, &directory).and_then(|()| sync_directory(&self.root));
        named.map_err(|error| self.failed(error))?;
        Ok(WorkspaceCopy { directory, ..copy })
    }

    fn check_free(&self, name: &WorkspaceName) -> Result<(), StagingError> {
        let is_taken = self.list()?.iter().flatten().any(|copy| copy.record.name == *name);
        if is_taken { Err(StagingError::NameTaken { name: name.to_string() }) } else { Ok(()) }
    }

    fn lock_names(&self) -> Result<std::fs::File, StagingError> {
        lock(&self.root.join("names.lock")).map_err(|error| self.failed(error))
    }

    /// Moves a copy to the trash. Refused without `force` if something would be lost, and while another process uses it.
    pub fn discard(
        &self,
        copy: WorkspaceCopy,
        unsaved: Unsaved,
        force: bool,
    ) -> Result<Trashed, StagingError> {
        self.discard_until(copy, unsaved, force, TRASH_PERIOD)
    }

    /// The same, with a period of the caller's own.
    pub fn discard_until(
        &self,
        mut copy: WorkspaceCopy,
        unsaved: Unsaved,
        force: bool,
        period: Duration,
    ) -> Result<Trashed, StagingError> {
        let _occupied = copy.occupy()?;
        if !force {
            check_saved(&copy, unsaved)?;
        }
        // What cannot be forgotten now (the base is gone) is no reason to keep the copy.
        let _ = copy.forget_undo();
        let deadline = Timestamp::now().saturating_add(period).unwrap_or(Timestamp::MAX);
        copy.update(|record| record.deadline = Some(deadline))?;
        copy.note(Event::Discarded)?;
        let trash = self.root.join(TRASH);
        if !trash.is_dir() {
            make_private_directory(&trash).map_err(|error| self.failed(error))?;
        }
        self.move_copy(&copy.directory, &trash.join(copy.record.id.as_str()))?;
        Ok(Trashed { record: copy.record, deadline })
    }

    fn move_copy(&self, from: &Path, to: &Path) -> Result<(), StagingError> {
        let moved = std::fs::rename(from, to).and_then(|()| sync_directory(&self.root));
        moved.map_err(|error| self.failed(error))
    }

    /// What the trash has, the soonest to go first.
    pub fn trash(&self) -> Result<Vec<Trashed>, StagingError> {
        let found = self.directories(&self.root.join(TRASH))?.into_iter().map(WorkspaceCopy::read);
        let trashed = |copy: WorkspaceCopy| Trashed {
            deadline: copy.record.deadline.unwrap_or(copy.record.used),
            record: copy.record,
        };
        let mut trash: Vec<Trashed> = found.flatten().map(trashed).collect();
        trash.sort_by_key(|trashed| trashed.deadline);
        Ok(trash)
    }

    /// Takes a copy out of the trash, under another name if `name` says so.
    pub fn restore(
        &self,
        trashed: &Trashed,
        name: Option<WorkspaceName>,
    ) -> Result<WorkspaceCopy, StagingError> {
        let _lock = self.lock_names()?;
        let from = self.root.join(TRASH).join(trashed.record.id.as_str());
        let mut copy = WorkspaceCopy::read(from)
            .map_err(|_| StagingError::NotFound { name: trashed.record.name.to_string() })?;
        let name = name.unwrap_or_else(|| copy.record.name.clone());
        self.check_free(&name)?;
        copy.update(|record| (record.name, record.deadline) = (name, None))?;
        let to = self.root.join(copy.record.id.as_str());
        self.move_copy(&copy.directory, &to)?;
        let copy = WorkspaceCopy { directory: to, ..copy };
        copy.note(Event::Restored)?;
        Ok(copy)
    }

    /// Removes a copy of the trash for good.
    pub fn delete(&self, trashed: &Trashed) -> Result<(), StagingError> {
        let directory = self.root.join(TRASH).join(trashed.record.id.as_str());
        remove_tree(&directory).map_err(|error| StagingError::io("cannot remove", &directory, error))
    }

    /// Removes old copies, and what the trash kept until its deadline. `unsaved` knows of commits.
    pub fn prune(
        &self,
        rules: &PruneRules,
        unsaved: &dyn Fn(&WorkspaceCopy) -> Unsaved,
    ) -> Result<Pruned, StagingError> {
        let mut pruned = Pruned::default();
        self.expire(rules, &mut pruned)?;
        let mut copies: Vec<_> = self.list()?.into_iter().flatten().collect();
        copies.sort_by_key(|copy| copy.record.used);
        let sizes: Vec<u64> = copies.iter().map(WorkspaceCopy::disk_use).collect::<Result<_, _>>()?;
        let mut all: u64 = sizes.iter().sum();
        for (copy, bytes) in copies.into_iter().zip(sizes) {
            let is_too_much = rules.most_bytes.is_some_and(|most| all > most);
            if !is_too_much && !rules.older_than.is_some_and(|age| is_older(copy.record.used, age)) {
                continue;
            }
            let name = copy.record.name.clone();
            match self.prune_one(copy, rules, unsaved, is_too_much) {
                Ok(()) => {
                    all -= bytes;
                    pruned.freed_bytes += if is_too_much { bytes } else { 0 };
                    pruned.removed.push(name);
                }
                Err(error) => pruned.kept.push((name, error.to_string())),
            }
        }
        Ok(pruned)
    }

    fn prune_one(
        &self,
        copy: WorkspaceCopy,
        rules: &PruneRules,
        unsaved: &dyn Fn(&WorkspaceCopy) -> Unsaved,
        is_for_good: bool,
    ) -> Result<(), StagingError> {
        let known = unsaved(&copy);
        if rules.dry_run {
            let _occupied = copy.occupy()?;
            return if rules.force { Ok(()) } else { check_saved(&copy, known) };
        }
        let trashed = self.discard(copy, known, rules.force)?;
        if is_for_good { self.delete(&trashed) } else { Ok(()) }
    }

    /// Empties the trash of what is past its deadline.
    fn expire(&self, rules: &PruneRules, pruned: &mut Pruned) -> Result<(), StagingError> {
        for trashed in self.trash()?.into_iter().filter(|trashed| trashed.deadline <= Timestamp::now()) {
            let directory = self.root.join(TRASH).join(trashed.record.id.as_str());
            let bytes = disk_use(&directory).unwrap_or_default();
            if !rules.dry_run {
                self.delete(&trashed)?;
            }
            pruned.freed_bytes += bytes;
            pruned.expired += 1;
        }
        Ok(())
    }

    /// Finishes or rolls back every apply that a crash interrupted. To be called at every start; harmless at any time.
    pub fn recover(&self) -> Result<Vec<Recovered>, StagingError> {
        let mut recovered = Vec::new();
        for copy in self.list()?.into_iter().flatten() {
            let outcome = match copy.recover() {
                Ok(None) => continue,
                Ok(Some(outcome)) => outcome,
                Err(error) => RecoveryOutcome::Postponed { reason: error.to_string() },
            };
            recovered.push(Recovered { name: copy.record.name.clone(), outcome });
        }
        Ok(recovered)
    }

    /// Removes directories of creations that ended before they were finished.
    fn sweep(&self) -> Result<(), StagingError> {
        for entry in std::fs::read_dir(&self.root).map_err(|error| self.failed(error))?.flatten() {
            let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
            let age = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok()
                .and_then(|at| at.elapsed().ok());
            let lock = entry.path().join("making.lock");
            // A young one without a lock is about to get it.
            let is_abandoned = match lock_holder(&lock) {
                Ok(Lock::Free) if lock.exists() => true,
                Ok(Lock::Free) => age.is_some_and(|age| age > YOUNG),
                _ => false,
            };
            if is_unfinished && is_abandoned {
                let _ = remove_tree(&entry.path());
            }
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> StagingError {
        StagingError::io("cannot use", &self.root, error)
    }
}

/// Refuses to lose what the project does not have.
fn check_saved(copy: &WorkspaceCopy, unsaved: Unsaved) -> Result<(), StagingError> {
    let refused = |what: String| Err(StagingError::Unsaved { name: copy.name().to_owned(), what });
    if unsaved.commits > 0 {
        return refused(format!("{} commits", unsaved.commits));
    }
    match copy.changes(&ChangeOptions::default()) {
        Ok(changes) if changes.is_empty() => Ok(()),
        Ok(changes) => refused(format!("{} changed paths", changes.entries.len())),
        // Without the base, everything may be unsaved.
        Err(error) => Err(error),
    }
}

fn is_older(used: Timestamp, age: Duration) -> bool {
    Timestamp::now().saturating_sub(age).is_ok_and(|limit| used < limit)
}

fn open(path: &Path) -> Result<HeldTree, StagingError> {
    HeldTree::open(path).map_err(|error| StagingError::io("cannot open", path, error))
}

fn no_space(base: &Path, error: StagingError) -> StagingError {
    if error.is_no_space() { StagingError::NoSpace { base: base.to_owned() } } else { error }
}
