//! Looks at the files of a scope from outside, by descriptor: sessions that work there may replace anything by a link or a
//! pipe between two steps.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::paths::VettedDirectory;
use crate::scope_scan::{names_in, open_below};

/// Files that are read here are shorter.
const MAX_BYTES: u64 = 1024 * 1024;

/// A directory of a scope. Paths are absolute and lie below it; no link in them is followed.
pub(crate) struct ScopeTree {
    top: PathBuf,
    descriptor: OwnedFd,
}

impl ScopeTree {
    pub(crate) fn open(top: &VettedDirectory) -> Option<Self> {
        let descriptor = top.open(OFlags::RDONLY).ok()?;
        Some(Self { top: top.path().to_owned(), descriptor })
    }

    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// What a path is; `None` if there is nothing, or a link on the way.
    pub(crate) fn kind(&self, path: &Path) -> Option<FileType> {
        let (directory, name) = self.place(path)?;
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.kind(path) == Some(FileType::RegularFile)
    }

    /// What is known of a path; `None` if there is nothing, or a link on the way.
    pub(crate) fn stat(&self, path: &Path) -> Option<Stat> {
        if path == self.top {
            return rustix::fs::fstat(&self.descriptor).ok();
        }
        let (directory, name) = self.place(path)?;
        rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// The user that a path belongs to.
    pub(crate) fn owner(&self, path: &Path) -> Option<u32> {
        self.stat(path).map(|stat| stat.st_uid)
    }

    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        path == self.top || self.kind(path) == Some(FileType::Directory)
    }

    /// The text of a regular file, or nothing.
    pub(crate) fn read(&self, path: &Path) -> String {
        String::from_utf8_lossy(&self.read_bytes(path, MAX_BYTES)).into_owned()
    }

    /// The beginning of a regular file, or nothing.
    pub(crate) fn read_bytes(&self, path: &Path, most: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(file) = self.open_file(path) {
            let _ = file.take(most).read_to_end(&mut bytes);
        }
        bytes
    }

    fn open_file(&self, path: &Path) -> Option<File> {
        let (directory, name) = self.place(path)?;
        // A pipe must not block this process.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&directory, name, flags, Mode::empty()).ok()?);
        file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
    }

    /// The directories in a directory.
    pub(crate) fn directories_in(&self, path: &Path) -> Vec<PathBuf> {
        let mut found = self.entries_of(path);
        found.retain(|path| self.is_directory(path));
        found
    }

    /// The links in a directory.
    pub(crate) fn links_in(&self, path: &Path) -> Vec<PathBuf> {
        let mut found = self.entries_of(path);
        found.retain(|path| self.kind(path) == Some(FileType::Symlink));
        found
    }

    fn entries_of(&self, path: &Path) -> Vec<PathBuf> {
        let below = path.strip_prefix(&self.top).ok();
        let opened = below.and_then(|below| open_below(&self.descriptor, below).ok());
        let names = opened.iter().flat_map(names_in);
        names.map(|name| path.join(name)).collect()
    }

    /// The directory that a path lies in, and its name there.
    fn place<'p>(&self, path: &'p Path) -> Option<(OwnedFd, &'p OsStr)> {
        let below = path.strip_prefix(&self.top).ok()?;
        let directory = open_below(&self.descriptor, below.parent()?).ok()?;
        Some((directory, path.file_name()?))
    }
}
