//! A workspace in which an attacker keeps exchanging names, and a directory outside that must not change.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

pub(crate) const SECRET: &str = "SECRET: unreadable from inside";
pub(crate) const INSIDE: &str = "fine: this is inside";
/// A name that exists only outside.
pub(crate) const NAME_OUTSIDE: &str = "only-outside";

/// The metadata of a name outside, including the times of its last changes.
type Fingerprint = (PathBuf, u64, u64, u32, i64, i64, i64, i64);

/// * `ws/d`, a directory, changes places with `ws/d-link`, a link to a directory outside with the same names.
/// * `ws/f`, a file, changes places with `ws/f-link`, a link to a file outside; so does `ws/g`, which is written.
/// * `ws/p/q` moves to `ws/q` and back, so that `..` in it means another directory.
pub(crate) struct Arena {
    base: PathBuf,
    /// The directory that is `ws/d` at the start; its name changes later.
    pub(crate) directory: OwnedFd,
    is_over: AtomicBool,
    pub(crate) flips: AtomicU64,
}

impl Arena {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Beside the test binary, which is writable inside a fence too.
        let target = std::env::current_exe().unwrap().parent().unwrap().canonicalize().unwrap();
        let base = target.join(format!("{name}-{}-{number}", std::process::id()));
        drop(std::fs::remove_dir_all(&base));
        for directory in ["ws/d/sub", "ws/p/q/r", "outside/sub"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["f", "old", "victim", "sub/f"] {
            std::fs::write(base.join("ws/d").join(file), INSIDE).unwrap();
            std::fs::write(base.join("outside").join(file), SECRET).unwrap();
        }
        std::fs::write(base.join("ws/f"), INSIDE).unwrap();
        std::fs::write(base.join("ws/g"), INSIDE).unwrap();
        std::fs::write(base.join("ws/movable"), INSIDE).unwrap();
        std::fs::write(base.join("outside").join(NAME_OUTSIDE), SECRET).unwrap();
        std::os::unix::fs::symlink("../outside", base.join("ws/d-link")).unwrap();
        std::os::unix::fs::symlink("../outside/f", base.join("ws/f-link")).unwrap();
        std::os::unix::fs::symlink("../outside/f", base.join("ws/g-link")).unwrap();
        let base = base.canonicalize().unwrap();
        let directory = std::fs::File::open(base.join("ws/d")).unwrap().into();
        Self { base, directory, is_over: AtomicBool::new(false), flips: AtomicU64::new(0) }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.base.join("ws")
    }

    /// Exchanges names until the end. Changes only the inside: an attacker who can write outside needs no tricks.
    pub(crate) fn attack(&self) {
        let inside = |name: &str| self.base.join("ws").join(name);
        let exchanges = ["d", "f", "g"].map(|name| (inside(name), inside(&format!("{name}-link"))));
        let (below, above) = (inside("p/q"), inside("q"));
        while !self.is_over.load(Ordering::Relaxed) {
            for (one, other) in &exchanges {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
            }
            // A move between directories makes the kernel give up on every `..` it is resolving, so these are rare.
            if self.flips.fetch_add(1, Ordering::Relaxed).is_multiple_of(15) {
                std::fs::rename(&below, &above).unwrap();
                std::fs::rename(&above, &below).unwrap();
                // A write may have replaced the link; this restores it.
                let _ = std::fs::remove_file(inside("new-link"));
                std::os::unix::fs::symlink("../outside/f", inside("new-link")).unwrap();
                std::fs::rename(inside("new-link"), inside("g-link")).unwrap();
                std::fs::write(inside("new-file"), INSIDE).unwrap();
                std::fs::rename(inside("new-file"), inside("g")).unwrap();
                // Lets the other threads run on machines with few processors.
                std::thread::yield_now();
            }
        }
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Shows every change to a name outside: to contents, to names, and even changes that were undone.
    pub(crate) fn fingerprint_of_outside(&self) -> Vec<Fingerprint> {
        let mut found = Vec::new();
        let mut waiting = vec![self.base.join("outside")];
        while let Some(path) = waiting.pop() {
            let data = path.symlink_metadata().unwrap();
            if data.is_dir() {
                waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            let times = (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec());
            let (mtime, mtime_nsec, ctime, ctime_nsec) = times;
            found.push((path, data.ino(), data.size(), data.mode(), mtime, mtime_nsec, ctime, ctime_nsec));
        }
        found.sort();
        found
    }
}

/// Ends the attack even if the test fails, so that its threads can be joined.
pub(crate) struct EndsAttack<'a>(pub(crate) &'a Arena);

impl Drop for EndsAttack<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.base));
    }
}
