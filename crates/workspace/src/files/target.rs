//! Names that are created, renamed or deleted: the directory is opened first, then acted in.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, mkdirat, readlinkat, statat};
use rustix::io::Errno;

use super::path_error::PathError;
use super::session_path::SessionPath;
use super::workspace::Workspace;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) directory: Arc<OwnedFd>,
    pub(super) name: OsString,
    /// As the client wrote it.
    pub(super) written: String,
}

/// What to do about missing directories above a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    Create,
    Expect,
}

impl Target {
    /// The metadata of what has this name now. Does not follow links.
    pub(super) fn stat(&self) -> Result<Option<Stat>, PathError> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(PathError::io(&self.written, errno)),
        }
    }

    /// Whether something has this name.
    pub(crate) fn is_taken(&self) -> bool {
        !matches!(self.stat(), Ok(None))
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind() == Some(FileType::RegularFile)
    }

    fn kind(&self) -> Option<FileType> {
        self.stat().ok().flatten().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }
}

impl Workspace {
    /// Resolves to the name itself, for deleting and moving. Does not follow a link.
    pub(crate) fn target(&self, path: &SessionPath, parents: Parents) -> Result<Target, PathError> {
        let (parent, name) = path.split()?;
        let directory = self.parent_directory(path, (&parent, &name), parents)?;
        self.check_rules(path, directory.as_fd(), Some(&name))?;
        Ok(Target { directory, name, written: path.written.clone() })
    }

    /// Resolves to the name that a write goes to. Follows links; the kernel resolves each step from the root again.
    pub(crate) fn write_target(&self, path: &SessionPath, parents: Parents) -> Result<Target, PathError> {
        let mut current = path.clone();
        for _ in 0..MAX_LINKS {
            let (parent, name) = current.split()?;
            let directory = self.parent_directory(&current, (&parent, &name), parents)?;
            let link = match readlinkat(&directory, &name, Vec::new()) {
                Ok(link) => PathBuf::from(OsStr::from_bytes(link.as_bytes())),
                // Not a link, or nothing yet.
                Err(Errno::INVAL | Errno::NOENT) => {
                    self.check_rules(path, directory.as_fd(), Some(&name))?;
                    return Ok(Target { directory, name, written: path.written.clone() });
                }
                Err(errno) => return Err(PathError::io(&path.written, errno)),
            };
            if link.is_absolute() {
                return Err(self.outside(&path.written, &link));
            }
            current = current.at(parent.join(link));
        }
        Err(PathError::LinkLoop { path: path.written.clone() })
    }

    fn parent_directory(
        &self,
        path: &SessionPath,
        (parent, name): (&Path, &OsStr),
        parents: Parents,
    ) -> Result<Arc<OwnedFd>, PathError> {
        if parent == Path::new(".") {
            return Ok(Arc::clone(self.root_directory(path.root)));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = match self.resolve(path.root, parent, flags) {
            Err(Errno::NOENT) if parents == Parents::Create => self.make_directories(path, parent, name)?,
            outcome => outcome.map_err(|errno| self.path_error(&path.at(parent.to_owned()), errno))?,
        };
        Ok(Arc::new(directory))
    }

    /// Creates missing directories above a name. Each step is resolved from the root again.
    fn make_directories(
        &self,
        path: &SessionPath,
        directory: &Path,
        name: &OsStr,
    ) -> Result<OwnedFd, PathError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut reached = PathBuf::from(".");
        let mut current =
            self.resolve(path.root, &reached, flags).map_err(|errno| self.path_error(path, errno))?;
        let mut steps = directory.components();
        while let Some(step) = steps.next() {
            let next = reached.join(step);
            current = match self.resolve(path.root, &next, flags) {
                Err(Errno::NOENT) => {
                    // Creates nothing on the way to a path that the rules block.
                    let rest = Path::new(step.as_os_str()).join(steps.as_path()).join(name);
                    self.check_rules(path, current.as_fd(), Some(rest.as_os_str()))?;
                    match mkdirat(&current, step.as_os_str(), Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(PathError::io(&path.written, errno)),
                    }
                    self.resolve(path.root, &next, flags)
                }
                outcome => outcome,
            }
            .map_err(|errno| self.path_error(path, errno))?;
            reached = next;
        }
        Ok(current)
    }

    /// The missing directories above a path, outermost first.
    pub(crate) fn missing_above(&self, path: &SessionPath) -> Vec<SessionPath> {
        let above = path.below.ancestors().skip(1).filter(|below| !below.as_os_str().is_empty());
        let mut missing: Vec<SessionPath> =
            above.map(|below| path.at(below.to_owned())).take_while(|above| !self.exists(above)).collect();
        missing.reverse();
        missing
    }

    /// Creates a directory. Returns false if it exists already.
    pub(crate) fn make_directory(&self, path: &SessionPath, parents: Parents) -> Result<bool, PathError> {
        if let Ok(stat) = self.stat(path) {
            return match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Ok(false),
                _ => Err(PathError::Exists { path: path.written.clone() }),
            };
        }
        let target = self.target(path, parents)?;
        match mkdirat(&target.directory, &target.name, Mode::from_raw_mode(0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Err(PathError::Exists { path: path.written.clone() }),
            Err(errno) => Err(PathError::io(&path.written, errno)),
        }
    }
}
