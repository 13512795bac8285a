//! A directory that belongs to a fenced command, in which ringfence leaves files from outside: the home of a session.
//! The command may have put links there before, so nothing is reached by path, and no link is followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use crate::paths::VettedDirectory;

/// An open directory of a fenced command.
pub(crate) struct PrivateTree {
    directory: OwnedFd,
    /// Gets what is made here, where the command runs as another user than ringfence.
    user: Option<u32>,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl PrivateTree {
    /// Opens a directory that lies where only ringfence can write, and gives it to `user`.
    pub(crate) fn open(path: &Path, user: Option<u32>) -> io::Result<Self> {
        let directory = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        let tree = Self { directory, user };
        tree.give(&tree.directory)?;
        Ok(tree)
    }

    /// Adds a file with the directories above it. A file that is there already stays, and so does whatever else the
    /// command has put in its way.
    pub(crate) fn add_file(&self, path: &Path, text: &str) -> io::Result<()> {
        self.add(path, text, 0o600)
    }

    /// Adds a file that the command may execute.
    pub(crate) fn add_program(&self, path: &Path, text: &str) -> io::Result<()> {
        self.add(path, text, 0o700)
    }

    fn add(&self, path: &Path, text: &str, mode: u32) -> io::Result<()> {
        match self.create(path, mode) {
            Ok(mut file) => {
                self.give(&file)?;
                file.write_all(text.as_bytes())
            }
            Err(Errno::EXIST | Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory for a mount. What a command has put in its place is removed.
    pub(crate) fn make_directory(&self, name: &str) -> io::Result<Self> {
        let open = || rustix::fs::openat(&self.directory, name, DIRECTORY, Mode::empty());
        let make = || rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o700));
        let directory = match open() {
            Err(Errno::NOENT) => make().and_then(|()| open()),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?;
                make().and_then(|()| open())
            }
            opened => opened,
        }?;
        let tree = Self { directory, user: self.user };
        tree.give(&tree.directory)?;
        Ok(tree)
    }

    /// The directory under its path, for a launcher to find the same one again: by then a command may have put another, or
    /// a link, in its place.
    pub(crate) fn vetted(&self, path: PathBuf) -> io::Result<VettedDirectory> {
        VettedDirectory::of_descriptor(path, &self.directory)
    }

    /// Writes a file anew. A command that puts a directory in its place does without the file.
    pub(crate) fn replace_file(&self, name: &str, text: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.add_file(Path::new(name), text),
            Err(Errno::ISDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a copy of a file of the host, with the directories above it. It appears whole or not at all, and a file that
    /// is there already stays.
    pub(crate) fn add_copy(&self, path: &Path, mut original: &File) -> io::Result<()> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let directory = self.make_above(path)?;
        if rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        let unfinished = format!(".copying-{}", std::process::id());
        let mut copy = create_in(&directory, OsStr::new(&unfinished), 0o600)?;
        let copied = io::copy(&mut original, &mut copy).and_then(|_| Ok(self.give(&copy)?));
        let named = copied.and_then(|()| {
            let flags = RenameFlags::NOREPLACE;
            Ok(rustix::fs::renameat_with(&directory, &unfinished, &directory, name, flags)?)
        });
        if named.is_err() {
            rustix::fs::unlinkat(&directory, &unfinished, AtFlags::empty())?;
        }
        match named {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            named => named,
        }
    }

    fn create(&self, path: &Path, mode: u32) -> rustix::io::Result<File> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        create_in(&self.make_above(path)?, name, mode)
    }

    /// Makes the directories above a path, and opens the last of them.
    fn make_above(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let mut current = rustix::io::dup(&self.directory)?;
        for above in path.parent().into_iter().flatten() {
            let is_new = match rustix::fs::mkdirat(&current, above, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error),
            };
            current = rustix::fs::openat(&current, above, DIRECTORY, Mode::empty())?;
            if is_new {
                self.give(&current)?;
            }
        }
        Ok(current)
    }

    fn give(&self, file: impl AsFd) -> rustix::io::Result<()> {
        self.user.map_or(Ok(()), |user| {
            rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))
        })
    }
}

fn create_in(directory: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode)).map(File::from)
}
