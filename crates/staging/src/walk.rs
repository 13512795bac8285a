//! Walks a tree with a few threads, directory by directory, without following links.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

use crate::apply::is_own;
use crate::held_tree::{HeldTree, Seen, entries_of};

/// More threads gain little: they wait for the same locks of the kernel.
const MAX_THREADS: usize = 4;
/// Deeper directories are not entered. Each level costs a resolution of all above it.
pub(crate) const MAX_DEPTH: usize = 1024;

/// A directory that was read.
pub(crate) struct Visit<'a> {
    /// Relative to the top.
    pub(crate) path: &'a Path,
    pub(crate) directory: &'a OwnedFd,
    /// Without `.git` of any kind if the walk leaves that out.
    pub(crate) entries: &'a [(OsString, Seen)],
}

/// What is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Everything,
    /// Without what an apply keeps at the top of a base.
    Project,
    /// The same without `.git` of any kind.
    WithoutGit,
}

/// The directories that wait, and how many are being read.
#[derive(Default)]
struct Queue {
    waiting: Vec<PathBuf>,
    busy: usize,
    failure: Option<io::Error>,
}

/// Calls `visit` with every directory, parents before their children. An error of `visit` ends the walk; directories
/// that cannot be read are passed over.
pub(crate) fn walk(
    tree: &HeldTree,
    extent: Extent,
    visit: &(dyn Fn(Visit<'_>) -> io::Result<()> + Sync),
) -> io::Result<()> {
    let queue = Mutex::new(Queue { waiting: vec![PathBuf::new()], ..Queue::default() });
    let bell = Condvar::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let work = || {
        while let Some(path) = next(&queue, &bell) {
            let outcome = read(tree, extent, &path, visit);
            let mut queue = queue.lock();
            queue.busy -= 1;
            match outcome {
                Ok(below) => queue.waiting.extend(below),
                Err(error) => queue.failure = Some(error),
            }
            bell.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    queue.into_inner().failure.map_or(Ok(()), Err)
}

/// Waits for a directory to read. `None`: there will be no more.
fn next(queue: &Mutex<Queue>, bell: &Condvar) -> Option<PathBuf> {
    let mut queue = queue.lock();
    loop {
        if queue.failure.is_some() {
            return None;
        }
        if let Some(path) = queue.waiting.pop() {
            queue.busy += 1;
            return Some(path);
        }
        if queue.busy == 0 {
            return None;
        }
        bell.wait(&mut queue);
    }
}

/// Reads one directory and returns those in it.
fn read(
    tree: &HeldTree,
    extent: Extent,
    path: &Path,
    visit: &(dyn Fn(Visit<'_>) -> io::Result<()> + Sync),
) -> io::Result<Vec<PathBuf>> {
    let Ok(directory) = tree.directory(path) else { return Ok(Vec::new()) };
    let Ok(mut entries) = entries_of(&directory) else { return Ok(Vec::new()) };
    if extent == Extent::WithoutGit {
        entries.retain(|(name, _)| name != ".git");
    }
    if extent != Extent::Everything && path.as_os_str().is_empty() {
        entries.retain(|(name, _)| !is_own(name));
    }
    visit(Visit { path, directory: &directory, entries: &entries })?;
    if path.components().count() >= MAX_DEPTH {
        return Ok(Vec::new());
    }
    let below = entries.iter().filter(|(_, seen)| seen.is_directory());
    Ok(below.map(|(name, _)| path.join(name)).collect())
}
