//! The parent's side of the zygote, a launcher that is loaded already: sends it the descriptors of a request, and
//! receives the pid of the copy that carries it out. If the zygote is lost, the next request starts another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use parking_lot::Mutex;
use rustix::net::RecvFlags;
use rustix::process::{Pid, WaitOptions};

use crate::launch_request::{Ahead, ZYGOTE_ARGUMENT, ZYGOTE_FD};
use crate::{fd_passing, spawn};

#[derive(Debug, Default)]
pub(super) struct Zygote(Mutex<Option<Waiting>>);

/// A launcher that waits for requests. It ends when the channel closes.
#[derive(Debug)]
struct Waiting {
    process: Pid,
    channel: Option<OwnedFd>,
}

impl Zygote {
    /// Starts a launcher with these descriptors, as a child of this process.
    pub(super) fn launcher(
        &self,
        executable: &Path,
        ahead: Ahead,
        passed: &[(BorrowedFd<'_>, RawFd)],
    ) -> io::Result<Pid> {
        let mut waiting = self.0.lock();
        if let Some(pid) = waiting.as_ref().and_then(|waiting| waiting.request(ahead, passed).ok()) {
            return Ok(pid);
        }
        // There is no zygote yet, or it was lost.
        waiting.insert(Waiting::start(executable)?).request(ahead, passed)
    }
}

impl Waiting {
    fn start(executable: &Path) -> io::Result<Self> {
        let (channel, end) = fd_passing::channel()?;
        let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let passed =
            [(nothing.as_fd(), 0), (nothing.as_fd(), 1), (nothing.as_fd(), 2), (end.as_fd(), ZYGOTE_FD)];
        let process = spawn::spawn_self(executable, ZYGOTE_ARGUMENT, &passed)?;
        Ok(Self { process, channel: Some(channel) })
    }

    fn request(&self, ahead: Ahead, passed: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Pid> {
        let channel = self.channel.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let numbers = passed.iter().filter_map(|(_, number)| u8::try_from(*number).ok());
        let words: Vec<u8> = std::iter::once(ahead as u8).chain(numbers).collect();
        let descriptors: Vec<BorrowedFd<'_>> = passed.iter().map(|(fd, _)| *fd).collect();
        fd_passing::send(channel, &words, &descriptors)?;
        let mut pid = [0; 4];
        let (length, _) = rustix::net::recv(channel, &mut pid, RecvFlags::empty())?;
        let pid = if length == pid.len() { i32::from_ne_bytes(pid) } else { 0 };
        Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.channel = None;
        let _ = rustix::process::waitpid(Some(self.process), WaitOptions::empty());
    }
}
