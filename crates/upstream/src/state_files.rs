//! The files in which a server keeps what is to outlive it. It gets them open: no path inside its fence leads to them, so
//! what it starts for its client, which does not inherit them, can neither read nor write them.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fence::PassedFiles;
use wire::worker_variable::STATE;

/// Two, so that one can be written anew while the other is whole.
const NAMES: [&str; 2] = ["1", "2"];
/// A server of a gateway that was killed may live a moment longer. It is killed, but not waited for.
const FREE_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Open files that no other server has.
#[derive(Debug)]
pub(crate) struct StateFiles(Vec<Arc<File>>);

impl StateFiles {
    /// Opens them in a directory, which is made if it is not there. Blocks.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let files = NAMES.iter().map(|name| private_file(&directory.join(name)).map(Arc::new));
        let files: Vec<Arc<File>> = files.collect::<io::Result<_>>()?;
        let until = Instant::now() + FREE_WITHIN;
        // The lock is the open file's, so it is the server's once this process has let go of the file.
        while let Err(error) = files[0].try_lock() {
            match error {
                TryLockError::WouldBlock if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
                TryLockError::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, "another server still uses it"));
                }
                TryLockError::Error(error) => return Err(error),
            }
        }
        Ok(Self(files))
    }

    pub(crate) fn to_pass(&self) -> io::Result<PassedFiles> {
        PassedFiles::new(STATE, self.0.clone())
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_files_are_private_and_no_links_and_one_servers_at_a_time() {
        let directory = std::env::temp_dir().join(format!("ringfence-state-files-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let files = StateFiles::open(&directory.join("deep")).unwrap();
        for name in NAMES {
            let mode = directory.join("deep").join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let error = StateFiles::open(&directory.join("deep")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(files);
        StateFiles::open(&directory.join("deep")).unwrap();
        std::fs::remove_file(directory.join("deep/1")).unwrap();
        symlink("/etc/hostname", directory.join("deep/1")).unwrap();
        assert!(StateFiles::open(&directory.join("deep")).is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
