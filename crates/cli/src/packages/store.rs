//! Where packages lie, below ringfence's own directory:
//!
//! ```text
//! packages/npx-NAME-HASH.lock      held by whoever installs
//! packages/npx-NAME-HASH/3/tree/   the third generation: all that the installing fence may write
//! packages/npx-NAME-HASH/3/complete  the marker, where no fence can write it
//! ```
//! Programs name their own place, so a tree is filled where it stays and is never moved. Who uses a generation
//! holds a lock of its marker, and what is in use is not removed.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fence::HostEnvironment;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::recognition::Package;

const MARKER: &str = "complete";
const TREE: &str = "tree";
/// Markers are ours and small.
const MAX_MARKER: u64 = 64 * 1024;
/// A session may have started with the one before the newest.
const KEPT_GENERATIONS: usize = 2;

/// What is known of a generation that is complete.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Marker {
    pub(super) package: Package,
    /// The launcher that was found for it.
    pub(super) launcher: PathBuf,
    /// What ran the installation: another one, and native parts may not fit any more.
    pub(super) toolchain: String,
    /// The program to execute, below the tree.
    pub(super) entry: PathBuf,
    /// Seconds since 1970.
    pub(super) time: u64,
    pub(super) bytes: u64,
}

/// The directory of one package.
#[derive(Clone, Debug)]
pub(super) struct PackageDirectory(PathBuf);

/// A complete generation, which stays as long as this is held.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) tree: PathBuf,
    pub(super) marker: Marker,
    pub(super) lease: File,
}

/// A generation that is being filled.
#[derive(Debug)]
pub(super) struct Unfinished {
    directory: PathBuf,
}

/// Held while a package is installed or removed. Dropping it lets the next one go on.
#[derive(Debug)]
pub(super) struct PackageLock {
    _file: File,
}

impl PackageDirectory {
    pub(super) fn of(
        host_environment: &HostEnvironment,
        package: &Package,
        launcher: &Path,
    ) -> io::Result<Self> {
        let identity = serde_json::to_vec(&(package, launcher))?;
        let digest = Sha256::digest(&identity);
        let hash = digest.iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        let name = package.name().trim_start_matches('@').replace('/', "-");
        let readable: String = name.chars().take(60).collect();
        Ok(Self(
            host_environment.packages()?.join(format!("{}-{readable}-{hash:016x}", package.tool.as_str())),
        ))
    }

    /// All that are there, by name.
    pub(super) fn all(host_environment: &HostEnvironment) -> io::Result<Vec<Self>> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(host_environment.packages()?)?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
        Ok(found.into_iter().map(Self).collect())
    }

    /// Waits for others who install the same package; `waiting` is called if there are any.
    pub(super) fn lock(&self, waiting: impl FnOnce()) -> io::Result<PackageLock> {
        let path = self.lock_file();
        let mut waiting = Some(waiting);
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    while let Err(error) = rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                        if error != rustix::io::Errno::INTR {
                            return Err(error.into());
                        }
                    }
                }
                Err(error) => return Err(error.into()),
            }
            // Whoever held it may have removed the file together with the package.
            if is_still_at(&file, &path) {
                return Ok(PackageLock { _file: file });
            }
        }
    }

    fn lock_file(&self) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(".lock");
        name.into()
    }

    /// The newest generation that is complete and in its place.
    pub(super) fn newest(&self) -> Option<Generation> {
        self.numbers().into_iter().rev().find_map(|number| Generation::open(&self.generation(number)))
    }

    /// A place for the next one. Under the lock: what nobody finished goes.
    pub(super) fn begin(&self) -> io::Result<Unfinished> {
        private_directory().recursive(true).create(&self.0)?;
        let numbers = self.numbers();
        for number in &numbers {
            let directory = self.generation(*number);
            if !directory.join(MARKER).exists() {
                fence::remove_tree(&directory)?;
            }
        }
        let directory = self.generation(numbers.last().map_or(1, |last| last + 1));
        private_directory().create(&directory)?;
        private_directory().create(directory.join(TREE))?;
        Ok(Unfinished { directory })
    }

    /// Under the lock: all but the newest ones and those in use go.
    pub(super) fn remove_old(&self) {
        for number in self.numbers().into_iter().rev().skip(KEPT_GENERATIONS) {
            // What cannot be removed now is tried again after the next installation.
            let _ = self.remove(number);
        }
    }

    /// Under the lock: everything goes that is not in use. Says whether that was everything.
    pub(super) fn clear(&self) -> io::Result<bool> {
        let mut is_everything = true;
        for number in self.numbers() {
            is_everything &= self.remove(number)?;
        }
        if is_everything {
            fence::remove_tree(&self.0)?;
            // Last: whoever waits for it sees that it is gone, and makes another.
            std::fs::remove_file(self.lock_file())?;
        }
        Ok(is_everything)
    }

    fn remove(&self, number: u64) -> io::Result<bool> {
        let directory = self.generation(number);
        let marker = directory.join(MARKER);
        let held = match File::open(&marker) {
            Ok(file) => {
                if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    return Ok(false);
                }
                // First: from now on it is not complete.
                std::fs::remove_file(&marker)?;
                Some(file)
            }
            Err(_) => None,
        };
        fence::remove_tree(&directory)?;
        drop(held);
        Ok(true)
    }

    fn generation(&self, number: u64) -> PathBuf {
        self.0.join(number.to_string())
    }

    fn numbers(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut numbers: Vec<u64> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }
}

impl Generation {
    fn open(directory: &Path) -> Option<Self> {
        let path = directory.join(MARKER);
        let lease = File::open(&path).ok()?;
        rustix::fs::flock(&lease, FlockOperation::NonBlockingLockShared).ok()?;
        if !is_still_at(&lease, &path) {
            return None;
        }
        let mut text = Vec::new();
        (&lease).take(MAX_MARKER).read_to_end(&mut text).ok()?;
        let marker: Marker = serde_json::from_slice(&text).ok()?;
        Some(Self { tree: directory.join(TREE), marker, lease })
    }

    pub(super) fn entry(&self) -> PathBuf {
        self.tree.join(&self.marker.entry)
    }

    /// How long it has been there. A clock that was set back makes it new.
    pub(super) fn age(&self) -> Duration {
        let since = UNIX_EPOCH + Duration::from_secs(self.marker.time);
        SystemTime::now().duration_since(since).unwrap_or_default()
    }
}

impl Unfinished {
    pub(super) fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }

    /// Marks it as complete, in one step.
    pub(super) fn complete(self, marker: &Marker) -> io::Result<Generation> {
        let draft = self.directory.join("draft");
        std::fs::write(&draft, serde_json::to_vec(marker)?)?;
        std::fs::rename(draft, self.directory.join(MARKER))?;
        Generation::open(&self.directory).ok_or_else(|| io::Error::other("somebody removes the new package"))
    }

    pub(super) fn abandon(self) {
        // What stays is removed before the next one is filled.
        let _ = fence::remove_tree(&self.directory);
    }
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What all files below a directory take, without following links.
pub(super) fn bytes_below(directory: &Path) -> u64 {
    let (mut bytes, mut left) = (0, vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                left.push(entry.path());
            } else {
                bytes += metadata.len();
            }
        }
    }
    bytes
}

fn private_directory() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}
