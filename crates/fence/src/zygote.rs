//! The parent's side of a launcher that is loaded already: hands it the descriptors of an order and learns the
//! number of the process that carries it out. If it is lost, the next order starts another.

use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::net::RecvFlags;
use rustix::process::{Pid, WaitOptions};

use crate::order::{ZYGOTE_ARGUMENT, ZYGOTE_FD};
use crate::{passing, spawn};

#[derive(Debug, Default)]
pub(crate) struct Zygote(Mutex<Option<Waiting>>);

/// A launcher that waits for orders. It ends when the channel closes.
#[derive(Debug)]
struct Waiting {
    process: Pid,
    channel: Option<OwnedFd>,
}

impl Zygote {
    /// A launcher with these descriptors, a child of this process.
    pub(crate) fn launcher(&self, executable: &Path, passed: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Pid> {
        let mut waiting = self.0.lock();
        if let Some(pid) = waiting.as_ref().and_then(|waiting| waiting.order(passed).ok()) {
            return Ok(pid);
        }
        // There was none, or it was lost.
        waiting.insert(Waiting::start(executable)?).order(passed)
    }
}

impl Waiting {
    fn start(executable: &Path) -> io::Result<Self> {
        let (channel, end) = passing::channel()?;
        let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        let passed =
            [(nothing.as_fd(), 0), (nothing.as_fd(), 1), (nothing.as_fd(), 2), (end.as_fd(), ZYGOTE_FD)];
        let process = spawn::spawn_self(executable, ZYGOTE_ARGUMENT, &passed)?;
        Ok(Self { process, channel: Some(channel) })
    }

    fn order(&self, passed: &[(BorrowedFd<'_>, RawFd)]) -> io::Result<Pid> {
        let channel = self.channel.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let numbers: Vec<u8> = passed.iter().filter_map(|(_, number)| u8::try_from(*number).ok()).collect();
        let descriptors: Vec<BorrowedFd<'_>> = passed.iter().map(|(fd, _)| *fd).collect();
        passing::send(channel, &numbers, &descriptors)?;
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
