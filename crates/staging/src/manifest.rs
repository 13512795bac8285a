//! What a tree was like at one moment, in sixteen bytes for each entry: enough to say whether a path is as it was.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;

use crate::changes::BaseState;
use crate::held_tree::{HeldTree, Seen};
use crate::state_files::write_atomically;
use crate::walk::{Extent, Visit, walk};

const MAGIC: &[u8; 8] = b"rf-mani1";
const KEY_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// A file that changed within so long before it was looked at may change again without another time.
const GRANULARITY: Duration = Duration::from_millis(20);
/// Stands for "there is nothing".
const ABSENT: u64 = 0;
/// Stands for "there is something, which is like nothing that will ever be found there".
const UNLIKE: u64 = 1;

/// States of paths, by hashes with a key of the copy's own, so that no name can be chosen to collide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    key: [u8; KEY_BYTES],
    /// Hash of the path, hash of the state; sorted.
    entries: Vec<(u64, u64)>,
}

impl Manifest {
    pub(crate) fn empty() -> Self {
        Self { key: *uuid::Uuid::new_v4().as_bytes(), entries: Vec::new() }
    }

    /// Walks a tree. `each` is called with every directory that is read.
    pub(crate) fn of(
        tree: &HeldTree,
        each: &(dyn Fn(&Visit<'_>) -> io::Result<()> + Sync),
    ) -> io::Result<Self> {
        let mut manifest = Self::empty();
        let key = manifest.key;
        let (entries, young) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        walk(tree, Extent::WithoutGit, &|visit| {
            each(&visit)?;
            let recent = since_epoch().saturating_sub(GRANULARITY);
            let mut found = Vec::with_capacity(visit.entries.len());
            for (name, seen) in visit.entries {
                let path = visit.path.join(name);
                found.push((path_hash(&key, &path), state_hash(&key, Some(seen))));
                if !seen.is_directory() && changed(seen) >= recent {
                    young.lock().push(path);
                }
            }
            entries.lock().extend(found);
            Ok(())
        })?;
        manifest.entries = entries.into_inner();
        manifest.entries.sort_unstable();
        manifest.look_again(tree, &young.into_inner())?;
        Ok(manifest)
    }

    /// Looks at files again that changed just before, once the clock has moved on.
    fn look_again(&mut self, tree: &HeldTree, young: &[PathBuf]) -> io::Result<()> {
        if young.is_empty() {
            return Ok(());
        }
        std::thread::sleep(GRANULARITY);
        for path in young {
            self.set(path, tree.look(path)?.as_ref());
        }
        Ok(())
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there was something at a path.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.find(path).is_some_and(|state| state != ABSENT)
    }

    /// Whether a path is as it was.
    pub(crate) fn compare(&self, path: &Path, now: Option<&Seen>) -> BaseState {
        let then = self.find(path).unwrap_or(ABSENT);
        if then == state_hash(&self.key, now) { BaseState::AsAtStart } else { BaseState::Changed }
    }

    /// Whether a path was noted, and is as it was noted: also that there is nothing.
    pub(crate) fn knows(&self, path: &Path, now: Option<&Seen>) -> bool {
        self.find(path).is_some_and(|then| then == state_hash(&self.key, now))
    }

    pub(crate) fn state(&self, now: Option<&Seen>) -> u64 {
        state_hash(&self.key, now)
    }

    /// Notes how a path is now; nothing of what is gone.
    pub(crate) fn set(&mut self, path: &Path, now: Option<&Seen>) {
        let hash = path_hash(&self.key, path);
        match (self.place(hash), now) {
            (Ok(place), Some(_)) => self.entries[place].1 = state_hash(&self.key, now),
            (Ok(place), None) => {
                self.entries.remove(place);
            }
            (Err(place), Some(_)) => self.entries.insert(place, (hash, state_hash(&self.key, now))),
            (Err(_), None) => {}
        }
    }

    /// Notes a state that [`Manifest::state`] gave, also that there is nothing.
    pub(crate) fn set_state(&mut self, path: &Path, state: u64) {
        let hash = path_hash(&self.key, path);
        match self.place(hash) {
            Ok(place) => self.entries[place].1 = state,
            Err(place) => self.entries.insert(place, (hash, state)),
        }
    }

    /// Notes that there was something at a path, and that whatever is found there counts as changed.
    pub(crate) fn set_unlike(&mut self, path: &Path) {
        self.set_state(path, UNLIKE);
    }

    /// A short name of a path, which cannot be foreseen.
    pub(crate) fn hash(&self, path: &Path) -> u64 {
        path_hash(&self.key, path)
    }

    /// The state that was noted of a path.
    pub(crate) fn noted(&self, path: &Path) -> Option<u64> {
        self.find(path)
    }

    fn place(&self, hash: u64) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&hash, |entry| entry.0)
    }

    fn find(&self, path: &Path) -> Option<u64> {
        let place = self.place(path_hash(&self.key, path)).ok()?;
        Some(self.entries[place].1)
    }

    pub(crate) fn save(&self, file: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MAGIC.len() + KEY_BYTES + self.entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.key);
        for (path, state) in &self.entries {
            bytes.extend_from_slice(&path.to_le_bytes());
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        write_atomically(file, &bytes)
    }

    pub(crate) fn load(file: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(file)?;
        Self::parse(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the manifest is damaged"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (key, rest) = rest.split_first_chunk::<KEY_BYTES>()?;
        let (entries, more) = rest.as_chunks::<ENTRY_BYTES>();
        if !more.is_empty() {
            return None;
        }
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let entries = entries.iter().map(|entry| Some((number(&entry[..8])?, number(&entry[8..])?)));
        Some(Self { key: *key, entries: entries.collect::<Option<_>>()? })
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn changed(seen: &Seen) -> Duration {
    let (seconds, nanoseconds) = seen.changed;
    Duration::from_secs(seconds.try_into().unwrap_or_default()) + Duration::from_nanos(nanoseconds)
}

fn first_eight(digest: Sha256) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.finalize()[..8]);
    u64::from_le_bytes(bytes)
}

fn path_hash(key: &[u8], path: &Path) -> u64 {
    first_eight(Sha256::new().chain_update(key).chain_update(b"p").chain_update(path.as_os_str().as_bytes()))
}

fn state_hash(key: &[u8], seen: Option<&Seen>) -> u64 {
    let Some(seen) = seen else { return ABSENT };
    let digest = Sha256::new().chain_update(key).chain_update([b's', seen.kind as u8]);
    let mut digest = digest.chain_update(seen.mode.to_le_bytes());
    // The times of a directory tell only of its entries, which are noted themselves.
    if !seen.is_directory() {
        let (modified, changed) = (seen.modified, seen.changed);
        let times = [modified.0, modified.1.cast_signed(), changed.0, changed.1.cast_signed()];
        for number in times.into_iter().chain([seen.bytes.cast_signed(), seen.inode.cast_signed()]) {
            digest.update(number.to_le_bytes());
        }
    }
    first_eight(digest).max(UNLIKE + 1)
}
