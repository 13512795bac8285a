//! Files of the state root: written so that a crash leaves the old or the new content, and locked.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a lock file may hold.
const MAX_LOCK_BYTES: u64 = 32;
/// A look at who holds a lock takes it for less time than this, and must not make another process give up.
const LOOK_AT_LOCK: Duration = Duration::from_millis(5);
const MAX_LOCK_ATTEMPTS: usize = 20;
/// Records and journals of more are damaged.
const MAX_JSON_BYTES: u64 = 1 << 30;

/// A lock that another process may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Free,
    /// By this process, if it is known.
    Held(Option<u32>),
}

pub(crate) fn make_private_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Writes a temporary file, syncs it and gives it the name. A crash leaves the old content or the new one.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    sync_directory_of(path)
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_atomically(path, &serde_json::to_vec(value)?)
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_JSON_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The same; `None` if there is no such file.
pub(crate) fn read_json_if_there<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match read_json(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Makes the names in the directory of a path durable.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_directory)
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Waits for a lock that is held for moments only.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(|()| file).map_err(io::Error::from),
        }
    }
}

/// Takes a lock, and writes into it which process has it. The error is that process, if it is known.
pub(crate) fn try_lock(path: &Path) -> io::Result<Result<File, Option<u32>>> {
    let mut file = open_lock(path)?;
    for attempt in 1.. {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if attempt < MAX_LOCK_ATTEMPTS => std::thread::sleep(LOOK_AT_LOCK),
            Err(Errno::WOULDBLOCK) => return Ok(Err(holder(&mut file))),
            Err(errno) => return Err(errno.into()),
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(std::process::id().to_string().as_bytes())?;
    Ok(Ok(file))
}

/// Which process holds a lock, if one does.
pub(crate) fn lock_holder(path: &Path) -> io::Result<Lock> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Free),
        opened => opened?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Lock::Free),
        Err(Errno::WOULDBLOCK) => Ok(Lock::Held(holder(&mut file))),
        Err(errno) => Err(errno.into()),
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_LOCK_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn open_lock(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
