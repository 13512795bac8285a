//! Apply, undo and recovery of one copy. A transaction is decided when its journal is written, and over when the journal
//! has its last name.

use std::io;
use std::path::{Path, PathBuf};

use super::engine::{Engine, Failure, Hook, Moment, Progress, Trouble};
use super::journal::{Act, Direction, Files, Identity, Journal, SlotsPlace, Step, VERSION};
use super::plan::{Plan, Planner};
use super::slots::{self, Slots};
use super::{Ancestor, Applied, ApplyError, ApplyRequest, Conflict, ConflictReason, RecoveryOutcome, Undone};
use crate::changes::{Change, Changes, Sides};
use crate::error::StagingError;
use crate::held_tree::{HeldTree, Seen};
use crate::manifest::Manifest;
use crate::merge::MAX_MERGED_BYTES;
use crate::selection::Selection;
use crate::state_files::{read_json_if_there, sync_directory_of, write_atomically, write_json};

/// The transactions of one copy. The caller holds the lock of all applies.
pub(crate) struct Transactions<'a> {
    pub(crate) files: Files<'a>,
    pub(crate) base: &'a HeldTree,
    pub(crate) copy_id: &'a str,
    pub(crate) hook: Hook<'a>,
}

impl Transactions<'_> {
    pub(crate) fn apply(
        &self,
        changes: &Changes,
        sides: &Sides,
        request: &ApplyRequest,
        ancestor: Ancestor<'_>,
    ) -> Result<Applied, ApplyError> {
        if request.reviewed.as_ref().is_some_and(|reviewed| *reviewed != changes.fingerprint()) {
            return Err(ApplyError::NotAsReviewed);
        }
        let (selected, applied) = select(changes, request)?;
        let (start, taken) = (load(&self.files.base_manifest())?, load(&self.files.copy_manifest())?);
        self.sweep()?;
        let slots = Slots::make(&self.files, self.base, self.copy_id).map_err(|error| self.failed(error))?;
        (self.hook)(Moment::SlotsMade);
        let ancestor = |path: &Path| self.kept_ancestor(&taken, path).or_else(|| ancestor(path));
        let (start, taken, is_reviewed) = (&start, &taken, request.reviewed.is_some());
        let planner = Planner { sides, start, taken, ancestor: &ancestor, slots: &slots, is_reviewed };
        let plan = planner.plan(&selected, applied);
        let Plan { steps, staged, mut applied } = match plan {
            Ok(plan) if !plan.steps.is_empty() && !request.dry_run => plan,
            outcome => {
                self.sweep()?;
                return outcome.map(|plan| plan.applied).map_err(|error| match error {
                    ApplyError::Staging(error) => self.or_no_space(error),
                    error => error,
                });
            }
        };
        let journal =
            Journal { version: VERSION, direction: Direction::Apply, slots: slots.place.clone(), steps };
        let prepared = self.keep_ancestors(sides, taken, &journal.steps).and_then(|()| {
            slots.sync(self.base, &staged).map_err(|error| self.failed(error))?;
            (self.hook)(Moment::Staged);
            self.begin(&journal)
        });
        if let Err(error) = prepared {
            // The disk may be full, and what was staged be what fills it.
            let _ = self.sweep();
            return Err(error);
        }
        self.carry_out(&journal, &slots)?;
        applied.directories_kept = self.directories_kept(&journal);
        Ok(applied)
    }

    /// Writes the journal. From here on a crash does not keep the transaction from its end.
    fn begin(&self, journal: &Journal) -> Result<(), ApplyError> {
        let (files, slots) = (&self.files, &journal.slots);
        let copy = |from: &Path, to: &Path| write_atomically(to, &std::fs::read(from)?);
        let written = match journal.direction {
            Direction::Apply => copy(&files.base_manifest(), &files.base_manifest_before(slots))
                .and_then(|()| copy(&files.copy_manifest(), &files.copy_manifest_before(slots))),
            Direction::Undo => Ok(()),
        };
        if let Err(error) = written.and_then(|()| write_json(&files.journal(), journal)) {
            // What is said to have failed must not be finished later.
            remove_if_there(&files.journal()).map_err(|error| self.failed(error))?;
            return Err(self.failed(error));
        }
        (self.hook)(Moment::JournalWritten);
        Ok(())
    }

    /// Performs a journal for the first time.
    fn carry_out(&self, journal: &Journal, slots: &Slots) -> Result<(), ApplyError> {
        let engine = self.engine(journal, slots);
        let outcome = engine.run(journal.direction, true).and_then(|()| engine.verify(journal.direction));
        match outcome {
            Ok(()) => {
                (self.hook)(Moment::Verified);
                match (self.note_done(journal, &engine), journal.direction) {
                    (Ok(()), _) => self.commit(journal),
                    // What is said to have failed must not be finished by the next recovery.
                    (Err(error), Direction::Apply) => {
                        let failure =
                            Failure { path: self.base.path().to_owned(), trouble: Trouble::Io(error) };
                        self.give_up(journal, &engine, failure)
                    }
                    (Err(error), Direction::Undo) => Err(self.failed(error)),
                }
            }
            Err(failure) => self.give_up(journal, &engine, failure),
        }
    }

    /// Takes everything back, and says why.
    fn give_up(&self, journal: &Journal, engine: &Engine<'_>, failure: Failure) -> Result<(), ApplyError> {
        let lost = self.roll_back(journal, engine)?;
        let Failure { path, trouble } = failure;
        if let Some((conflicts, kept)) = lost {
            return Err(ApplyError::NotRestored { conflicts, kept });
        }
        Err(match trouble {
            Trouble::Conflict(reason) => ApplyError::Conflicts(vec![Conflict { path, reason }]),
            Trouble::Io(error) => self.or_no_space(StagingError::io("cannot take over", &path, error)),
        })
    }

    /// Takes back what a journal did, and ends it. What cannot be restored keeps its original, and is returned with where
    /// that is.
    fn roll_back(
        &self,
        journal: &Journal,
        engine: &Engine<'_>,
    ) -> Result<Option<(Vec<Conflict>, PathBuf)>, ApplyError> {
        let mut conflicts = engine.take_back(journal.direction);
        conflicts.retain(|conflict| self.is_lost(engine, conflict));
        self.end_rolled_back(journal, engine, conflicts.is_empty()).map_err(|error| self.failed(error))?;
        let kept = if conflicts.is_empty() {
            None
        } else {
            let kept = slots::keep(&self.files, self.base, &journal.slots);
            Some((conflicts, kept.map_err(|error| self.failed(error))?))
        };
        let removed = std::fs::remove_file(self.files.journal());
        let removed = removed.and_then(|()| sync_directory_of(&self.files.journal()));
        removed.map_err(|error| self.failed(error))?;
        self.sweep()?;
        Ok(kept)
    }

    /// Notes that a journal is taken back.
    fn end_rolled_back(&self, journal: &Journal, engine: &Engine<'_>, is_restored: bool) -> io::Result<()> {
        engine.sync()?;
        if is_restored && journal.direction == Direction::Apply {
            // Makes room on a full disk, and keeps a recovery from finishing what has failed.
            engine.slots.clear(journal.steps.iter().map(Step::slot_name))?;
        }
        self.write_manifests(journal, journal.direction.reverse())?;
        self.announce(&journal.slots)?;
        match journal.direction {
            // The apply that was to be undone can still be undone.
            Direction::Undo if is_restored => {
                write_json(&self.files.last(), &Journal { direction: Direction::Apply, ..journal.clone() })
            }
            Direction::Undo => remove_if_there(&self.files.last()),
            Direction::Apply => Ok(()),
        }
    }

    /// Whether the original of a path is not at its place.
    fn is_lost(&self, engine: &Engine<'_>, conflict: &Conflict) -> bool {
        let mut steps = engine.steps.iter().filter(|step| step.path == conflict.path);
        steps.any(|step| {
            let in_slot = engine.slots.look(&step.slot_name()).ok().flatten();
            let in_slot = in_slot.as_ref().and_then(Identity::of);
            let here = self.base.look(&step.path).ok().flatten();
            let here = here.as_ref().and_then(Identity::of);
            match step.act {
                // Without slots, that another has removed, the original is gone.
                Act::Put { old, .. } if in_slot.is_none() => old.is_some() && here != old,
                Act::Put { new, .. } => in_slot != Some(new),
                Act::Remove { .. } => in_slot.is_some(),
                _ => false,
            }
        })
    }

    /// Notes that all steps of a transaction are done.
    fn note_done(&self, journal: &Journal, engine: &Engine<'_>) -> io::Result<()> {
        engine.sync()?;
        self.write_manifests(journal, journal.direction)?;
        (self.hook)(Moment::ManifestsWritten);
        self.announce_removal(journal)
    }

    /// Ends a transaction for which everything is noted.
    fn commit(&self, journal: &Journal) -> Result<(), ApplyError> {
        let end = || -> io::Result<()> {
            match journal.direction {
                Direction::Apply => std::fs::rename(self.files.journal(), self.files.last())?,
                Direction::Undo => {
                    remove_if_there(&self.files.last())?;
                    // In this order, whatever the disk writes first: what was undone cannot be undone again.
                    sync_directory_of(&self.files.last())?;
                    std::fs::remove_file(self.files.journal())?;
                }
            }
            sync_directory_of(&self.files.last())?;
            (self.hook)(Moment::Committed);
            Ok(())
        };
        end().map_err(|error| self.failed(error))?;
        self.sweep()
    }

    /// Names the slots that nothing needs once a transaction is over: if this process is killed before it removes them,
    /// the next one does.
    fn announce_removal(&self, journal: &Journal) -> io::Result<()> {
        let needless = match journal.direction {
            Direction::Apply => read_json_if_there::<Journal>(&self.files.last())?.map(|last| last.slots),
            Direction::Undo => Some(journal.slots.clone()),
        };
        needless.map_or(Ok(()), |slots| self.announce(&slots))
    }

    fn announce(&self, slots: &SlotsPlace) -> io::Result<()> {
        write_json(&self.files.intent(), slots)
    }

    /// Notes the new state of the paths of a journal, as far as they are as it left them.
    fn write_manifests(&self, journal: &Journal, direction: Direction) -> io::Result<()> {
        let mut base = Manifest::load(&self.files.base_manifest_before(&journal.slots))?;
        let mut copy = Manifest::load(&self.files.copy_manifest_before(&journal.slots))?;
        for step in &journal.steps {
            let now = self.base.look(&step.path)?;
            let stays_changed =
                step.had_changed && (direction == Direction::Undo || matches!(step.act, Act::Put { .. }));
            if !stays_changed && is_as_left(step, direction, now.as_ref()) {
                base.set(&step.path, now.as_ref());
            }
            if let (Direction::Apply, Some(state)) = (direction, step.copy_state) {
                copy.set_state(&step.path, state);
            }
        }
        base.save(&self.files.base_manifest())?;
        copy.save(&self.files.copy_manifest())
    }

    pub(crate) fn undo(&self) -> Result<Undone, ApplyError> {
        let last: Option<Journal> =
            read_json_if_there(&self.files.last()).map_err(|error| self.failed(error))?;
        let Some(last) = last else { return Err(ApplyError::NothingToUndo) };
        let slots = match Slots::open(&self.files, self.base, last.slots.clone()) {
            // Another has removed the originals: `git clean` does, where they lie in the project.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ApplyError::NothingToUndo),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        let journal = Journal { direction: Direction::Undo, ..last };
        let foreign = self.engine(&journal, &slots).foreign().map_err(|error| self.failed(error))?;
        let engine = self.engine(&journal, &slots);
        let is_gone = |step: &&Step| {
            matches!(step.act, Act::Put { .. } | Act::Remove { .. })
                && engine.progress(step).is_ok_and(|progress| progress == Progress::NotDone)
        };
        let moved_on = journal.steps.iter().filter(is_gone);
        let moved_on = moved_on
            .map(|step| Conflict { path: step.path.clone(), reason: ConflictReason::ChangedMeanwhile });
        let conflicts: Vec<Conflict> = foreign.into_iter().chain(moved_on).collect();
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        self.begin(&journal)?;
        self.carry_out(&journal, &slots)?;
        let mut paths: Vec<_> = journal.steps.into_iter().map(|step| step.path).collect();
        paths.sort_unstable();
        paths.dedup();
        Ok(Undone { paths })
    }

    /// Ends what a crash interrupted.
    pub(crate) fn recover(&self) -> Result<Option<RecoveryOutcome>, ApplyError> {
        let journal: Option<Journal> =
            read_json_if_there(&self.files.journal()).map_err(|error| self.failed(error))?;
        let Some(journal) = journal else {
            self.sweep()?;
            return Ok(None);
        };
        let slots = Slots::open_or_make(&self.files, self.base, journal.slots.clone());
        let slots = slots.map_err(|error| self.failed(error))?;
        let engine = self.engine(&journal, &slots);
        let has_moved_on = !engine.foreign().map_err(|error| self.failed(error))?.is_empty();
        let is_finished = !has_moved_on
            && engine.run(journal.direction, false).is_ok()
            && engine.verify(journal.direction).is_ok();
        if is_finished {
            self.note_done(&journal, &engine).map_err(|error| self.failed(error))?;
            self.commit(&journal)?;
            return Ok(Some(RecoveryOutcome::Finished));
        }
        let lost = self.roll_back(&journal, &engine)?;
        Ok(Some(lost.map_or(RecoveryOutcome::RolledBack, |(conflicts, kept)| RecoveryOutcome::NotRestored {
            conflicts,
            kept,
        })))
    }

    /// Gives up the undo of the last apply, with what is kept for it.
    pub(crate) fn forget(&self) -> Result<(), ApplyError> {
        remove_if_there(&self.files.last()).map_err(|error| self.failed(error))?;
        self.sweep()
    }

    fn engine<'b>(&'b self, journal: &'b Journal, slots: &'b Slots) -> Engine<'b> {
        Engine { base: self.base, slots, steps: &journal.steps, hook: self.hook }
    }

    /// Removes slots that neither the journal nor the last apply names.
    fn sweep(&self) -> Result<(), ApplyError> {
        let named =
            |path: &Path| read_json_if_there::<Journal>(path).map(|journal| journal.map(|found| found.slots));
        let swept = named(&self.files.journal()).and_then(|journal| {
            let used: Vec<_> = journal.into_iter().chain(named(&self.files.last())?).collect();
            self.sweep_base(&used)?;
            slots::sweep(&self.files, Some(self.base), &used)
        });
        swept.map_err(|error| self.failed(error))
    }

    /// Removes slots of this copy in the base.
    fn sweep_base(&self, used: &[SlotsPlace]) -> io::Result<()> {
        let own = format!("{}{}-", slots::IN_BASE, self.copy_id);
        for (name, _) in self.base.entries(Path::new(""))? {
            let Some(name) = name.to_str().filter(|name| name.starts_with(&own)) else { continue };
            let place = SlotsPlace::InBase(name.to_owned());
            if !used.contains(&place) {
                slots::remove(&self.files, Some(self.base), &place)?;
            }
        }
        Ok(())
    }

    fn directories_kept(&self, journal: &Journal) -> Vec<PathBuf> {
        let removed = journal.steps.iter().filter(|step| matches!(step.act, Act::RemoveDirectory { .. }));
        let stays =
            |step: &&Step| matches!(self.base.look(&step.path), Ok(Some(seen)) if seen.is_directory());
        removed.filter(stays).map(|step| step.path.clone()).collect()
    }

    /// What the copy had when the path was merged, if that is what was noted last.
    fn kept_ancestor(&self, taken: &Manifest, path: &Path) -> Option<Vec<u8>> {
        let file = self.files.ancestor(taken.hash(path), taken.noted(path)?);
        std::fs::read(file).ok()
    }

    /// Keeps what the copy has of the merged files: the next merge begins there.
    fn keep_ancestors(&self, sides: &Sides, taken: &Manifest, steps: &[Step]) -> Result<(), ApplyError> {
        for step in steps.iter().filter(|step| step.had_changed) {
            let (Act::Put { new, .. }, Some(state)) = (step.act, step.copy_state) else { continue };
            if new.is_link || new.bytes > MAX_MERGED_BYTES {
                continue;
            }
            let keep = || -> io::Result<()> {
                let content = sides.copy.read(&step.path, MAX_MERGED_BYTES)?;
                let file = self.files.ancestor(taken.hash(&step.path), state);
                std::fs::create_dir_all(file.parent().unwrap_or(self.files.copy))?;
                write_atomically(&file, &content)
            };
            keep().map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> ApplyError {
        self.or_no_space(StagingError::io("cannot take changes over into", self.base.path(), error))
    }

    fn or_no_space(&self, error: StagingError) -> ApplyError {
        if error.is_no_space() {
            return StagingError::NoSpace { base: self.base.path().to_owned() }.into();
        }
        error.into()
    }
}

fn load(file: &Path) -> Result<Manifest, ApplyError> {
    Ok(Manifest::load(file).map_err(|error| StagingError::io("cannot read", file, error))?)
}

/// Whether a path is as a step leaves it in a direction.
fn is_as_left(step: &Step, direction: Direction, now: Option<&Seen>) -> bool {
    let identity = now.and_then(Identity::of);
    match (step.act, direction) {
        (Act::Put { new, .. }, Direction::Apply) => identity == Some(new),
        (Act::Put { old, .. }, Direction::Undo) => identity == old && (old.is_some() || now.is_none()),
        (Act::Remove { .. }, Direction::Apply) => now.is_none(),
        (Act::Remove { old }, Direction::Undo) => identity == Some(old),
        _ => now.is_none_or(Seen::is_directory),
    }
}

/// What of the changes is to be taken over, and what is left out.
fn select<'c>(
    changes: &'c Changes,
    request: &ApplyRequest,
) -> Result<(Vec<&'c Change>, Applied), ApplyError> {
    let selection = Selection::new(&request.only)?;
    let mut applied = Applied { left_aside: changes.left_aside.clone(), ..Applied::default() };
    let mut selected = Vec::new();
    for change in changes.entries.iter().filter(|change| selection.has(&change.path)) {
        if change.executed_later && !request.include_executables {
            applied.executables_left_out.push(change.path.clone());
        } else {
            selected.push(change);
        }
    }
    match selection.unused() {
        Some(pattern) => Err(ApplyError::NothingMatches { pattern: pattern.to_owned() }),
        None => Ok((selected, applied)),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
