//! The unix socket on which a gateway serves its operator, in ringfence's own directory: private to this user and
//! hidden in every fence.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// The socket's file. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct OperatorSocket {
    name: String,
    path: PathBuf,
}

impl OperatorSocket {
    /// Listens in this directory, and removes the sockets of gateways that were killed.
    pub(crate) fn bind(directory: &Path) -> io::Result<(Self, tokio::net::UnixListener)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        sweep(directory);
        let name = format!("{}.sock", Uuid::new_v4().simple());
        let unready = format!("{name}{UNREADY}");
        let reached = ReachedDirectory::open(directory)?;
        let listener = UnixListener::bind(reached.path_of(&unready))?;
        fs::set_permissions(directory.join(&unready), fs::Permissions::from_mode(0o600))?;
        let path = directory.join(&name);
        // Under its final name it always answers, so one that does not is left over.
        fs::rename(directory.join(unready), &path)?;
        let socket = Self { name, path };
        listener.set_nonblocking(true)?;
        Ok((socket, tokio::net::UnixListener::from_std(listener)?))
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The end of the name of a socket that does not answer yet.
const UNREADY: &str = ".new";

impl Drop for OperatorSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A directory by its descriptor. The address of a unix socket has at most 107 bytes, and a path can be longer.
#[derive(Debug)]
pub(crate) struct ReachedDirectory(File);

impl ReachedDirectory {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        File::open(directory).map(Self)
    }

    /// A short path to a file in it, for this process and as long as this lives.
    pub(crate) fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }
}

/// Removes sockets on which no process listens.
fn sweep(directory: &Path) {
    let Ok(reached) = ReachedDirectory::open(directory) else { return };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if !is_socket || name.to_string_lossy().ends_with(UNREADY) {
            continue;
        }
        let answer = UnixStream::connect(reached.path_of(&name));
        if answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
