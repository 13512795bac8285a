//! The originals of all files that the session's tools changed, as they were before the first change, within a
//! memory limit.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::state::State;

/// Memory limit for all originals.
pub(crate) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Files that are recorded at most.
const MAX_FILES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Mutex<Entries>,
    /// Keeps it for a later server of the session.
    state: Arc<State>,
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

    /// Goes on with what an earlier server of the session has recorded.
    pub(crate) fn keeping(
        state: &Arc<State>,
        originals: Vec<(PathBuf, Original)>,
        is_incomplete: bool,
    ) -> Self {
        let mut entries = Entries { is_incomplete, ..Entries::default() };
        for (path, before) in originals {
            if let Some(before) = entries.admit(&path, before) {
                entries.originals.insert(path, before);
            }
        }
        Self { entries: Mutex::new(entries), state: Arc::clone(state) }
    }

    /// Records the original of a file, unless an earlier change already did.
    pub(crate) fn note(&self, path: PathBuf, before: Original) {
        let mut entries = self.lock();
        let was_incomplete = entries.is_incomplete;
        if let Some(before) = entries.admit(&path, before) {
            self.state.note_original(&path, &before);
            entries.originals.insert(path, before);
        } else if entries.is_incomplete && !was_incomplete {
            self.state.note_incomplete();
        }
    }

    /// All originals, and whether the list is complete.
    pub(crate) fn originals(&self) -> (BTreeMap<PathBuf, Original>, bool) {
        let entries = self.lock();
        (entries.originals.clone(), !entries.is_incomplete)
    }
}

impl Entries {
    /// What is to be recorded of a file, within the limits. `None` if nothing is.
    fn admit(&mut self, path: &Path, before: Original) -> Option<Original> {
        if self.originals.contains_key(path) {
            return None;
        }
        if self.originals.len() >= MAX_FILES {
            self.is_incomplete = true;
            return None;
        }
        let before = match before {
            Original::Contents(contents) if self.bytes + contents.len() > MAX_BYTES => Original::Unkept,
            other => other,
        };
        self.bytes += before.size();
        Some(before)
    }
}
