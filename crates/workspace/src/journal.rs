//! The originals of all files that the session's tools changed, as they were before the first change, within a
//! memory limit.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Memory limit for all originals.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Files that are recorded at most.
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

/// A file before its first change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Original {
    /// There was no file.
    Nothing,
    Contents(Vec<u8>),
    /// There was a file, but it was too large to keep.
    Unkept,
}

impl Original {
    /// Bytes of memory that it takes.
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

    /// Records the original of a file, unless an earlier change already did.
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

    /// All originals, and whether the list is complete.
    pub(crate) fn originals(&self) -> (BTreeMap<PathBuf, Original>, bool) {
        let entries = self.lock();
        (entries.originals.clone(), !entries.is_incomplete)
    }
}
