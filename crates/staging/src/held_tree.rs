//! A directory tree, reached through a descriptor of its top. The kernel resolves every path below it and follows no
//! link, so nothing that is swapped in the tree leads outside it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use crate::changes::EntryKind;

/// Attempts to resolve a path: the kernel gives up when something is renamed at the same time.
const MAX_ATTEMPTS: usize = 64;
/// Longer paths are resolved in pieces. The kernel takes 4096 bytes.
const MAX_PATH_BYTES: usize = 3072;
/// The permissions that are looked at and taken over: never set-uid and the like.
pub(crate) const PERMISSIONS: u32 = 0o777;

/// What a look at an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: EntryKind,
    pub(crate) bytes: u64,
    pub(crate) mode: u32,
    pub(crate) inode: u64,
    pub(crate) device: u64,
    /// The device that a device file stands for.
    pub(crate) names_device: u64,
    /// User and group.
    pub(crate) owner: (u32, u32),
    pub(crate) modified: (i64, u64),
    pub(crate) changed: (i64, u64),
}

impl Seen {
    // The types of the fields differ between architectures.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, clippy::cast_sign_loss)]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
            bytes: stat.st_size as u64,
            mode: stat.st_mode & PERMISSIONS,
            inode: stat.st_ino.into(),
            device: stat.st_dev.into(),
            names_device: stat.st_rdev.into(),
            owner: (stat.st_uid, stat.st_gid),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    pub(crate) fn of_file(file: impl std::os::fd::AsFd) -> io::Result<Self> {
        Ok(Self::of(&fstat(file)?))
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == EntryKind::Directory
    }
}

fn kind_of(kind: FileType) -> EntryKind {
    match kind {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        _ => EntryKind::Device,
    }
}

/// A directory that is held open.
#[derive(Debug)]
pub(crate) struct HeldTree {
    top: OwnedFd,
    path: PathBuf,
}

impl HeldTree {
    /// Opens an absolute path without links.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        Ok(Self { top, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn top(&self) -> &OwnedFd {
        &self.top
    }

    /// What the descriptor of the top tells.
    pub(crate) fn seen_top(&self) -> io::Result<Seen> {
        Seen::of_file(&self.top)
    }

    /// Opens a path below the top. A link anywhere in it is an error, and so is a mount point.
    pub(crate) fn open_at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return resolve(&self.top, Path::new("."), flags);
        }
        if bytes.len() <= MAX_PATH_BYTES {
            return resolve(&self.top, path, flags);
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
        resolve(&self.open_long(parent)?, Path::new(name), flags)
    }

    /// Opens a directory whose path is longer than the kernel takes, piece by piece.
    fn open_long(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut held = resolve(&self.top, Path::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
        let mut piece = PathBuf::new();
        for name in path {
            if !piece.as_os_str().is_empty() && piece.as_os_str().len() + name.len() > MAX_PATH_BYTES {
                held = resolve(&held, &piece, OFlags::PATH | OFlags::DIRECTORY)?;
                piece.clear();
            }
            piece.push(name);
        }
        resolve(&held, &piece, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// Opens a directory whose entries are to be read or changed.
    pub(crate) fn directory(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)
    }

    /// Opens the directory of a path, and returns the path's last name.
    pub(crate) fn parent_of<'a>(&self, path: &'a Path) -> rustix::io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Looks at an entry; `None` if there is none.
    pub(crate) fn look(&self, path: &Path) -> io::Result<Option<Seen>> {
        match self.open_at(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(entry) => Seen::of_file(&entry).map(Some),
            // A link or file on the way: no such path, as this tree sees it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
            // What is mounted there belongs to another file system, and is a directory or file of that.
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a regular file for reading, and looks at it. Never waits for a FIFO, never wakes a device.
    pub(crate) fn file(&self, path: &Path) -> io::Result<(File, Seen)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open_at(path, flags)?);
        let seen = Seen::of_file(&file)?;
        if seen.kind == EntryKind::File { Ok((file, seen)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Reads a small file.
    pub(crate) fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        use std::io::Read;
        let (file, _) = self.file(path)?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    }

    /// Where a link leads, as it is written.
    pub(crate) fn target(&self, path: &Path) -> io::Result<PathBuf> {
        let (parent, name) = self.parent_of(path)?;
        target_at(&parent, name)
    }

    /// The entries of a directory with what a look at each tells. Those that vanish meanwhile are left out.
    pub(crate) fn entries(&self, path: &Path) -> io::Result<Vec<(OsString, Seen)>> {
        let directory = self.directory(path)?;
        entries_of(&directory)
    }
}

pub(crate) fn target_at(directory: &OwnedFd, name: &OsStr) -> io::Result<PathBuf> {
    let target = readlinkat(directory, name, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

pub(crate) fn entries_of(directory: &OwnedFd) -> io::Result<Vec<(OsString, Seen)>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            entries.push((name.to_owned(), Seen::of(&stat)));
        }
    }
    Ok(entries)
}

fn resolve(directory: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    for _ in 0..MAX_ATTEMPTS {
        match openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
    Err(Errno::AGAIN)
}
