//! What is read from files, and read again when they change.
//!
//! There is no watcher: whoever uses the value looks at the files, at most once a second. A change that cannot
//! be used is told and leaves the value as it was, so that a slip of an editor locks nobody out.

use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the files are looked at. Two system calls a second cost nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Files, and how a value is made of them.
pub(crate) trait Source {
    type Value: fmt::Debug;
    type Error: fmt::Display;

    fn files(&self) -> Vec<PathBuf>;
    fn load(&self) -> Result<Self::Value, Self::Error>;
}

#[derive(Debug)]
pub(crate) struct Reloaded<S: Source> {
    source: S,
    current: RwLock<Arc<S::Value>>,
    looked: Mutex<Looked>,
}

/// When the files were last looked at, and what they were then.
#[derive(Debug)]
struct Looked {
    at: Instant,
    marks: Vec<Option<Mark>>,
}

/// Changes whenever a file is written, replaced, or given other permissions.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl<S: Source> Reloaded<S> {
    pub(crate) fn new(source: S) -> Result<Self, S::Error> {
        // Before they are read: what is written meanwhile is then seen as a change.
        let marks = marks(&source);
        let current = RwLock::new(Arc::new(source.load()?));
        Ok(Self { source, current, looked: Mutex::new(Looked { at: Instant::now(), marks }) })
    }

    /// The value as of a second ago or later.
    pub(crate) fn current(&self) -> Arc<S::Value> {
        // Who finds it locked goes on: somebody is looking.
        if let Some(mut looked) = self.looked.try_lock()
            && looked.at.elapsed() >= LOOK_EVERY
        {
            looked.at = Instant::now();
            self.look(&mut looked);
        }
        Arc::clone(&self.current.read())
    }

    fn look(&self, looked: &mut Looked) {
        let marks = marks(&self.source);
        if marks == looked.marks {
            return;
        }
        looked.marks = marks;
        let names = self.source.files();
        let names: Vec<_> = names.iter().map(|path| path.display().to_string()).collect();
        match self.source.load() {
            Ok(value) => {
                *self.current.write() = Arc::new(value);
                tracing::info!("{} changed and was read again", names.join(" or "));
            }
            Err(error) => {
                tracing::error!(
                    "{} changed and cannot be used; what was read before stays in force: {error}",
                    names.join(" or ")
                );
            }
        }
    }
}

fn marks(source: &impl Source) -> Vec<Option<Mark>> {
    source.files().iter().map(|path| Mark::of(path)).collect()
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
