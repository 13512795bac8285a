//! What the session's own tools have changed: every file as it was before the first change, as long as there is
//! room.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Originals take this much memory at most.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// More files are not kept in mind.
const MAX_FILES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    /// By absolute path.
    originals: BTreeMap<PathBuf, Original>,
    bytes: usize,
    is_incomplete: bool,
}

/// What was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Original {
    Nothing,
    Contents(Vec<u8>),
    /// Too much to be kept.
    Unkept,
}

impl Original {
    /// What it takes to keep it.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Contents(contents) => contents.len(),
            Self::Nothing | Self::Unkept => 0,
        }
    }
}

impl Journal {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock()
    }

    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.lock().originals.contains_key(path)
    }

    /// Notes how a file was, the first time that it is changed.
    pub(crate) fn note(&self, path: PathBuf, before: Original) {
        let mut entries = self.lock();
        if entries.originals.contains_key(&path) {
            return;
        }
        if entries.originals.len() >= MAX_FILES {
            entries.is_incomplete = true;
            return;
        }
        let before = match before {
            Original::Contents(contents) if entries.bytes + contents.len() > MAX_BYTES => Original::Unkept,
            other => other,
        };
        if let Original::Contents(contents) = &before {
            entries.bytes += contents.len();
        }
        entries.originals.insert(path, before);
    }

    /// All that was noted, and whether that is everything.
    pub(crate) fn originals(&self) -> (BTreeMap<PathBuf, Original>, bool) {
        let entries = self.lock();
        (entries.originals.clone(), !entries.is_incomplete)
    }
}
