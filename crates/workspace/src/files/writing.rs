//! Atomic writes: into a temporary file beside the target, which is then renamed to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawMode, RenameFlags, Stat, Uid, fchmod, fchown, fsync, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::path_error::PathError;
use super::target::Target;
use super::workspace::{Workspace, kind_name};

/// Permission bits that new contents keep: no set-id or sticky bits.
const PERMISSIONS: RawMode = 0o777;

/// Identifies one version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
    modified: (i64, i64),
}

#[expect(clippy::cast_possible_wrap, clippy::unnecessary_cast, reason = "the widths differ between systems")]
impl From<&Stat> for Seen {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as i64,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }
}

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No file.
    Absent,
    /// The file that was read, unchanged.
    Unchanged(Seen),
    /// Anything: an existing file is replaced.
    Anything,
}

/// The permissions of a written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileMode {
    /// Those of the existing file, or the default for a new one.
    Kept,
    /// The same, with executable bits set or cleared.
    Program(bool),
    /// For a new file, those of another file.
    Of(RawMode),
}

impl FileMode {
    fn from(self, current: RawMode, is_new: bool) -> RawMode {
        match self {
            Self::Kept => current,
            Self::Of(_) if !is_new => current,
            // Sets an executable bit for each read bit.
            Self::Program(true) => current | ((current & 0o444) >> 2),
            Self::Program(false) => current & !0o111,
            Self::Of(mode) => mode,
        }
    }
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) is_new: bool,
    pub(crate) bytes: u64,
}

impl Workspace {
    /// Writes a whole file atomically. Keeps the permissions of an existing file.
    pub(crate) fn write(
        &self,
        target: &Target,
        contents: &[u8],
        expected: Expected,
    ) -> Result<Written, PathError> {
        self.write_as(target, contents, expected, FileMode::Kept)
    }

    pub(crate) fn write_as(
        &self,
        target: &Target,
        contents: &[u8],
        expected: Expected,
        mode: FileMode,
    ) -> Result<Written, PathError> {
        self.write_with(target, expected, mode, |file| {
            file.write_all(contents).map(|()| contents.len() as u64)
        })
    }

    /// Writes a whole file atomically, with contents that `put` writes.
    pub(crate) fn write_with(
        &self,
        target: &Target,
        expected: Expected,
        mode: FileMode,
        put: impl FnOnce(&mut File) -> io::Result<u64>,
    ) -> Result<Written, PathError> {
        let before = target.stat()?;
        check_expected(target, before.as_ref(), expected)?;
        let failed = |error: io::Error| PathError::io(&target.written, error);
        let gets_its_mode_later = before.is_some() || matches!(mode, FileMode::Of(_));
        let (name, file) = create_beside(target, gets_its_mode_later).map_err(failed)?;
        let put_in_place = || {
            let mut file = File::from(file);
            let bytes = put(&mut file).map_err(failed)?;
            set_owner_and_mode(&file, before.as_ref(), mode).map_err(failed)?;
            if self.is_durable {
                fsync(&file).map_err(|errno| failed(errno.into()))?;
            }
            // Another process may have written in the meantime.
            check_expected(target, target.stat()?.as_ref(), expected)?;
            take_name(target, &name, before.is_none())?;
            Ok(bytes)
        };
        let written = put_in_place();
        if written.is_err() {
            // The first error is the one to report.
            let _ = unlinkat(&target.directory, &name, AtFlags::empty());
        }
        let bytes = written?;
        if self.is_durable {
            sync_directory(&target.directory).map_err(failed)?;
        }
        Ok(Written { is_new: before.is_none(), bytes })
    }
}

impl Target {
    /// Deletes a name; of a link, only the link itself.
    pub(crate) fn delete(&self) -> Result<(), PathError> {
        let stat = self.stat()?.ok_or_else(|| missing(self))?;
        match unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM)
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory =>
            {
                Err(PathError::IsDirectory { path: self.written.clone() })
            }
            Err(Errno::NOENT) => Err(missing(self)),
            Err(errno) => Err(PathError::io(&self.written, errno)),
        }
    }

    /// Deletes a file, unless it has changed since it was seen.
    pub(crate) fn delete_unchanged(&self, seen: Seen) -> Result<(), PathError> {
        match self.stat()? {
            Some(stat) if Seen::from(&stat) == seen => self.delete(),
            _ => Err(PathError::Changed { path: self.written.clone() }),
        }
    }

    /// Deletes an empty directory.
    pub(crate) fn delete_empty_directory(&self) -> Result<(), PathError> {
        unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR)
            .map_err(|errno| PathError::io(&self.written, errno))
    }

    /// Renames a file, directory or link.
    pub(crate) fn rename_to(&self, to: &Self, overwrite: bool) -> Result<(), PathError> {
        let renamed = if overwrite {
            renameat(&self.directory, &self.name, &to.directory, &to.name)
        } else {
            rename_to_free(&self.directory, &self.name, &to.directory, &to.name)
        };
        match renamed {
            Ok(()) => Ok(()),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(PathError::Exists { path: to.written.clone() }),
            Err(Errno::NOENT) => Err(missing(self)),
            Err(Errno::ISDIR) => Err(PathError::IsDirectory { path: to.written.clone() }),
            Err(Errno::NOTDIR) => Err(PathError::NotADirectory { path: to.written.clone() }),
            Err(errno) => Err(PathError::io(&self.written, errno)),
        }
    }
}

/// Renames, unless the new name is taken.
fn rename_to_free(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new_name: &OsStr) -> rustix::io::Result<()> {
    match renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // Some file systems cannot do this in one step.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(to, new_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => renameat(from, name, to, new_name),
        },
        outcome => outcome,
    }
}

fn missing(target: &Target) -> PathError {
    PathError::NotFound { path: target.written.clone(), nearest: Vec::new() }
}

fn check_expected(target: &Target, found: Option<&Stat>, expected: Expected) -> Result<(), PathError> {
    let path = || target.written.clone();
    if let Some(stat) = found {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(PathError::IsDirectory { path: path() }),
            // A link that appeared just now, or a pipe, is not replaced.
            other => return Err(PathError::Special { path: path(), kind: kind_name(other) }),
        }
    }
    match (expected, found) {
        (Expected::Absent, Some(_)) => Err(PathError::Exists { path: path() }),
        (Expected::Unchanged(seen), Some(stat)) if Seen::from(stat) == seen => Ok(()),
        (Expected::Unchanged(_), _) => Err(PathError::Changed { path: path() }),
        (Expected::Absent, None) | (Expected::Anything, _) => Ok(()),
    }
}

/// Creates a temporary file in the target's directory; private if it gets its mode later.
fn create_beside(target: &Target, is_private: bool) -> io::Result<(OsString, OwnedFd)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if is_private { 0o600 } else { 0o666 });
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".ringfence-{}-{now:08x}{count:x}.tmp", std::process::id()));
        match openat(&target.directory, &name, flags, mode) {
            Ok(file) => return Ok((name, file)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Gives the new file the owner and the mode of the old one.
fn set_owner_and_mode(file: &File, before: Option<&Stat>, mode: FileMode) -> io::Result<()> {
    if before.is_none() && mode == FileMode::Kept {
        return Ok(());
    }
    let own = rustix::fs::fstat(file)?;
    let like = before.unwrap_or(&own);
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid) {
        // Only a privileged process can change the owner; otherwise the file becomes ours.
        let _ = fchown(file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid)));
    }
    fchmod(file, Mode::from_raw_mode(mode.from(like.st_mode, before.is_none()) & PERMISSIONS))
        .map_err(io::Error::from)
}

/// Renames a finished temporary file to its target.
fn take_name(target: &Target, name: &OsStr, must_be_free: bool) -> Result<(), PathError> {
    let directory = &target.directory;
    let renamed = if must_be_free {
        rename_to_free(directory, name, directory, &target.name)
    } else {
        renameat(directory, name, directory, &target.name)
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(PathError::Changed { path: target.written.clone() }),
        Err(errno) => Err(PathError::io(&target.written, errno)),
    }
}

fn sync_directory(directory: &OwnedFd) -> io::Result<()> {
    // An `O_PATH` descriptor cannot be synced.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(directory.as_fd(), ".", flags, Mode::empty())?;
    fsync(&directory).map_err(io::Error::from)
}
