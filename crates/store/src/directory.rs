//! The directory of a store: private to its user, on a local file system, and one gateway's alone.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::StoreError;

/// Held open and locked while a gateway uses the directory.
const LOCK: &str = "lock";

/// File systems whose locks and shared memory a database cannot rely on, by the number that statfs gives.
const NETWORK_FILE_SYSTEMS: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7375_7245, "Coda"),
];

/// An existing directory that no other gateway has locked.
#[derive(Debug)]
pub struct StoreDirectory {
    path: PathBuf,
    _lock: File,
}

impl StoreDirectory {
    /// Makes the directory if need be, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Directory { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        // One that is there already may be used for something else too, so its mode is not changed.
        let mode = path.metadata().map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(StoreError::NotPrivate { path: path.to_owned(), mode });
        }
        if let Some(kind) = network_file_system(path).map_err(failed)? {
            return Err(StoreError::NetworkFileSystem { path: path.to_owned(), kind });
        }
        let lock = private_file(&path.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {
                note_holder(&lock).map_err(failed)?;
                Ok(Self { path: path.to_owned(), _lock: lock })
            }
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::InUse { path: path.to_owned(), pid: holder(&lock) })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file that only this user can read, made if it is not there.
    pub(crate) fn private_file(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        private_file(&path)?.set_permissions(PermissionsExt::from_mode(0o600))?;
        Ok(path)
    }
}

/// Writes into the lock file which process has it, for the message to the next one.
fn note_holder(mut lock: &File) -> io::Result<()> {
    lock.set_len(0)?;
    writeln!(lock, "{}", std::process::id())
}

/// The process that has the lock, unless it is just writing that.
fn holder(mut lock: &File) -> Option<u32> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn network_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    let kind = rustix::fs::statfs(path)?.f_type.cast_unsigned() & 0xFFFF_FFFF;
    let known = NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == kind);
    Ok(known.map(|(_, name)| *name))
}
