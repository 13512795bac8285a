//! Overlays: a process of this binary mounts one in namespaces of its own and hands mounts of it to launchers, so that all
//! commands of a copy share it. Two overlays over one upper directory would contradict each other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use parking_lot::Mutex;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::paths::VettedDirectory;
use crate::{fd_passing, spawn};

/// The argument that starts the binary as the holder of an overlay.
pub(crate) const OVERLAY_ARGUMENT: &str = "fence-overlay";
/// The descriptor at which the holder receives the layers, and requests for mounts.
pub(crate) const OVERLAY_FD: i32 = 3;
/// A request with three paths fits.
pub(crate) const MAX_LAYERS: usize = 32 * 1024;
/// The most that the kernel's reason for a refusal takes.
const MAX_REASON: usize = 1024;

/// What an overlay is made of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Layers {
    pub(crate) lower: VettedDirectory,
    pub(crate) upper: VettedDirectory,
    pub(crate) work: VettedDirectory,
}

/// A mounted overlay. It is gone when this is dropped and the last command that has it has ended.
#[derive(Debug)]
pub(crate) struct Overlay {
    holder: Pid,
    /// The holder ends when it closes.
    channel: Mutex<Option<OwnedFd>>,
}

impl Overlay {
    pub(crate) fn start(
        lower: VettedDirectory,
        upper: VettedDirectory,
        work: VettedDirectory,
    ) -> io::Result<Self> {
        let layers = serde_json::to_vec(&Layers { lower, upper, work })?;
        if layers.len() > MAX_LAYERS {
            return Err(io::Error::other("its paths are too long"));
        }
        let (channel, end) = fd_passing::channel()?;
        let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let passed =
            [(nothing.as_fd(), 0), (nothing.as_fd(), 1), (nothing.as_fd(), 2), (end.as_fd(), OVERLAY_FD)];
        let holder = spawn::spawn_self(Path::new("/proc/self/exe"), OVERLAY_ARGUMENT, &passed)?;
        drop(end);
        let overlay = Self { holder, channel: Mutex::new(Some(channel)) };
        overlay.ask(&layers)?;
        Ok(overlay)
    }

    /// A mount of it, attached nowhere yet.
    pub(crate) fn mount(&self) -> io::Result<OwnedFd> {
        self.ask(&[])
    }

    /// Sends layers, or the wish for one more mount. Returns the mount.
    fn ask(&self, request: &[u8]) -> io::Result<OwnedFd> {
        let channel = self.channel.lock();
        let channel = channel.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // An empty message would be the end of the channel.
        let request = if request.is_empty() { b"+" } else { request };
        rustix::net::send(channel, request, SendFlags::NOSIGNAL)?;
        let mut reason = [0; MAX_REASON];
        let (length, mut mounts) = fd_passing::receive(channel, &mut reason, RecvFlags::empty())?;
        match mounts.pop() {
            Some(mount) => Ok(mount),
            None if length == 0 => Err(io::Error::other("the process that holds the overlay has ended")),
            None => Err(io::Error::other(String::from_utf8_lossy(&reason[..length]).into_owned())),
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        *self.channel.lock() = None;
        let _ = rustix::process::waitpid(Some(self.holder), WaitOptions::empty());
    }
}
