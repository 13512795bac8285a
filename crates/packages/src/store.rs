//! The directories of packages, below ringfence's own:
//!
//! ```text
//! packages/npx-NAME-HASH.lock        locked by the process that installs
//! packages/npx-NAME-HASH/3/tree/     the third generation: all that the installing fence may write
//! packages/npx-NAME-HASH/3/lock      every version and hash in the tree; out of reach for every fence
//! packages/npx-NAME-HASH/3/complete  the marker, likewise
//! ```
//! Installed programs contain their own path, so a tree is filled in its final place and never moved. A user of a
//! generation holds a shared lock on its marker, which keeps it from being removed.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fence::HostEnvironment;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::pins::{Pins, PinsError};
use crate::recognition::Package;

const MARKER: &str = "complete";
const TREE: &str = "tree";
const LOCK: &str = "lock";
/// Bounds the read. Markers are ours, and far smaller.
const MAX_MARKER: u64 = 1024 * 1024;
/// The newest, and the one before it, which a session may be about to start.
const KEPT_GENERATIONS: usize = 2;

/// Describes a complete generation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Marker {
    pub(crate) package: Package,
    /// The launcher that was found for it.
    pub(crate) launcher: PathBuf,
    /// The interpreter that ran the installation: native parts may not fit another one.
    pub(crate) toolchain: String,
    /// The program to execute, below the tree.
    pub(crate) entry: PathBuf,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) bytes: u64,
    /// `None` if a ringfence without locks installed it.
    #[serde(default)]
    pub(crate) pinned: Option<Pinned>,
}

/// What was installed exactly. The lock beside the marker says the same of all dependencies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pinned {
    pub version: String,
    /// The hashes of the files that this version may be installed from. One for npm; for Python, one for each system.
    pub integrity: Vec<String>,
    /// How many packages the lock contains, this one included.
    pub packages: usize,
    /// Whether code of the packages ran when they were installed: install scripts, or builds from source.
    pub install_scripts_ran: bool,
    /// The packages that have install scripts for this system. Unknown for Python.
    pub install_scripts: Vec<String>,
    /// The program that installed it: `npm 11.2.0`.
    pub installer: String,
}

/// The directory of one package.
#[derive(Clone, Debug)]
pub(crate) struct PackageDirectory(PathBuf);

/// A complete generation. Its files stay while this is held.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) tree: PathBuf,
    pub(crate) marker: Marker,
    pub(crate) lease: File,
}

/// A generation whose tree is being filled. Removed when this is dropped, unless it was completed.
#[derive(Debug)]
pub(crate) struct Unfinished {
    directory: PathBuf,
    is_complete: bool,
}

/// Held while a package is installed or removed.
#[derive(Debug)]
pub(crate) struct PackageLock {
    _file: File,
}

impl PackageDirectory {
    pub(crate) fn of(
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

    /// All directories of packages, sorted by name.
    pub(crate) fn all(host_environment: &HostEnvironment) -> io::Result<Vec<Self>> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(host_environment.packages()?)?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
        Ok(found.into_iter().map(Self).collect())
    }

    /// Waits until no other process installs or removes this package, and tells `progress` if it has to.
    pub(crate) fn lock(&self, package: &str, progress: &dyn Fn(&str)) -> io::Result<PackageLock> {
        let path = self.lock_file();
        let mut has_told = false;
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if !std::mem::replace(&mut has_told, true) {
                        progress(&format!("waiting for {package}, which is being installed already"));
                    }
                    while let Err(error) = rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                        if error != rustix::io::Errno::INTR {
                            return Err(error.into());
                        }
                    }
                }
                Err(error) => return Err(error.into()),
            }
            // The last holder may have removed the file together with the package.
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
    pub(crate) fn newest(&self) -> Option<Generation> {
        self.numbers().into_iter().rev().find_map(|number| Generation::open(&self.generation(number)))
    }

    /// Makes room for the next generation and removes unfinished ones. Call it under the lock.
    pub(crate) fn begin(&self) -> io::Result<Unfinished> {
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
        Ok(Unfinished { directory, is_complete: false })
    }

    /// Removes all but the newest generations and those in use. Call it under the lock.
    pub(crate) fn remove_old(&self) {
        for number in self.numbers().into_iter().rev().skip(KEPT_GENERATIONS) {
            // The next installation tries again.
            let _ = self.remove(number);
        }
    }

    /// Removes every generation that is not in use. Returns true if none is left. Call it under the lock.
    pub(crate) fn clear(&self) -> io::Result<bool> {
        let mut is_everything = true;
        for number in self.numbers() {
            is_everything &= self.remove(number)?;
        }
        if is_everything {
            fence::remove_tree(&self.0)?;
            // Last: a process that waits for the lock sees that the file is gone, and makes another.
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
                // First: without its marker the generation is not complete.
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

    /// The lock that it was installed from. `None` if it is not pinned.
    pub(crate) fn pins(&self) -> Result<Option<Pins>, PinsError> {
        let read = || Pins::read(self.marker.package.tool, &self.tree.with_file_name(LOCK));
        self.marker.pinned.as_ref().map(|_| read()).transpose()
    }

    /// Whether all files are as large as they were installed. True for one that could not be installed again.
    pub(crate) fn is_whole(&self) -> bool {
        self.marker.pinned.is_none() || bytes_below(&self.tree) == self.marker.bytes
    }

    pub(crate) fn entry(&self) -> PathBuf {
        self.tree.join(&self.marker.entry)
    }

    /// The time since it was installed; zero if the clock was set back.
    pub(crate) fn age(&self) -> Duration {
        let since = UNIX_EPOCH + Duration::from_secs(self.marker.time);
        SystemTime::now().duration_since(since).unwrap_or_default()
    }

    /// For people: `3 days`.
    pub(crate) fn age_in_words(&self) -> String {
        let seconds = self.age().as_secs();
        let (number, unit) = match seconds {
            0..120 => (seconds, "second"),
            120..7200 => (seconds / 60, "minute"),
            7200..172_800 => (seconds / 3600, "hour"),
            _ => (seconds / 86_400, "day"),
        };
        let plural = if number == 1 { "" } else { "s" };
        format!("{number} {unit}{plural}")
    }
}

impl Unfinished {
    pub(crate) fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }

    /// Adds the lock and marks it as complete, atomically.
    pub(crate) fn complete(mut self, pins: &Pins, marker: &Marker) -> io::Result<Generation> {
        std::fs::write(self.directory.join(LOCK), pins.text())?;
        let draft = self.directory.join("draft");
        std::fs::write(&draft, serde_json::to_vec(marker)?)?;
        std::fs::rename(draft, self.directory.join(MARKER))?;
        self.is_complete = true;
        Generation::open(&self.directory)
            .ok_or_else(|| io::Error::other("another process removed the new package"))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_complete {
            // `begin` removes what stays.
            let _ = fence::remove_tree(&self.directory);
        }
    }
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// For people: `12 MiB`.
pub(crate) fn size_in_words(bytes: u64) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// Adds up the sizes of all files below a directory, without following links.
pub(crate) fn bytes_below(directory: &Path) -> u64 {
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
