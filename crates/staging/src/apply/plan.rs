//! Decides what becomes of each change, and turns the decisions into steps.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};
use sha2::{Digest, Sha256};

use super::journal::{Act, Identity, Step};
use super::slots::{Rights, Slots};
use super::{Ancestor, Applied, ApplyError, Conflict, ConflictReason};
use crate::changes::{BaseState, Change, ChangeKind, EntryKind, Sides};
use crate::error::StagingError;
use crate::held_tree::{HeldTree, Seen};
use crate::manifest::Manifest;
use crate::merge::{MAX_MERGED_BYTES, Merge, merge};

/// What becomes of one change.
enum Decision {
    Take,
    /// The base keeps what it has, with the copy's changes in it.
    Merged {
        content: Vec<u8>,
        mode: u32,
    },
    /// The base has it already, or has more.
    Nothing,
    Conflict(ConflictReason),
}

pub(super) struct Planner<'a> {
    pub(super) sides: &'a Sides,
    pub(super) start: &'a Manifest,
    pub(super) taken: &'a Manifest,
    /// What the copy had at a path when it was merged last, else what the commit at the start had.
    pub(super) ancestor: Ancestor<'a>,
    pub(super) slots: &'a Slots,
    /// The contents are those that were reviewed, or the apply is refused.
    pub(super) is_reviewed: bool,
}

/// The steps by their order.
#[derive(Default)]
struct Steps {
    /// Directories that this user may enter or change only then.
    opened: Vec<Step>,
    removals: Vec<Step>,
    directories_gone: Vec<Step>,
    directories: Vec<Step>,
    puts: Vec<Step>,
    modes: Vec<Step>,
}

pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) staged: Vec<String>,
    pub(super) applied: Applied,
}

struct Draft<'a> {
    planner: &'a Planner<'a>,
    steps: Steps,
    /// The directories that will be there, so that none is made twice.
    made: BTreeSet<PathBuf>,
    /// Paths at which a file makes way for a directory.
    make_way: BTreeSet<PathBuf>,
    staged: Vec<String>,
    next_slot: u64,
    applied: Applied,
}

impl<'a> Planner<'a> {
    /// Decides about all changes first: with a conflict, nothing is staged.
    pub(super) fn plan(&'a self, changes: &[&Change], applied: Applied) -> Result<Plan, ApplyError> {
        let mut decisions = BTreeMap::new();
        let mut conflicts = Vec::new();
        for change in changes {
            match self.decide(change)? {
                Decision::Conflict(reason) => conflicts.push(Conflict { path: change.path.clone(), reason }),
                decision => {
                    decisions.insert(&change.path, decision);
                }
            }
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        let is_way_made =
            |change: &&&Change| change.kind == ChangeKind::TypeChanged && is_directory(change.seen.after);
        let mut draft = Draft {
            planner: self,
            steps: Steps::default(),
            made: BTreeSet::new(),
            make_way: changes.iter().filter(is_way_made).map(|change| change.path.clone()).collect(),
            staged: Vec::new(),
            next_slot: 0,
            applied,
        };
        for change in changes {
            if let Some(decision) = decisions.remove(&change.path) {
                draft.add(change, decision)?;
            }
        }
        Ok(draft.finish())
    }

    fn decide(&self, change: &Change) -> Result<Decision, ApplyError> {
        let (before, after) = (change.seen.before, change.seen.after);
        if change.base == BaseState::AsAtStart {
            return Ok(Decision::Take);
        }
        let had = self.start.has(&change.path);
        Ok(match (before, after) {
            (None, Some(_)) if had => Decision::Conflict(ConflictReason::DeletedInBase),
            (None, _) => Decision::Take,
            // A directory whose mode both changed.
            (Some(before), Some(after)) if before.is_directory() && after.is_directory() => Decision::Nothing,
            (Some(before), None) if before.is_directory() => Decision::Take,
            (Some(before), Some(after)) if before.kind != after.kind => {
                Decision::Conflict(ConflictReason::TypeDiffers)
            }
            (Some(before), after) if before.kind == EntryKind::File => {
                self.merge(change, before, after, had)?
            }
            (Some(_), None) => Decision::Conflict(ConflictReason::DeletedInCopy),
            (Some(_), Some(_)) => Decision::Conflict(both(had)),
        })
    }

    /// Brings a file together that both changed, or that one changed and the copy deleted.
    fn merge(
        &self,
        change: &Change,
        before: Seen,
        after: Option<Seen>,
        had: bool,
    ) -> Result<Decision, ApplyError> {
        let path = &change.path;
        // Its content at the start is that of the base, which the copy never saw.
        let ancestor = if self.sides.is_left_out(path) { None } else { (self.ancestor)(path) };
        let Some(after) = after else {
            let is_as_before = ancestor.is_some_and(|ancestor| {
                read_same(&self.sides.base, path, before)
                    .is_ok_and(|now| now.is_some_and(|now| now == ancestor))
            });
            return Ok(if is_as_before {
                Decision::Take
            } else {
                Decision::Conflict(ConflictReason::DeletedInCopy)
            });
        };
        if change.kind == ChangeKind::ModeChanged {
            let mode = before.mode | (after.mode & 0o111);
            return Ok(if mode == before.mode { Decision::Nothing } else { Decision::Take });
        }
        let Some(ancestor) = ancestor else { return Ok(Decision::Conflict(both(had))) };
        let base = read_same(&self.sides.base, path, before).map_err(|error| failed(path, error))?;
        let copy = read_same(&self.sides.copy, path, after).map_err(|error| failed(path, error))?;
        let (Some(base), Some(copy)) = (base, copy) else { return Ok(Decision::Conflict(both(had))) };
        if self.is_reviewed && !change.first_read.is(Sha256::digest(&copy).into()) {
            return Err(ApplyError::CopyChanged { path: path.clone() });
        }
        Ok(match merge(&ancestor, &base, &copy) {
            Merge::Theirs => Decision::Take,
            Merge::Ours => Decision::Nothing,
            Merge::Both(content) if content == base => Decision::Nothing,
            // The base's permissions stay; only what the copy made executable is so.
            Merge::Both(content) => Decision::Merged { content, mode: before.mode | (after.mode & 0o111) },
            Merge::SameLines => Decision::Conflict(ConflictReason::SameLines),
            Merge::Impossible => Decision::Conflict(both(had)),
        })
    }
}

impl Draft<'_> {
    fn add(&mut self, change: &Change, decision: Decision) -> Result<(), ApplyError> {
        let path = &change.path;
        match decision {
            Decision::Nothing | Decision::Conflict(_) => {
                self.applied.equal.push(path.clone());
                return Ok(());
            }
            Decision::Take => self.take(change)?,
            Decision::Merged { content, mode } => {
                let slot = self.slot();
                let rights = Rights { mode, owner: self.owner(path, change.seen.before)? };
                let new = self.planner.slots.stage_bytes(&slot.to_string(), &content, rights);
                let new = new.map_err(|error| failed(path, error))?;
                self.put(change, slot, change.seen.before, new);
                self.applied.merged.push(path.clone());
            }
        }
        self.applied.paths.push(path.clone());
        Ok(())
    }

    fn take(&mut self, change: &Change) -> Result<(), ApplyError> {
        let (before, after) = (change.seen.before, change.seen.after);
        match (before, after) {
            (before, Some(after)) if after.is_directory() => self.take_directory(change, before, after),
            (Some(before), after) if before.is_directory() => {
                let is_required = after.is_some();
                let act = Act::RemoveDirectory { mode: before.mode, is_required };
                let step = self.step(change, act);
                self.steps.directories_gone.push(step);
                if let Some(after) = after { self.take_file(change, None, after) } else { Ok(()) }
            }
            (before, Some(after)) => self.take_file(change, before, after),
            (Some(before), None) => {
                self.remove(change, &before);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn take_directory(
        &mut self,
        change: &Change,
        before: Option<Seen>,
        after: Seen,
    ) -> Result<(), ApplyError> {
        match before {
            Some(before) if before.is_directory() => {
                let step = self.step(change, Act::ChangeMode { from: before.mode, to: after.mode });
                let is_opened = after.mode & !before.mode & 0o700 != 0;
                let modes = if is_opened { &mut self.steps.opened } else { &mut self.steps.modes };
                modes.push(step);
                Ok(())
            }
            before => {
                if let Some(before) = before {
                    self.remove(change, &before);
                }
                self.make_directories(&change.path)?;
                // Its own state is known only here.
                let state = self.planner.taken.state(Some(&after));
                let steps = self.steps.directories.iter_mut();
                if let Some(step) = steps.rev().find(|step| step.path == change.path) {
                    step.copy_state = Some(state);
                }
                Ok(())
            }
        }
    }

    /// Makes a directory and those above it that the base does not have.
    fn make_directories(&mut self, path: &Path) -> Result<(), ApplyError> {
        let planner = self.planner;
        let is_to_make = |above: &&Path| !above.as_os_str().is_empty() && !self.made.contains(*above);
        let above: Vec<&Path> = path.ancestors().take_while(is_to_make).collect();
        for directory in above.into_iter().rev() {
            let here = planner.sides.base.look(directory).map_err(|error| failed(directory, error))?;
            let conflict =
                |reason| ApplyError::Conflicts(vec![Conflict { path: directory.to_owned(), reason }]);
            match here {
                Some(seen) if seen.is_directory() => {
                    self.made.insert(directory.to_owned());
                    continue;
                }
                Some(_) if !self.make_way.contains(directory) => {
                    return Err(conflict(ConflictReason::TypeDiffers));
                }
                None if planner.start.has(directory) => return Err(conflict(ConflictReason::DeletedInBase)),
                Some(_) | None => {}
            }
            let like = planner.sides.copy.look(directory).map_err(|error| failed(directory, error))?;
            let mode = like.map_or(0o755, |seen| seen.mode);
            let entered = mode | 0o700;
            let slot = self.slot();
            let step =
                |act| Step { path: directory.to_owned(), act, slot, had_changed: false, copy_state: None };
            self.steps.directories.push(step(Act::MakeDirectory { mode: entered }));
            if entered != mode {
                self.steps.modes.push(step(Act::ChangeMode { from: entered, to: mode }));
            }
            self.made.insert(directory.to_owned());
        }
        Ok(())
    }

    fn take_file(&mut self, change: &Change, before: Option<Seen>, after: Seen) -> Result<(), ApplyError> {
        let slot = self.slot();
        let new = self.stage(change, slot, before, after)?;
        if before.is_none()
            && let Some(above) = change.path.parent().filter(|above| !above.as_os_str().is_empty())
        {
            self.make_directories(above)?;
        }
        self.put(change, slot, before, new);
        Ok(())
    }

    /// Copies what the copy has into a slot. It must be what was looked at.
    fn stage(
        &self,
        change: &Change,
        slot: u64,
        before: Option<Seen>,
        after: Seen,
    ) -> Result<Identity, ApplyError> {
        let (path, copy, slots) = (&change.path, &self.planner.sides.copy, self.planner.slots);
        let name = slot.to_string();
        let copy_changed = || ApplyError::CopyChanged { path: path.clone() };
        if after.kind == EntryKind::Link {
            let target = copy.target(path).map_err(|_| copy_changed())?;
            if change.after.as_ref().and_then(|facts| facts.target.as_ref()) != Some(&target) {
                return Err(copy_changed());
            }
            let rights = Rights { mode: 0, owner: self.owner(path, before)? };
            return slots.stage_link(&name, &target, rights).map_err(|error| failed(path, error));
        }
        let (file, now) = copy.file(path).map_err(|_| copy_changed())?;
        if now != after {
            return Err(copy_changed());
        }
        // Where the base changed the mode too, its permissions stay.
        let mode = match (change.base, before) {
            (BaseState::Changed, Some(before)) => before.mode | (after.mode & 0o111),
            _ => after.mode,
        };
        let rights = Rights { mode, owner: self.owner(path, before)? };
        let identity = slots.stage(&name, &file, after.bytes, rights).map_err(|error| failed(path, error))?;
        if Seen::of_file(&file).map_err(|error| failed(path, error))? != after {
            return Err(copy_changed());
        }
        if self.planner.is_reviewed {
            let digest = slots.digest(&name).map_err(|error| failed(path, error))?;
            if !change.first_read.is(digest) {
                return Err(copy_changed());
            }
        }
        Ok(identity)
    }

    /// Whose file a path becomes: that of the file it replaces, or of the directory that it comes into if root adds it.
    fn owner(&self, path: &Path, before: Option<Seen>) -> Result<(u32, u32), ApplyError> {
        if let Some(before) = before {
            return Ok(before.owner);
        }
        let own = (geteuid().as_raw(), getegid().as_raw());
        let above = path.ancestors().skip(1).filter(|_| geteuid().is_root());
        for directory in above {
            let seen = self.planner.sides.base.look(directory).map_err(|error| failed(directory, error))?;
            if let Some(seen) = seen.filter(Seen::is_directory) {
                return Ok(seen.owner);
            }
        }
        Ok(own)
    }

    fn put(&mut self, change: &Change, slot: u64, before: Option<Seen>, new: Identity) {
        let had_changed = change.base == BaseState::Changed;
        let old = before.as_ref().and_then(Identity::of);
        let copy_state = change.seen.after.map(|after| self.planner.taken.state(Some(&after)));
        let act = Act::Put { old, new };
        self.steps.puts.push(Step { path: change.path.clone(), act, slot, had_changed, copy_state });
        self.staged.push(slot.to_string());
    }

    fn remove(&mut self, change: &Change, before: &Seen) {
        if let Some(old) = Identity::of(before) {
            let step = self.step(change, Act::Remove { old });
            self.steps.removals.push(step);
        }
    }

    fn step(&mut self, change: &Change, act: Act) -> Step {
        let copy_state = Some(self.planner.taken.state(change.seen.after.as_ref()));
        let had_changed = change.base == BaseState::Changed;
        Step { path: change.path.clone(), act, slot: self.slot(), had_changed, copy_state }
    }

    fn slot(&mut self) -> u64 {
        self.next_slot += 1;
        self.next_slot
    }

    /// Puts the steps in an order in which each finds what it needs: what opens and makes way first, other modes
    /// last.
    fn finish(mut self) -> Plan {
        let Steps { opened, removals, directories_gone, directories, puts, modes } = &mut self.steps;
        opened.sort_by(|one, other| one.path.cmp(&other.path));
        directories_gone.sort_by(|one, other| other.path.cmp(&one.path));
        modes.sort_by(|one, other| other.path.cmp(&one.path));
        let all = [opened, removals, directories_gone, directories, puts, modes];
        let steps = all.into_iter().flat_map(std::mem::take).collect();
        Plan { steps, staged: self.staged, applied: self.applied }
    }
}

fn is_directory(seen: Option<Seen>) -> bool {
    seen.is_some_and(|seen| seen.is_directory())
}

fn both(had: bool) -> ConflictReason {
    if had { ConflictReason::BothChanged } else { ConflictReason::BothAdded }
}

/// Reads a file if it is what was looked at, before and after. `None`: it is too long, or was changed meanwhile.
fn read_same(tree: &HeldTree, path: &Path, seen: Seen) -> std::io::Result<Option<Vec<u8>>> {
    let (file, now) = tree.file(path)?;
    if now != seen || seen.bytes > MAX_MERGED_BYTES {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    (&file).take(MAX_MERGED_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((Seen::of_file(&file)? == seen).then_some(bytes))
}

fn failed(path: &Path, error: std::io::Error) -> ApplyError {
    StagingError::io("cannot take over", path, error).into()
}
