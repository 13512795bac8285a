//! Makes the trees of a copy.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, fchmod, futimens, mkdirat, mknodat, openat,
    symlinkat, utimensat,
};

use crate::cancel::Cancel;
use crate::changes::EntryKind;
use crate::error::StagingError;
use crate::file_copy::{Sharing, copy_content};
use crate::held_tree::{HeldTree, Seen, target_at};
use crate::manifest::Manifest;
use crate::method::Method;
use crate::record::Tree;
use crate::secrets::{Included, looks_like_secret};
use crate::state_files::make_private_directory;
use crate::tracked::Tracked;
use crate::walk::{Extent, Visit, walk};
use crate::workspaces::NewCopy;

/// What a look at a base found.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) manifest: Manifest,
    /// Untracked files that look like secrets and are named nowhere, sorted.
    pub(crate) left_out: Vec<PathBuf>,
    /// Special files, sorted.
    pub(crate) special: Vec<PathBuf>,
}

/// Walks a base: notes how it is, and finds what does not come along.
pub(crate) fn survey(base: &HeldTree, new: &NewCopy) -> Result<Survey, StagingError> {
    let (suspects, special, repositories) =
        (Mutex::new(Vec::new()), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let manifest = Manifest::of(base, &|visit| {
        check(&new.cancel)?;
        for (name, seen) in visit.entries {
            let path = || visit.path.join(name);
            match seen.kind {
                EntryKind::File | EntryKind::Link if looks_like_secret(name) => suspects.lock().push(path()),
                EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => special.lock().push(path()),
                EntryKind::Directory if is_repository(visit.directory, name) => {
                    repositories.lock().push(path());
                }
                _ => {}
            }
        }
        Ok(())
    });
    let manifest = manifest.map_err(|source| failure(base.path(), source))?;
    let (mut left_out, mut special) = (suspects.into_inner(), special.into_inner());
    if !left_out.is_empty() {
        let tracked = tracked_of(base, &new.beside, &repositories.into_inner());
        let included = Included::read(base, new.include_secrets.clone())?;
        left_out.retain(|path| !tracked.has(path) && !included.has(path));
    }
    left_out.sort_unstable();
    special.sort_unstable();
    Ok(Survey { manifest, left_out, special })
}

fn tracked_of(base: &HeldTree, beside: &[crate::workspaces::NewTree], repositories: &[PathBuf]) -> Tracked {
    let mut tracked = Tracked::default();
    tracked.add_repository(base, Path::new(""));
    for folder in repositories {
        tracked.add_repository(base, folder);
    }
    for tree in beside {
        if let Some(worktree) = &tree.worktree {
            // An index that cannot be read tracks nothing: what looks like a secret stays out.
            let _ = tracked.add_outside(&tree.base, worktree, base.path());
        }
    }
    tracked
}

/// Whether a directory has a `.git`.
fn is_repository(parent: &OwnedFd, name: &std::ffi::OsStr) -> bool {
    rustix::fs::statat(parent, Path::new(name).join(".git"), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Makes one tree in the directory `place` of a copy, which will be `settled` once it is complete.
pub(crate) fn make_tree(
    base: &HeldTree,
    method: Method,
    (place, settled): (&Path, &Path),
    left_out: &[PathBuf],
    cancel: &Cancel,
) -> Result<Tree, StagingError> {
    make_private_directory(place).map_err(|error| failure(place, error))?;
    let made = match method {
        Method::Overlay => make_overlay(base, place, left_out),
        Method::Reflink => copy_tree(base, &place.join("tree"), left_out, Sharing::Required, cancel),
        Method::Copy => copy_tree(base, &place.join("tree"), left_out, Sharing::IfPossible, cancel),
    };
    made.map_err(|error| failure(base.path(), error))?;
    let base = base.path().to_owned();
    Ok(match method {
        Method::Overlay => Tree::Overlay { base, upper: settled.join("upper"), work: settled.join("work") },
        Method::Reflink | Method::Copy => Tree::Files { base, files: settled.join("tree") },
    })
}

/// Makes the directories that the kernel needs. What is left out gets a whiteout, which hides it.
fn make_overlay(base: &HeldTree, place: &Path, left_out: &[PathBuf]) -> io::Result<()> {
    make_private_directory(&place.join("work"))?;
    let upper = place.join("upper");
    make_private_directory(&upper)?;
    let upper = HeldTree::open(&upper)?;
    for path in left_out {
        make_directories_above(base, &upper, path)?;
        // Its directory may have vanished meanwhile.
        let Ok((parent, name)) = upper.parent_of(path) else { continue };
        mknodat(&parent, name, FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    // Last, because they may forbid writing.
    let mut above: Vec<&Path> = left_out.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    above.push(Path::new(""));
    above.sort_unstable();
    above.dedup();
    for directory in above.into_iter().rev() {
        let (Ok(made), Some(like)) = (upper.directory(directory), base.look(directory)?) else { continue };
        fchmod(made, Mode::from_raw_mode(like.mode))?;
    }
    Ok(())
}

fn make_directories_above(base: &HeldTree, upper: &HeldTree, path: &Path) -> io::Result<()> {
    let above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    for directory in above.into_iter().rev() {
        // A directory that vanished meanwhile has nothing to hide.
        if base.look(directory)?.is_none() {
            continue;
        }
        let (parent, name) = upper.parent_of(directory)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Copies a whole tree, git directories included.
fn copy_tree(
    base: &HeldTree,
    to: &Path,
    left_out: &[PathBuf],
    sharing: Sharing,
    cancel: &Cancel,
) -> io::Result<()> {
    make_private_directory(to)?;
    let target = HeldTree::open(to)?;
    let directories = Mutex::new(vec![(PathBuf::new(), base.seen_top()?)]);
    walk(base, Extent::Project, &|visit| {
        check(cancel)?;
        let into = target.directory(visit.path)?;
        for (name, seen) in visit.entries {
            let path = visit.path.join(name);
            if left_out.binary_search(&path).is_ok() {
                continue;
            }
            copy_entry(&visit, &into, name, seen, (sharing, cancel))?;
            if seen.is_directory() {
                directories.lock().push((path, *seen));
            }
        }
        Ok(())
    })?;
    let mut directories = directories.into_inner();
    directories.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    for (path, seen) in directories {
        let directory = target.directory(&path)?;
        futimens(&directory, &times(&seen))?;
        fchmod(&directory, Mode::from_raw_mode(seen.mode))?;
    }
    Ok(())
}

fn copy_entry(
    from: &Visit<'_>,
    into: &OwnedFd,
    name: &std::ffi::OsStr,
    seen: &Seen,
    (sharing, cancel): (Sharing, &Cancel),
) -> io::Result<()> {
    match seen.kind {
        EntryKind::Directory => mkdirat(into, name, Mode::RWXU)?,
        EntryKind::Link => {
            // Replaced meanwhile: what is there now is a change of the base, which an apply finds.
            let Ok(target) = target_at(from.directory, name) else { return Ok(()) };
            symlinkat(&target, into, name)?;
            utimensat(into, name, &times(seen), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        EntryKind::File => {
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let Ok(source) = openat(from.directory, name, flags, Mode::empty()) else { return Ok(()) };
            let now = Seen::of_file(&source)?;
            if now.kind != EntryKind::File {
                return Ok(());
            }
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let target = File::from(openat(into, name, flags, Mode::RUSR | Mode::WUSR)?);
            copy_content(&File::from(source), &target, now.bytes, sharing, cancel)?;
            fchmod(&target, Mode::from_raw_mode(now.mode))?;
            // Build tools compare times.
            futimens(&target, &times(&now))?;
        }
        EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => {}
    }
    Ok(())
}

// The types of the fields differ between architectures.
#[allow(clippy::useless_conversion, clippy::unnecessary_cast, clippy::cast_possible_wrap)]
fn times(seen: &Seen) -> Timestamps {
    let time = Timespec { tv_sec: seen.modified.0 as _, tv_nsec: seen.modified.1 as _ };
    Timestamps { last_access: time, last_modification: time }
}

fn check(cancel: &Cancel) -> io::Result<()> {
    if cancel.is_cancelled() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

fn failure(base: &Path, source: io::Error) -> StagingError {
    if source.kind() == io::ErrorKind::Interrupted {
        return StagingError::Cancelled;
    }
    let error = StagingError::io("cannot copy", base, source);
    if error.is_no_space() { StagingError::NoSpace { base: base.to_owned() } } else { error }
}
