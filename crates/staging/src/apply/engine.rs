//! Performs the steps of a journal, in either direction, each by one atomic operation, and tells which ones are done.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, chmod, chownat, fstat, mkdirat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::journal::{Act, Direction, Identity, Step};
use super::slots::{Slots, sync_directories};
use super::{Conflict, ConflictReason};
use crate::held_tree::{HeldTree, PERMISSIONS, Seen};

/// The mode of a directory until it gets its own.
const NEW_DIRECTORY: u32 = 0o700;

/// A moment of an apply, for tests that kill the process there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    SlotsMade,
    Staged,
    JournalWritten,
    BeforeStep(usize),
    /// Within a step that needs a second look, after its operation.
    InStep(usize),
    AfterStep(usize),
    Verified,
    ManifestsWritten,
    Committed,
}

pub(crate) type Hook<'a> = &'a dyn Fn(Moment);

/// How a path is, as a step sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    NotDone,
    Done,
    /// Neither as before nor as after: changed by another.
    Foreign,
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum Trouble {
    Conflict(ConflictReason),
    Io(io::Error),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::XDEV => Self::Conflict(ConflictReason::OtherFileSystem),
            Errno::EXIST | Errno::NOENT | Errno::NOTEMPTY | Errno::LOOP | Errno::NOTDIR | Errno::ISDIR => {
                Self::Conflict(ConflictReason::ChangedMeanwhile)
            }
            errno => Self::Io(errno.into()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(raw) => Errno::from_raw_os_error(raw).into(),
            None => Self::Io(error),
        }
    }
}

pub(super) struct Engine<'a> {
    pub(super) base: &'a HeldTree,
    pub(super) slots: &'a Slots,
    pub(super) steps: &'a [Step],
    pub(super) hook: Hook<'a>,
}

/// What keeps a run of steps from its end.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) path: std::path::PathBuf,
    pub(super) trouble: Trouble,
}

impl Engine<'_> {
    /// The steps in the order of a direction.
    fn ordered(&self, direction: Direction) -> Box<dyn Iterator<Item = (usize, &Step)> + '_> {
        match direction {
            Direction::Apply => Box::new(self.steps.iter().enumerate()),
            Direction::Undo => Box::new(self.steps.iter().enumerate().rev()),
        }
    }

    /// Performs what is not done yet. The first failure ends it.
    pub(super) fn run(&self, direction: Direction, is_first: bool) -> Result<(), Failure> {
        for (number, step) in self.ordered(direction) {
            (self.hook)(Moment::BeforeStep(number));
            let outcome = self.perform(step, direction, is_first, &|| (self.hook)(Moment::InStep(number)));
            outcome.map_err(|trouble| Failure { path: step.path.clone(), trouble })?;
            (self.hook)(Moment::AfterStep(number));
        }
        Ok(())
    }

    /// Takes back what was done in the other direction. What another has changed since stays, and is returned.
    pub(super) fn take_back(&self, direction: Direction) -> Vec<Conflict> {
        let back = direction.reverse();
        let perform = |step: &Step| self.perform(step, back, false, &|| ()).err();
        let failed = self.ordered(back).filter_map(|(_, step)| Some((step, perform(step)?)));
        failed
            .map(|(step, trouble)| Conflict {
                path: step.path.clone(),
                reason: match trouble {
                    Trouble::Conflict(reason) => reason,
                    Trouble::Io(_) => ConflictReason::ChangedMeanwhile,
                },
            })
            .collect()
    }

    /// The paths that are neither as before nor as after.
    pub(super) fn foreign(&self) -> io::Result<Vec<Conflict>> {
        let mut foreign = Vec::new();
        for step in self.steps {
            if self.progress(step)? == Progress::Foreign {
                let reason = ConflictReason::ChangedMeanwhile;
                foreign.push(Conflict { path: step.path.clone(), reason });
            }
        }
        Ok(foreign)
    }

    /// Looks at everything again, by its path, after a run.
    pub(super) fn verify(&self, direction: Direction) -> Result<(), Failure> {
        for step in self.steps {
            let failed = |trouble| Failure { path: step.path.clone(), trouble };
            let progress = self.progress(step).map_err(|error| failed(error.into()))?;
            let is_right = match direction {
                Direction::Apply => progress == Progress::Done,
                Direction::Undo => progress == Progress::NotDone,
            };
            let may_stay = match (step.act, direction) {
                (Act::RemoveDirectory { is_required, .. }, Direction::Apply) => !is_required,
                (Act::MakeDirectory { .. }, Direction::Undo) => true,
                _ => false,
            };
            if !is_right && !may_stay {
                return Err(failed(Trouble::Conflict(ConflictReason::ChangedMeanwhile)));
            }
        }
        Ok(())
    }

    /// Makes the new names durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        let above = |step: &Step| step.path.parent().map(Path::to_owned);
        let directories: BTreeSet<_> = self.steps.iter().filter_map(above).collect();
        let directories: Vec<&Path> = directories.iter().map(std::path::PathBuf::as_path).collect();
        sync_directories(self.base, &directories)?;
        Ok(rustix::fs::fsync(&self.slots.directory)?)
    }

    pub(super) fn progress(&self, step: &Step) -> io::Result<Progress> {
        let here = self.base.look(&step.path)?;
        Ok(match step.act {
            Act::Put { old, new } => {
                let slot = self.in_slot(step)?;
                match (identity(here.as_ref()), slot) {
                    // A step before removes that directory, or this one fails.
                    (None, Some(slot)) if old.is_none() && slot == new => Progress::NotDone,
                    _ if is_other(here.as_ref()) => Progress::Foreign,
                    (here, slot) if here == old && slot == Some(new) => Progress::NotDone,
                    (here, slot) if here == Some(new) && slot == old => Progress::Done,
                    _ => Progress::Foreign,
                }
            }
            Act::Remove { old } => match (identity(here.as_ref()), self.in_slot(step)?) {
                _ if is_other(here.as_ref()) => {
                    // A directory of the copy may have taken the place already.
                    if self.in_slot(step)? == Some(old) { Progress::Done } else { Progress::Foreign }
                }
                (here, None) if here == Some(old) => Progress::NotDone,
                (None, Some(slot)) if slot == old => Progress::Done,
                _ => Progress::Foreign,
            },
            Act::MakeDirectory { .. } => match here {
                None => Progress::NotDone,
                Some(seen) if seen.is_directory() => Progress::Done,
                // What is to be removed before.
                Some(_) => self.replaced(step),
            },
            Act::RemoveDirectory { .. } => match here {
                None => Progress::Done,
                Some(seen) if seen.is_directory() => Progress::NotDone,
                Some(_) => self.replaced(step),
            },
            Act::ChangeMode { from, to } => match here {
                Some(seen) if seen.is_directory() && seen.mode == to => Progress::Done,
                Some(seen) if seen.is_directory() && seen.mode == from => Progress::NotDone,
                // Made by a step before, perhaps at the place of a file.
                None => Progress::NotDone,
                Some(seen) if !seen.is_directory() => self.replaced(step),
                Some(_) => Progress::Foreign,
            },
        })
    }

    /// A directory step sees a file: it is as expected if another step of this journal puts or removes that file.
    fn replaced(&self, step: &Step) -> Progress {
        let others = self.steps.iter().filter(|other| other.path == step.path);
        for other in others {
            match (other.act, self.progress_of_file(other)) {
                // A file is still where the directory will be.
                (Act::Remove { .. }, Some(Progress::NotDone)) => return Progress::NotDone,
                // A file is already where the directory was.
                (Act::Put { old: None, .. }, Some(Progress::Done)) => return Progress::Done,
                _ => {}
            }
        }
        Progress::Foreign
    }

    fn progress_of_file(&self, step: &Step) -> Option<Progress> {
        matches!(step.act, Act::Put { .. } | Act::Remove { .. }).then(|| self.progress(step).ok()).flatten()
    }

    fn in_slot(&self, step: &Step) -> io::Result<Option<Identity>> {
        Ok(identity(self.slots.look(&step.slot_name())?.as_ref()))
    }

    /// Performs one step in a direction, if it is not done.
    fn perform(
        &self,
        step: &Step,
        direction: Direction,
        is_first: bool,
        within: &dyn Fn(),
    ) -> Result<(), Trouble> {
        match (self.progress(step)?, direction) {
            (Progress::Done, Direction::Apply) | (Progress::NotDone, Direction::Undo) => {
                return self.complete(step, direction);
            }
            (Progress::Foreign, _) => return Err(Trouble::Conflict(ConflictReason::ChangedMeanwhile)),
            _ => {}
        }
        let (parent, name) = self.base.parent_of(&step.path)?;
        match (step.act, direction) {
            (Act::Put { old: Some(old), new }, _) => {
                let (out, back) = if direction == Direction::Apply { (old, new) } else { (new, old) };
                if is_first && direction == Direction::Apply {
                    self.check_untouched(step, &old)?;
                }
                self.exchange(step, (&parent, name), out, back, within)
            }
            (Act::Put { old: None, .. }, Direction::Apply) | (Act::Remove { .. }, Direction::Undo) => {
                self.move_in(step, (&parent, name))
            }
            (Act::Put { old: None, new }, Direction::Undo) => {
                self.move_out(step, (&parent, name), new, within)
            }
            (Act::Remove { old }, Direction::Apply) => {
                if is_first {
                    self.check_untouched(step, &old)?;
                }
                self.move_out(step, (&parent, name), old, within)
            }
            (Act::MakeDirectory { mode }, Direction::Apply)
            | (Act::RemoveDirectory { mode, .. }, Direction::Undo) => {
                mkdirat(&parent, name, Mode::from_raw_mode(NEW_DIRECTORY))?;
                give_to_owner_of(&parent, name)?;
                self.change_mode(step, mode)
            }
            (Act::MakeDirectory { .. }, Direction::Undo) => remove_directory(&parent, name, false),
            (Act::RemoveDirectory { is_required, .. }, Direction::Apply) => {
                remove_directory(&parent, name, is_required)
            }
            (Act::ChangeMode { to, .. }, Direction::Apply) => self.change_mode(step, to),
            (Act::ChangeMode { from, .. }, Direction::Undo) => self.change_mode(step, from),
        }
    }

    /// A directory that was made just before a crash may not have its mode yet.
    fn complete(&self, step: &Step, direction: Direction) -> Result<(), Trouble> {
        let ((Act::MakeDirectory { mode }, Direction::Apply)
        | (Act::RemoveDirectory { mode, .. }, Direction::Undo)) = (step.act, direction)
        else {
            return Ok(());
        };
        match self.base.look(&step.path)? {
            Some(seen) if seen.is_directory() && seen.mode == NEW_DIRECTORY => self.change_mode(step, mode),
            _ => Ok(()),
        }
    }

    /// A file may have been written with its old time since it was planned to replace it.
    fn check_untouched(&self, step: &Step, old: &Identity) -> Result<(), Trouble> {
        let now = identity(self.base.look(&step.path)?.as_ref());
        if now.is_some_and(|now| now.changed == old.changed) {
            Ok(())
        } else {
            Err(Trouble::Conflict(ConflictReason::ChangedMeanwhile))
        }
    }

    /// Exchanges both files. If what came out is not what was expected, everything is put back.
    fn exchange(
        &self,
        step: &Step,
        (parent, name): (&OwnedFd, &OsStr),
        out: Identity,
        back: Identity,
        within: &dyn Fn(),
    ) -> Result<(), Trouble> {
        let swap =
            || renameat_with(&self.slots.directory, step.slot_name(), parent, name, RenameFlags::EXCHANGE);
        swap()?;
        within();
        if self.in_slot(step)? == Some(out) {
            return Ok(());
        }
        // Replaced in the last moment: that version belongs back, unless yet another one has come.
        if identity(self.base.look(&step.path)?.as_ref()) == Some(back) {
            swap()?;
        }
        Err(Trouble::Conflict(ConflictReason::ChangedMeanwhile))
    }

    fn move_in(&self, step: &Step, (parent, name): (&OwnedFd, &OsStr)) -> Result<(), Trouble> {
        Ok(renameat_with(&self.slots.directory, step.slot_name(), parent, name, RenameFlags::NOREPLACE)?)
    }

    fn move_out(
        &self,
        step: &Step,
        (parent, name): (&OwnedFd, &OsStr),
        expected: Identity,
        within: &dyn Fn(),
    ) -> Result<(), Trouble> {
        renameat_with(parent, name, &self.slots.directory, step.slot_name(), RenameFlags::NOREPLACE)?;
        within();
        if self.in_slot(step)? == Some(expected) {
            return Ok(());
        }
        self.move_in(step, (parent, name))?;
        Err(Trouble::Conflict(ConflictReason::ChangedMeanwhile))
    }

    /// Changes the permissions of a directory. What makes its files those of a group stays.
    fn change_mode(&self, step: &Step, mode: u32) -> Result<(), Trouble> {
        // Without its own permission to read it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let directory = self.base.open_at(&step.path, flags)?;
        let special = fstat(&directory)?.st_mode & !PERMISSIONS & 0o7777;
        let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
        Ok(chmod(name, Mode::from_raw_mode(mode | special))?)
    }
}

/// What root makes in the project of another user is that user's.
fn give_to_owner_of(parent: &OwnedFd, name: &OsStr) -> Result<(), Trouble> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Seen { owner: (user, group), .. } = Seen::of_file(parent)?;
    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    Ok(chownat(parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn remove_directory(parent: &OwnedFd, name: &OsStr, is_required: bool) -> Result<(), Trouble> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if !is_required => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn identity(seen: Option<&Seen>) -> Option<Identity> {
    seen.and_then(Identity::of)
}

/// Neither file nor link nor nothing.
fn is_other(seen: Option<&Seen>) -> bool {
    seen.is_some_and(|seen| Identity::of(seen).is_none())
}
