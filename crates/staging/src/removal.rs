//! Removes trees that a fenced agent wrote, however deep they are and whatever rights it took away.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

/// Deeper directories are first moved up: every level holds a descriptor.
const MAX_HELD: usize = 64;

/// Removes a directory with everything in it, without following links. It is no error if there is none.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    match remove_entry(&parent, name) {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome.map_err(io::Error::from),
    }
}

/// Removes an entry of a directory, and what is below it.
pub(crate) fn remove_entry(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        outcome => return outcome,
    }
    let top = open_directory(parent, name)?;
    let mut moved = 0;
    // What was moved up lies at the top, so it is emptied until nothing is left.
    while !empty(&top, &top, 0, &mut moved)? {}
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Removes what is in a directory. Returns false if something was moved to the top instead.
fn empty(top: &OwnedFd, directory: &OwnedFd, depth: usize, moved: &mut u64) -> rustix::io::Result<bool> {
    let mut is_empty = true;
    for name in names(directory)? {
        match unlinkat(directory, &name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        }
        if depth >= MAX_HELD {
            let _ = open_directory(directory, &name)?;
            *moved += 1;
            renameat(directory, &name, top, format!(".moved-{}-{moved}", std::process::id()))?;
            is_empty = false;
            continue;
        }
        let below = open_directory(directory, &name)?;
        is_empty &= empty(top, &below, depth + 1, moved)?;
        unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(is_empty)
}

/// Opens a directory for changes, with all rights for this user.
fn open_directory(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(parent, name, flags, Mode::empty());
    let is_open_to_us = |stat: rustix::fs::Stat| stat.st_mode & 0o700 == 0o700;
    if let Ok(directory) = opened
        && rustix::fs::fstat(&directory).is_ok_and(is_open_to_us)
    {
        return Ok(directory);
    }
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    // Nothing in a fence can swap it any more: a copy is removed when no session uses it.
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    openat(parent, name, flags, Mode::empty())
}

fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}
