//! The directory where new content waits and originals are kept, on the file system of the base.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, StatxFlags, Uid, chownat, fchmod, fsync, mkdirat, openat, renameat, statat,
    statx, symlinkat, syncfs, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::journal::{BEFORE, Files, Identity, SlotsPlace};
use crate::cancel::Cancel;
use crate::changes::digest_of;
use crate::file_copy::{Sharing, copy_content};
use crate::held_tree::{HeldTree, Seen};
use crate::removal::remove_entry;
use crate::state_files::{read_json_if_there, write_json};

/// The beginning of the name of slots in a base.
pub(super) const IN_BASE: &str = ".ringfence-apply-";
/// The same, of slots that stay because their originals could not be restored.
const KEPT_IN_BASE: &str = ".ringfence-kept-";
const IN_STATE: &str = "slots-";
/// Beyond so many files, one sync of the file system is cheaper than one of each.
const MAX_SINGLE_SYNCS: usize = 16;

/// Whether a name at the top of a base is one that an apply made. No change of the project is there.
pub(crate) fn is_own(name: &OsStr) -> bool {
    [IN_BASE, KEPT_IN_BASE].iter().any(|own| name.as_bytes().starts_with(own.as_bytes()))
}

/// What a file that is put into the base gets beside its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    pub(super) mode: u32,
    /// User and group.
    pub(super) owner: (u32, u32),
}

pub(super) struct Slots {
    pub(super) place: SlotsPlace,
    pub(super) directory: OwnedFd,
}

impl Slots {
    /// Makes an empty directory, in the copy's directory if renames lead from there into the base.
    pub(super) fn make(files: &Files<'_>, base: &HeldTree, copy_id: &str) -> io::Result<Self> {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let random = &random[..8];
        let state = HeldTree::open(files.copy)?;
        let place = if is_same_mount(state.top(), base.top())? {
            SlotsPlace::InState(format!("{IN_STATE}{random}"))
        } else {
            SlotsPlace::InBase(format!("{IN_BASE}{copy_id}-{random}"))
        };
        // If this process is killed, the next one knows what to remove.
        write_json(&files.intent(), &place)?;
        let (parent, name) = match &place {
            SlotsPlace::InState(name) => (state.directory(Path::new(""))?, name),
            SlotsPlace::InBase(name) => (base.directory(Path::new(""))?, name),
        };
        mkdirat(&parent, name, Mode::RWXU)?;
        let slots = Self::open(files, base, place)?;
        if matches!(slots.place, SlotsPlace::InBase(_)) {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let ignore = openat(&slots.directory, ".gitignore", flags, Mode::RUSR | Mode::WUSR)?;
            rustix::io::write(&ignore, b"*\n")?;
        }
        Ok(slots)
    }

    pub(super) fn open(files: &Files<'_>, base: &HeldTree, place: SlotsPlace) -> io::Result<Self> {
        let directory = match &place {
            SlotsPlace::InState(name) => HeldTree::open(files.copy)?.directory(Path::new(name))?,
            SlotsPlace::InBase(name) => base.directory(Path::new(name))?,
        };
        Ok(Self { place, directory })
    }

    /// The same for a recovery, which restores what it can without slots that another removed.
    pub(super) fn open_or_make(files: &Files<'_>, base: &HeldTree, place: SlotsPlace) -> io::Result<Self> {
        match Self::open(files, base, place.clone()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (parent, name) = match &place {
            SlotsPlace::InState(name) => (HeldTree::open(files.copy)?.directory(Path::new(""))?, name),
            SlotsPlace::InBase(name) => (base.directory(Path::new(""))?, name),
        };
        mkdirat(&parent, name, Mode::RWXU)?;
        Self::open(files, base, place)
    }

    /// Removes what was staged, once none of it is needed.
    pub(super) fn clear(&self, slots: impl Iterator<Item = String>) -> io::Result<()> {
        for slot in slots {
            match unlinkat(&self.directory, slot, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    pub(super) fn look(&self, slot: &str) -> io::Result<Option<Seen>> {
        match statat(&self.directory, slot, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Seen::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Copies a file into a slot.
    pub(super) fn stage(
        &self,
        slot: &str,
        source: &File,
        bytes: u64,
        rights: Rights,
    ) -> io::Result<Identity> {
        let target = self.create(slot)?;
        copy_content(source, &target, bytes, Sharing::IfPossible, &Cancel::default())?;
        self.finish(slot, &target, rights)
    }

    /// The digest of what was staged.
    pub(super) fn digest(&self, slot: &str) -> io::Result<[u8; 32]> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        digest_of(&File::from(openat(&self.directory, slot, flags, Mode::empty())?))
    }

    pub(super) fn stage_bytes(&self, slot: &str, bytes: &[u8], rights: Rights) -> io::Result<Identity> {
        use std::io::Write;
        let mut target = self.create(slot)?;
        target.write_all(bytes)?;
        self.finish(slot, &target, rights)
    }

    pub(super) fn stage_link(&self, slot: &str, target: &Path, rights: Rights) -> io::Result<Identity> {
        symlinkat(target, &self.directory, slot)?;
        self.give(slot, rights.owner)?;
        self.identity(slot)
    }

    /// Gives a file its owner, where this user may do that: one of a group's project stays one of the group.
    fn give(&self, slot: &str, (user, group): (u32, u32)) -> io::Result<()> {
        if (user, group) == (geteuid().as_raw(), getegid().as_raw()) {
            return Ok(());
        }
        let owners =
            [(Some(Uid::from_raw(user)), Some(Gid::from_raw(group))), (None, Some(Gid::from_raw(group)))];
        for (user, group) in owners {
            match chownat(&self.directory, slot, user, group, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(()) => return Ok(()),
                // An identifier that this user's namespace does not have is invalid.
                Err(Errno::PERM | Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn create(&self, slot: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.directory, slot, flags, Mode::RUSR | Mode::WUSR)?))
    }

    fn finish(&self, slot: &str, file: &File, rights: Rights) -> io::Result<Identity> {
        self.give(slot, rights.owner)?;
        fchmod(file, Mode::from_raw_mode(rights.mode))?;
        self.identity(slot)
    }

    fn identity(&self, slot: &str) -> io::Result<Identity> {
        let seen = self.look(slot)?;
        seen.as_ref().and_then(Identity::of).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes what was staged durable.
    pub(super) fn sync(&self, base: &HeldTree, slots: &[String]) -> io::Result<()> {
        if matches!(self.place, SlotsPlace::InBase(_)) {
            fsync(base.directory(Path::new(""))?)?;
        }
        if slots.len() > MAX_SINGLE_SYNCS {
            return Ok(syncfs(&self.directory)?);
        }
        for slot in slots {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match openat(&self.directory, slot.as_str(), flags, Mode::empty()) {
                Ok(file) => fsync(file)?,
                // A link is part of the directory; a file that its mode forbids to read was synced when it was made.
                Err(Errno::LOOP) => {}
                Err(Errno::ACCESS) => syncfs(&self.directory)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(fsync(&self.directory)?)
    }
}

/// Makes the names in directories of the base durable.
pub(super) fn sync_directories(base: &HeldTree, directories: &[&Path]) -> io::Result<()> {
    if directories.len() > MAX_SINGLE_SYNCS {
        return Ok(syncfs(base.directory(Path::new(""))?)?);
    }
    for directory in directories {
        match base.directory(directory) {
            Ok(directory) => fsync(directory)?,
            // Removed in the same transaction: nothing is there, or a file or a link again.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Removes a directory of slots with what is in it.
pub(super) fn remove(files: &Files<'_>, base: Option<&HeldTree>, place: &SlotsPlace) -> io::Result<()> {
    let (parent, name) = match (place, base) {
        (SlotsPlace::InState(name), _) => (HeldTree::open(files.copy)?.directory(Path::new(""))?, name),
        (SlotsPlace::InBase(name), Some(base)) => (base.directory(Path::new(""))?, name),
        (SlotsPlace::InBase(_), None) => return Ok(()),
    };
    match remove_entry(&parent, OsStr::new(name)) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes slots that no journal names: of an apply that was killed before it began, or that was forgotten since.
pub(super) fn sweep(files: &Files<'_>, base: Option<&HeldTree>, used: &[SlotsPlace]) -> io::Result<()> {
    if let Some(intent) = read_json_if_there::<SlotsPlace>(&files.intent())? {
        if !used.contains(&intent) {
            remove(files, base, &intent)?;
        }
        if base.is_some() || matches!(intent, SlotsPlace::InState(_)) {
            std::fs::remove_file(files.intent())?;
        }
    }
    for entry in std::fs::read_dir(files.copy)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if let Some(manifest) = name.strip_prefix(BEFORE)
            && !used.iter().any(|place| manifest.starts_with(place.transaction()))
        {
            std::fs::remove_file(files.copy.join(&name))?;
        }
        let place = SlotsPlace::InState(name);
        if matches!(&place, SlotsPlace::InState(name) if name.starts_with(IN_STATE)) && !used.contains(&place)
        {
            remove(files, base, &place)?;
        }
    }
    Ok(())
}

/// Whether a file can be renamed from one directory to the other.
fn is_same_mount(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let look = |directory: &dyn Fn() -> rustix::io::Result<rustix::fs::Statx>| directory();
    let one = look(&|| statx(one.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID))?;
    let other = look(&|| statx(other.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID))?;
    let place = |seen: &rustix::fs::Statx| (seen.stx_dev_major, seen.stx_dev_minor, seen.stx_mnt_id);
    // Older kernels do not tell the mount.
    let is_told = (one.stx_mask & StatxFlags::MNT_ID.bits()) != 0;
    Ok(is_told && place(&one) == place(&other))
}

/// Puts a directory of slots where no sweep removes it, and returns where that is.
pub(super) fn keep(files: &Files<'_>, base: &HeldTree, place: &SlotsPlace) -> io::Result<PathBuf> {
    let (moved, kept) = match place {
        SlotsPlace::InState(name) => {
            std::fs::create_dir_all(files.kept())?;
            let kept = files.kept().join(name);
            (std::fs::rename(files.copy.join(name), &kept), kept)
        }
        // On another file system than the copy's directory: it stays there.
        SlotsPlace::InBase(name) => {
            let kept = name.replacen(IN_BASE, KEPT_IN_BASE, 1);
            let top = base.directory(Path::new(""))?;
            let moved = renameat(&top, name.as_str(), &top, kept.as_str()).map_err(io::Error::from);
            fsync(&top)?;
            (moved, base.path().join(kept))
        }
    };
    match moved {
        // Kept by a recovery that was killed just then.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => remove(files, Some(base), place)?,
        moved => moved?,
    }
    Ok(kept)
}
