//! Walks a directory tree on several threads. Opens every directory beneath its parent's descriptor and never
//! follows links, so that concurrent renames cannot lead the walk elsewhere.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use ignore::overrides::Override;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};

use super::ignore_files::IgnoreFiles;
use crate::files::{SessionPath, Workspace};

/// Threads per walk at most. Beyond that, the disk or the memory is the limit.
const MAX_THREADS: usize = 8;
/// Deeper directories are not read.
const MAX_DEPTH: usize = 256;
/// Buffer size for reading a directory.
pub(crate) const LISTING_BYTES: usize = 32 * 1024;

/// What a walk reports and what it skips.
#[derive(Clone, Debug)]
pub(crate) struct WalkFilter {
    /// Include names that begin with a dot.
    pub(crate) hidden: bool,
    /// Include what ignore files exclude.
    pub(crate) ignored: bool,
    /// Globs as for `rg -g`: if any of them includes, only included files are reported; excluded files never are.
    pub(crate) globs: Override,
    pub(crate) max_depth: usize,
    /// Report only this name, in the start directory.
    pub(crate) only: Option<OsString>,
    /// Include what the operator's rules block.
    pub(crate) blocked: bool,
}

impl Default for WalkFilter {
    fn default() -> Self {
        Self {
            hidden: false,
            ignored: false,
            globs: Override::empty(),
            max_depth: MAX_DEPTH,
            only: None,
            blocked: false,
        }
    }
}

/// How long a search may take, and whether it was cancelled.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) until: Instant,
    pub(crate) is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Patience").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Patience<'_> {
    pub(crate) fn is_over(&self) -> bool {
        (self.is_cancelled)() || Instant::now() >= self.until
    }
}

/// An entry that the walk found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding<'a> {
    /// The directory that it is in.
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a OsStr,
    /// Below the root of the session.
    pub(crate) below: &'a Path,
    pub(crate) kind: FileType,
}

impl Finding<'_> {
    /// Opens a file for reading. Fails for links and never blocks.
    pub(crate) fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(self.directory, self.name, flags, Mode::empty())
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkOutcome {
    /// It ended before everything was seen.
    pub(crate) is_partial: bool,
    /// Directories that were too deep to be read.
    pub(crate) too_deep: usize,
    /// Directories that could not be read.
    pub(crate) unreadable: usize,
}

/// A walk that is ready to run.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    workspace: &'a Workspace,
    root: &'a Path,
    root_number: usize,
    /// The start directory.
    start: OwnedFd,
    /// Its path below the root of the session; empty for the root.
    below: PathBuf,
    filter: WalkFilter,
    patience: Patience<'a>,
}

impl<'a> Walk<'a> {
    /// A walk from `path`, which is open as `start`.
    pub(crate) fn new(
        workspace: &'a Workspace,
        path: &SessionPath,
        start: OwnedFd,
        filter: WalkFilter,
        patience: Patience<'a>,
    ) -> Self {
        let root = workspace.root_path(path.root());
        let (root_number, below) = (path.root(), path.plain_below());
        Self { workspace, root, root_number, start, below, filter, patience }
    }

    pub(crate) fn patience(&self) -> Patience<'a> {
        self.patience
    }
}

/// A directory that is waiting to be read.
struct Pending {
    /// Its parent directory and its name there; `None` for the start.
    place: Option<(Arc<OwnedFd>, OsString)>,
    below: PathBuf,
    depth: usize,
    ignore: Arc<IgnoreFiles>,
}

/// What the threads of a walk share.
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
    is_over: AtomicBool,
    too_deep: AtomicUsize,
    unreadable: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Pending>,
    /// Threads that are reading a directory and may add to the queue.
    busy: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Waits for the next directory. `None`: there are no more.
    fn next(&self) -> Option<Pending> {
        let mut queue = self.lock();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(pending) = queue.waiting.pop() {
                queue.busy += 1;
                return Some(pending);
            }
            if queue.busy == 0 {
                return None;
            }
            self.news.wait(&mut queue);
        }
    }

    fn done(&self, found: Vec<Pending>) {
        let mut queue = self.lock();
        queue.busy -= 1;
        let wakes = if queue.busy == 0 { usize::MAX } else { found.len() };
        queue.waiting.extend(found);
        drop(queue);
        if wakes > 1 {
            self.news.notify_all();
        } else if wakes == 1 {
            self.news.notify_one();
        }
    }

    fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _queue = self.lock();
        self.news.notify_all();
    }
}

impl WalkOutcome {
    /// Whether there may be more than was seen.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_partial || self.too_deep > 0
    }
}

impl Walk<'_> {
    /// Passes every entry to a visitor; each thread has its own. A visitor that returns false ends the walk.
    pub(crate) fn run<V>(self, visitor: impl Fn() -> V + Sync) -> WalkOutcome
    where
        V: FnMut(&Finding<'_>) -> bool,
    {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let start =
            Pending { place: None, below: self.below.clone(), depth: 0, ignore: self.ignore_files_above() };
        let shared = Shared {
            queue: Mutex::new(Queue { waiting: vec![start], busy: 0 }),
            news: Condvar::new(),
            is_over: AtomicBool::new(false),
            too_deep: AtomicUsize::new(0),
            unreadable: AtomicUsize::new(0),
        };
        let work = || {
            let mut visit = visitor();
            let mut listing = Vec::with_capacity(LISTING_BYTES);
            while let Some(pending) = shared.next() {
                let found = self.read_directory(&pending, &shared, &mut listing, &mut visit);
                if self.patience.is_over() {
                    shared.give_up();
                }
                shared.done(found);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // The walk works with fewer threads too, only slower.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        WalkOutcome {
            is_partial: shared.is_over.load(Ordering::Relaxed),
            too_deep: shared.too_deep.load(Ordering::Relaxed),
            unreadable: shared.unreadable.load(Ordering::Relaxed),
        }
    }

    /// The ignore rules of the directories above the start.
    fn ignore_files_above(&self) -> Arc<IgnoreFiles> {
        let mut ignore = Arc::new(IgnoreFiles::default());
        if self.filter.ignored {
            return ignore;
        }
        let mut above: Vec<&Path> = self.below.ancestors().skip(1).collect();
        above.reverse();
        for below in above {
            let place = SessionPath::found(self.root_number, below.join("."));
            if let Ok(directory) = self.workspace.open_directory(&place) {
                ignore = IgnoreFiles::of(&ignore, &self.root.join(below), directory.as_fd(), |_| true);
            }
        }
        ignore
    }

    /// Visits the entries of one directory and returns its subdirectories.
    fn read_directory(
        &self,
        pending: &Pending,
        shared: &Shared,
        listing: &mut Vec<u8>,
        visit: &mut impl FnMut(&Finding<'_>) -> bool,
    ) -> Vec<Pending> {
        let entries = self.open(pending).and_then(|directory| {
            let entries = list_entries(directory.as_fd(), listing)?;
            Ok((directory, entries))
        });
        let Ok((directory, entries)) = entries else {
            shared.unreadable.fetch_add(1, Ordering::Relaxed);
            return Vec::new();
        };
        let ignore = if self.filter.ignored {
            Arc::clone(&pending.ignore)
        } else {
            let has = |name: &str| entries.iter().any(|(entry, _)| entry == name);
            IgnoreFiles::of(&pending.ignore, &self.root.join(&pending.below), directory.as_fd(), has)
        };
        let rules = self.workspace.rules_in(directory.as_fd());
        let directory = Arc::new(directory);
        let mut found = Vec::new();
        for (name, kind) in entries {
            let kind = known_kind(directory.as_fd(), &name, kind);
            let below = pending.below.join(&name);
            let is_directory = kind == FileType::Directory;
            let is_blocked = !self.filter.blocked && rules.block(&name, is_directory);
            if is_blocked || self.skips(&name, &below, is_directory, &ignore) {
                continue;
            }
            let depth = pending.depth + 1;
            let finding = Finding { directory: directory.as_fd(), name: &name, below: &below, kind };
            if !visit(&finding) {
                shared.give_up();
                return Vec::new();
            }
            if self.filter.only.is_some() {
                continue;
            }
            if is_directory && depth >= MAX_DEPTH {
                shared.too_deep.fetch_add(1, Ordering::Relaxed);
            } else if is_directory && depth < self.filter.max_depth {
                let place = Some((Arc::clone(&directory), name));
                found.push(Pending { place, below, depth, ignore: Arc::clone(&ignore) });
            }
        }
        found
    }

    fn open(&self, pending: &Pending) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match &pending.place {
            Some((above, name)) => openat(above, name, flags, Mode::empty()),
            None => openat(&self.start, ".", flags, Mode::empty()),
        }
    }

    fn skips(&self, name: &OsStr, below: &Path, is_directory: bool, ignore: &IgnoreFiles) -> bool {
        if let Some(only) = &self.filter.only {
            return name != only;
        }
        let globbed = if self.filter.globs.is_empty() {
            ignore::Match::None
        } else {
            self.filter.globs.matched(below, is_directory)
        };
        if globbed.is_ignore() {
            return true;
        }
        // Git's own files are never reported.
        if (name == ".git" && !self.filter.blocked)
            || (!self.filter.hidden && name.as_bytes().starts_with(b".") && !globbed.is_whitelist())
        {
            return true;
        }
        !self.filter.ignored && ignore.skips(&self.root.join(below), is_directory)
    }
}

/// The names in a directory, with their kind if the file system reports it.
pub(crate) fn list_entries(
    directory: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
) -> rustix::io::Result<Vec<(OsString, FileType)>> {
    let mut entries = Vec::new();
    let mut reading = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = reading.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
        }
    }
    Ok(entries)
}

/// Looks up a kind that is still unknown. Does not follow links.
pub(crate) fn known_kind(directory: BorrowedFd<'_>, name: &OsStr, kind: FileType) -> FileType {
    if kind != FileType::Unknown {
        return kind;
    }
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
