//! Looks at the files of a scope from outside, by descriptor: sessions that work there may replace anything by a link or a
//! pipe between two steps.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::paths::VettedDirectory;
use crate::scope_scan::{names_in, open_below};

/// Files that are read here are shorter.
const MAX_BYTES: u64 = 1024 * 1024;

/// A directory of a scope. Paths are absolute and lie below it; no link in them is followed.
pub(super) struct ScopeTree {
    top: PathBuf,
    descriptor: OwnedFd,
}

impl ScopeTree {
    pub(super) fn open(top: &VettedDirectory) -> Option<Self> {
        let descriptor = top.open(OFlags::RDONLY).ok()?;
        Some(Self { top: top.path().to_owned(), descriptor })
    }

    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// What a path is; `None` if there is nothing, or a link on the way.
    pub(super) fn kind(&self, path: &Path) -> Option<FileType> {
        let (directory, name) = self.place(path)?;
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        path == self.top || self.kind(path) == Some(FileType::Directory)
    }

    /// The text of a regular file, or nothing.
    pub(super) fn read(&self, path: &Path) -> String {
        let mut text = Vec::new();
        if let Some(file) = self.open_file(path) {
            let _ = file.take(MAX_BYTES).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    fn open_file(&self, path: &Path) -> Option<File> {
        let (directory, name) = self.place(path)?;
        // A pipe must not block this process.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&directory, name, flags, Mode::empty()).ok()?);
        file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
    }

    /// The directories in a directory.
    pub(super) fn directories_in(&self, path: &Path) -> Vec<PathBuf> {
        let mut found = self.entries_of(path);
        found.retain(|path| self.is_directory(path));
        found
    }

    /// The links in a directory.
    pub(super) fn links_in(&self, path: &Path) -> Vec<PathBuf> {
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
