//! One copy of a project.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fence::{GitDirectory, VettedDirectory, executed_in};
use parking_lot::Mutex;
use serde::Serialize;

use crate::apply::{
    Ancestor, Applied, ApplyError, ApplyRequest, Files, Hook, RecoveryOutcome, Transactions, Undone,
};
use crate::changes::{BaseState, ChangeOptions, Changes, Finder, Sides};
use crate::error::StagingError;
use crate::held_tree::HeldTree;
use crate::history::{Event, History, HistoryLine};
use crate::manifest::Manifest;
use crate::path_text;
use crate::record::{Record, Tree};
use crate::state_files::{Lock, lock, lock_holder, read_json, try_lock, write_json};
use crate::tracked::Tracked;
use crate::walk::{Extent, walk};

/// Attempts to read a copy that its agent is changing.
const MAX_ATTEMPTS: usize = 3;
/// The paths of a base's drift that are named.
const MAX_DRIFT: usize = 10_000;
const BLOCK_BYTES: u64 = 512;

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

/// What changed in the base since the start, or since the last apply.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BaseDrift {
    /// New or changed, sorted.
    #[serde(with = "path_text::list")]
    pub changed: Vec<PathBuf>,
    /// Deleted, among the paths that were asked about.
    #[serde(with = "path_text::list")]
    pub deleted: Vec<PathBuf>,
    /// How many entries of the base are gone in all.
    pub entries_gone: usize,
    /// More changed than are named.
    pub is_cut: bool,
}

/// What would be lost with a copy, beside its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsaved {
    /// Commits that the project does not have, as the caller knows.
    pub commits: usize,
}

impl WorkspaceCopy {
    /// Reads the record in a copy's directory.
    pub(crate) fn read(directory: PathBuf) -> Result<Self, StagingError> {
        let file = directory.join("record.json");
        let damaged = |reason: String| StagingError::DamagedRecord { path: directory.clone(), reason };
        let record: Record = read_json(&file).map_err(|error| damaged(error.to_string()))?;
        if record.version != crate::record::VERSION {
            return Err(damaged(format!("its version is {}", record.version)));
        }
        Ok(Self { directory, record })
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    pub fn name(&self) -> &str {
        self.record.name.as_str()
    }

    /// The copy's own directory. No fence may show it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a fence mounts: the first is the project, others are git directories outside it.
    pub fn trees(&self) -> &[Tree] {
        &self.record.trees
    }

    /// Changes what callers may change in the record, and writes it.
    pub fn update(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), StagingError> {
        let file = self.directory.join("record.json");
        let failed = |error| StagingError::io("cannot write", &file, error);
        let _lock = lock(&self.directory.join("record.lock")).map_err(failed)?;
        // Another process may have changed it since it was read.
        let mut record = Self::read(self.directory.clone())?.record;
        change(&mut record);
        write_json(&file, &record).map_err(failed)?;
        self.record = record;
        Ok(())
    }

    /// Takes the copy for this process, or says which process has it.
    pub fn occupy(&self) -> Result<Occupied, StagingError> {
        let file = self.lock_file();
        match try_lock(&file).map_err(|error| StagingError::io("cannot lock", &file, error))? {
            Ok(lock) => Ok(Occupied { lock }),
            Err(pid) => Err(StagingError::InUse { name: self.name().to_owned(), pid }),
        }
    }

    /// The process that uses the copy, if one does. `Some(None)`: one does, and it is not known which.
    pub fn user(&self) -> Option<Option<u32>> {
        match lock_holder(&self.lock_file()) {
            Ok(Lock::Held(process)) => Some(process),
            Ok(Lock::Free) | Err(_) => None,
        }
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join("use.lock")
    }

    /// What is different from the base. Works while the copy is in use.
    pub fn changes(&self, options: &ChangeOptions) -> Result<Changes, StagingError> {
        self.changes_of(&self.sides()?, options)
    }

    fn changes_of(&self, sides: &Arc<Sides>, options: &ChangeOptions) -> Result<Changes, StagingError> {
        let files = self.files();
        let (start, taken) = (load(&files.base_manifest())?, load(&files.copy_manifest())?);
        let tracked = || self.tracked(&sides.base);
        let mut options = options.clone();
        options.executed.extend(self.executed());
        let mut finder = Finder::new(sides, (&start, &taken), &options, &tracked);
        match self.record.trees.first() {
            Some(Tree::Overlay { .. }) => finder.look_at_upper()?,
            _ => finder.look_at_files()?,
        }
        Ok(finder.finish())
    }

    /// What the base's own settings make programs outside execute or obey.
    fn executed(&self) -> Vec<PathBuf> {
        let Ok(base) = VettedDirectory::own(self.record.base.path()) else { return Vec::new() };
        let beside = self.record.repositories.iter().filter_map(|repository| {
            let directory = VettedDirectory::own(&repository.git_directory).ok()?;
            Some(GitDirectory { directory, worktree: Some(repository.worktree.clone()), around: None })
        });
        executed_in(&base, &beside.collect::<Vec<_>>()).into_iter().collect()
    }

    /// The names of what git tracks in the base.
    fn tracked(&self, base: &HeldTree) -> Tracked {
        let mut tracked = Tracked::default();
        tracked.add_repository(base, Path::new(""));
        for repository in &self.record.repositories {
            // What cannot be read tracks nothing.
            let _ = tracked.add_outside(&repository.git_directory, &repository.worktree, base.path());
        }
        tracked
    }

    fn sides(&self) -> Result<Arc<Sides>, StagingError> {
        let base = self.open_base()?;
        let copy = match self.record.trees.first() {
            Some(Tree::Overlay { upper, .. }) => upper,
            Some(Tree::Files { files, .. }) => files,
            None => &self.directory,
        };
        let copy = HeldTree::open(copy).map_err(|error| StagingError::io("cannot open", copy, error))?;
        Ok(Arc::new(Sides { base, copy, left_out: self.record.left_out.clone() }))
    }

    /// Opens the base, if it is still the directory that was copied.
    fn open_base(&self) -> Result<HeldTree, StagingError> {
        let path = self.record.base.path();
        let replaced = || StagingError::BaseReplaced { base: path.to_owned() };
        let base = HeldTree::open(path).map_err(|_| replaced())?;
        let vetted = VettedDirectory::own(path).map_err(|_| replaced())?;
        let (held, named) = (base.seen_top(), HeldTree::open(path).and_then(|named| named.seen_top()));
        let is_same = match (held, named) {
            (Ok(held), Ok(named)) => (held.device, held.inode) == (named.device, named.inode),
            _ => false,
        };
        if is_same && self.record.base.is_of(&vetted) { Ok(base) } else { Err(replaced()) }
    }

    /// What changed in the base since the start, and which of `paths` it deleted. Walks the base.
    pub fn base_drift(&self, paths: &[PathBuf]) -> Result<BaseDrift, StagingError> {
        let base = self.open_base()?;
        let start = load(&self.files().base_manifest())?;
        let found = Mutex::new((Vec::new(), 0, false));
        let walked = walk(&base, Extent::WithoutGit, &|visit| {
            for (name, seen) in visit.entries {
                let path = visit.path.join(name);
                let is_changed = start.compare(&path, Some(seen)) == BaseState::Changed;
                let mut found = found.lock();
                found.1 += usize::from(start.has(&path));
                if is_changed {
                    found.2 |= found.0.len() >= MAX_DRIFT;
                    if found.0.len() < MAX_DRIFT {
                        found.0.push(path);
                    }
                }
            }
            Ok(())
        });
        walked.map_err(|error| StagingError::io("cannot walk", base.path(), error))?;
        let (mut changed, still_there, is_cut) = found.into_inner();
        changed.sort_unstable();
        let is_deleted = |path: &&PathBuf| start.has(path) && matches!(base.look(path), Ok(None));
        let deleted = paths.iter().filter(is_deleted).cloned().collect();
        Ok(BaseDrift { changed, deleted, entries_gone: start.len().saturating_sub(still_there), is_cut })
    }

    /// Takes changes over into the base, all or nothing. Works while the copy is in use; what the agent writes meanwhile
    /// is a change of the next apply.
    pub fn apply(&self, request: &ApplyRequest, ancestor: Ancestor<'_>) -> Result<Applied, ApplyError> {
        self.apply_with(request, ancestor, &|_| ())
    }

    pub(crate) fn apply_with(
        &self,
        request: &ApplyRequest,
        ancestor: Ancestor<'_>,
        hook: Hook<'_>,
    ) -> Result<Applied, ApplyError> {
        let _lock = self.lock_applies()?;
        self.recover_locked(hook)?;
        let options =
            ChangeOptions { include_ignored: request.include_ignored, executed: request.executed.clone() };
        for attempt in 1.. {
            let sides = self.sides()?;
            let changes = self.changes_of(&sides, &options)?;
            match self.transactions(&sides.base, hook).apply(&changes, &sides, request, ancestor) {
                Err(ApplyError::CopyChanged { .. })
                    if attempt < MAX_ATTEMPTS && request.reviewed.is_none() => {}
                Ok(applied) if applied.paths.is_empty() || request.dry_run => return Ok(applied),
                outcome => {
                    if let Ok(applied) = &outcome {
                        self.note(Event::Applied { paths: applied.paths.len() })?;
                    }
                    return outcome;
                }
            }
        }
        Ok(Applied::default())
    }

    /// Gives the base back what the last apply replaced. Refused if the files were changed since.
    pub fn undo(&self) -> Result<Undone, ApplyError> {
        self.undo_with(&|_| ())
    }

    pub(crate) fn undo_with(&self, hook: Hook<'_>) -> Result<Undone, ApplyError> {
        let _lock = self.lock_applies()?;
        self.recover_locked(hook)?;
        let undone = self.transactions(&self.open_base()?, hook).undo()?;
        self.note(Event::Undone { paths: undone.paths.len() })?;
        Ok(undone)
    }

    /// Whether there is an apply that can be undone.
    pub fn can_undo(&self) -> bool {
        self.files().has_last()
    }

    /// Ends an apply that a crash interrupted.
    pub(crate) fn recover(&self) -> Result<Option<RecoveryOutcome>, ApplyError> {
        self.recover_with(&|_| ())
    }

    pub(crate) fn recover_with(&self, hook: Hook<'_>) -> Result<Option<RecoveryOutcome>, ApplyError> {
        let _lock = self.lock_applies()?;
        self.recover_locked(hook)
    }

    fn recover_locked(&self, hook: Hook<'_>) -> Result<Option<RecoveryOutcome>, ApplyError> {
        // Most copies have nothing to recover, and a base that is gone must not keep others from being looked at.
        if !self.files().has_unfinished() {
            return Ok(None);
        }
        let outcome = self.transactions(&self.open_base()?, hook).recover()?;
        if let Some(outcome) = &outcome {
            self.note(Event::Recovered { outcome: format!("{outcome:?}") })?;
        }
        Ok(outcome)
    }

    fn transactions<'a>(&'a self, base: &'a HeldTree, hook: Hook<'a>) -> Transactions<'a> {
        Transactions { files: self.files(), base, copy_id: self.record.id.as_str(), hook }
    }

    pub(crate) fn files(&self) -> Files<'_> {
        Files { copy: &self.directory }
    }

    /// One apply at a time, whichever copy it is of: two could be of the same base.
    fn lock_applies(&self) -> Result<File, StagingError> {
        let root = self.directory.parent().unwrap_or(&self.directory);
        lock(&root.join("apply.lock")).map_err(|error| StagingError::io("cannot lock", root, error))
    }

    /// Removes what the copy keeps in the base for an undo.
    pub(crate) fn forget_undo(&self) -> Result<(), ApplyError> {
        let _lock = self.lock_applies()?;
        if self.files().has_last() || self.files().has_unfinished() {
            self.recover_locked(&|_| ())?;
            if let Ok(base) = self.open_base() {
                return self.transactions(&base, &|_| ()).forget();
            }
        }
        Ok(())
    }

    /// Bytes on disk.
    pub fn disk_use(&self) -> Result<u64, StagingError> {
        disk_use(&self.directory).map_err(|error| StagingError::io("cannot walk", &self.directory, error))
    }

    pub fn history(&self) -> Result<Vec<HistoryLine>, StagingError> {
        let history = History { directory: &self.directory };
        history
            .lines()
            .map_err(|error| StagingError::io("cannot read the history in", &self.directory, error))
    }

    pub fn note(&self, event: Event) -> Result<(), StagingError> {
        let history = History { directory: &self.directory };
        history
            .add(event)
            .map_err(|error| StagingError::io("cannot write the history in", &self.directory, error))
    }
}

pub(crate) fn load(file: &Path) -> Result<Manifest, StagingError> {
    Manifest::load(file).map_err(|error| StagingError::io("cannot read", file, error))
}

/// The blocks of everything in a directory.
pub(crate) fn disk_use(directory: &Path) -> io::Result<u64> {
    let tree = HeldTree::open(directory)?;
    let bytes = Mutex::new(0);
    walk(&tree, Extent::Everything, &|visit| {
        let blocks = |name: &std::ffi::OsString| {
            let stat = rustix::fs::statat(visit.directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            stat.map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or_default() * BLOCK_BYTES)
        };
        let in_directory: u64 = visit.entries.iter().map(|(name, _)| blocks(name)).sum();
        *bytes.lock() += in_directory;
        Ok(())
    })?;
    Ok(bytes.into_inner())
}
