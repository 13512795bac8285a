//! The directories of the session, opened at the start, and the resolution of paths beneath them: `openat2` with
//! `RESOLVE_BENEATH`, which follows links and `..` only as long as they stay below.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use super::path_error::PathError;
use super::session_path::{self, SessionPath};
use crate::rules::PathRules;

/// Attempts to resolve a path: a concurrent rename can make the kernel give up on a `..`.
const MAX_ATTEMPTS: usize = 64;

/// The directories of the session.
#[derive(Debug)]
pub(crate) struct Workspace {
    roots: Vec<Root>,
    /// Whether writes reach the disk before they are reported.
    pub(super) is_durable: bool,
    rules: Option<PathRules>,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    directory: Arc<OwnedFd>,
}

/// An open file and its metadata.
#[derive(Debug)]
pub(crate) struct FoundFile {
    pub(crate) file: File,
    pub(crate) stat: Stat,
}

impl Workspace {
    /// Opens the directories of the session. Relative paths start at the first.
    pub(crate) fn open(paths: &[PathBuf]) -> io::Result<Self> {
        let roots = paths
            .iter()
            .map(|path| {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
                Ok(Root { path: path.canonicalize()?, directory: Arc::new(directory) })
            })
            .collect::<io::Result<Vec<_>>>()?;
        if roots.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a workspace needs a directory"));
        }
        Ok(Self { roots, is_durable: false, rules: None })
    }

    /// Makes every write reach the disk before it is reported.
    #[must_use]
    pub(crate) fn durable(mut self, is_durable: bool) -> Self {
        self.is_durable = is_durable;
        self
    }

    /// Applies the operator's rules about paths.
    #[must_use]
    pub(crate) fn with_rules(mut self, rules: Option<PathRules>) -> Self {
        self.rules = rules;
        self
    }

    pub(crate) fn path_rules(&self) -> Option<&PathRules> {
        self.rules.as_ref()
    }

    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(|root| root.path.as_path())
    }

    pub(crate) fn root_path(&self, root: usize) -> &Path {
        &self.roots[root].path
    }

    /// Reads a relative path, an absolute one inside the workspace, or a `file:` URI of one. Opens nothing.
    pub(crate) fn path(&self, text: &str) -> Result<SessionPath, PathError> {
        let path = session_path::parse(text)?;
        let (root, below) = if path.is_absolute() {
            self.root_of(&path).ok_or_else(|| self.outside(text, &path))?
        } else {
            (0, path)
        };
        Ok(SessionPath::new(root, below, text))
    }

    /// How clients see a path: relative to the first root, absolute below the others.
    pub(crate) fn show(&self, path: &SessionPath) -> String {
        let below = path.plain_below();
        let shown = match path.root {
            0 if below.as_os_str().is_empty() => PathBuf::from("."),
            0 => below,
            root => self.roots[root].path.join(below),
        };
        shown.to_string_lossy().into_owned()
    }

    /// The absolute path, as it is spelled. For URIs.
    pub(crate) fn absolute(&self, path: &SessionPath) -> PathBuf {
        let root = &self.roots[path.root].path;
        if path.below == Path::new(".") { root.clone() } else { root.join(&path.below) }
    }

    /// The innermost root above an absolute path, by its spelling, and the path below that root.
    pub(crate) fn root_of(&self, path: &Path) -> Option<(usize, PathBuf)> {
        let below =
            |(index, root): (usize, &Root)| Some((index, path.strip_prefix(&root.path).ok()?.to_owned()));
        self.roots.iter().enumerate().filter_map(below).min_by_key(|(_, below)| below.as_os_str().len())
    }

    pub(super) fn root_directory(&self, root: usize) -> &Arc<OwnedFd> {
        &self.roots[root].directory
    }

    /// Opens a path beneath a root and returns the kernel's plain answer.
    pub(super) fn resolve(&self, root: usize, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..MAX_ATTEMPTS {
            match openat2(self.root_directory(root), below, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }

    fn reach(&self, path: &SessionPath, flags: OFlags) -> Result<OwnedFd, PathError> {
        self.resolve(path.root, &path.below, flags).map_err(|errno| self.path_error(path, errno))
    }

    /// Opens a file for reading. Never blocks on a pipe.
    pub(crate) fn open_file(&self, path: &SessionPath) -> Result<FoundFile, PathError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match self.resolve(path.root, &path.below, flags) {
            // The errors of sockets and of devices without a driver.
            Err(Errno::NXIO | Errno::NODEV) => return Err(special(path, "socket or device")),
            outcome => outcome.map_err(|errno| self.path_error(path, errno))?,
        };
        let stat = fstat(&file).map_err(|errno| PathError::io(&path.written, errno))?;
        check_regular(path, &stat)?;
        self.check_rules(path, file.as_fd(), None)?;
        Ok(FoundFile { file: file.into(), stat })
    }

    /// Opens a directory for listing or walking.
    pub(crate) fn open_directory(&self, path: &SessionPath) -> Result<OwnedFd, PathError> {
        let directory = self.reach(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?;
        self.check_rules(path, directory.as_fd(), None)?;
        Ok(directory)
    }

    /// Opens the directory of a file for searching, and returns it with the file's name.
    pub(crate) fn directory_of(
        &self,
        path: &SessionPath,
    ) -> Result<((SessionPath, OwnedFd), OsString), PathError> {
        let (parent, name) = path.split()?;
        let directory = path.at(parent);
        Ok(((directory.clone(), self.open_directory(&directory)?), name))
    }

    /// The real path of an open file below its root. `None` if it was deleted or moved outside.
    pub(crate) fn real_below(&self, open: BorrowedFd<'_>) -> Option<PathBuf> {
        let is_there = fstat(open).is_ok_and(|stat| stat.st_nlink > 0);
        let real = real_path(open).filter(|_| is_there)?;
        self.root_of(&real).map(|(_, below)| below)
    }

    /// The operator's rules for the entries of an open directory.
    pub(crate) fn rules_in(&self, directory: BorrowedFd<'_>) -> RulesIn<'_> {
        RulesIn { rules: self.rules.as_ref().map(|rules| (rules, self.real_below(directory))) }
    }

    /// Applies the rules to an open file, or to a name in an open directory, by its real path.
    pub(super) fn check_rules(
        &self,
        path: &SessionPath,
        open: BorrowedFd<'_>,
        name: Option<&OsStr>,
    ) -> Result<(), PathError> {
        let Some(rules) = &self.rules else { return Ok(()) };
        let blocked = |rule: String| PathError::Blocked { path: path.written.clone(), rule };
        let below = self.real_below(open).ok_or_else(|| blocked("its real path is unknown".to_owned()))?;
        let is_directory =
            || fstat(open).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        let verdict = match name {
            Some(name) => rules.against(&below.join(name)),
            None => rules.against_kind(&below, is_directory()),
        };
        verdict.map_or(Ok(()), |rule| Err(blocked(rule)))
    }

    /// The metadata of what a path leads to.
    pub(crate) fn stat(&self, path: &SessionPath) -> Result<Stat, PathError> {
        let place = self.reach(path, OFlags::PATH)?;
        self.check_rules(path, place.as_fd(), None)?;
        fstat(&place).map_err(|errno| PathError::io(&path.written, errno))
    }

    pub(crate) fn exists(&self, path: &SessionPath) -> bool {
        self.resolve(path.root, &path.below, OFlags::PATH).is_ok()
    }

    /// Explains an error of the kernel for a path, with hints.
    pub(crate) fn path_error(&self, path: &SessionPath, errno: Errno) -> PathError {
        let written = path.written.clone();
        match errno {
            Errno::NOENT => PathError::NotFound { path: written, nearest: self.nearest_names(path) },
            Errno::XDEV => self.outside(&path.written, &path.below),
            Errno::LOOP => PathError::LinkLoop { path: written },
            Errno::NOTDIR => PathError::NotADirectory { path: written },
            Errno::ISDIR => PathError::IsDirectory { path: written },
            Errno::AGAIN => PathError::Restless { path: written },
            Errno::EXIST => PathError::Exists { path: written },
            errno => PathError::io(&path.written, errno),
        }
    }

    /// The roots, for messages.
    pub(super) fn described(&self) -> String {
        self.roots().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
    }
}

/// The operator's rules for one directory, by its real path.
#[derive(Debug)]
pub(crate) struct RulesIn<'a> {
    /// `None`: there are no rules. In a directory without a real path, everything is blocked.
    rules: Option<(&'a PathRules, Option<PathBuf>)>,
}

impl RulesIn<'_> {
    pub(crate) fn block(&self, name: impl AsRef<Path>, is_directory: bool) -> bool {
        self.rules.as_ref().is_some_and(|(rules, directory)| {
            let place = directory.as_ref().map(|directory| directory.join(name));
            place.is_none_or(|place| rules.against_kind(&place, is_directory).is_some())
        })
    }
}

/// The real path of an open file.
fn real_path(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(Path::new(OsStr::from_bytes(path.as_bytes())).to_owned())
}

fn check_regular(path: &SessionPath, stat: &Stat) -> Result<(), PathError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(PathError::IsDirectory { path: path.written.clone() }),
        other => Err(special(path, kind_name(other))),
    }
}

fn special(path: &SessionPath, kind: &'static str) -> PathError {
    PathError::Special { path: path.written.clone(), kind }
}

/// The name of a file type in messages.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "pipe",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "special file",
    }
}
