//! The fork server as the server sees it: somebody in the domain who starts a command there when asked.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

use super::child_side::ChildSide;
use super::exec_page::ExecPage;
use crate::passing;

/// For a fork server to answer. A command may have stopped or killed it: then there is another one.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

const NO_ANSWER: &str =
    "the process that starts commands was stopped or killed; there is a new one for the next";

/// The server's side of the process that forks the commands.
#[derive(Debug)]
pub(super) struct ForkServer {
    channel: OwnedFd,
    pub(super) process: OwnedFd,
}

pub(super) enum Refused {
    /// There is nobody to lead it in.
    Absent(io::Error),
    /// Nobody says whether it was led in, so it must not be tried again.
    Lost(io::Error),
    /// It could not become the program.
    Command(io::Error),
}

impl Refused {
    pub(super) fn into_error(self) -> io::Error {
        match self {
            Self::Absent(error) | Self::Lost(error) | Self::Command(error) => error,
        }
    }
}

impl ForkServer {
    pub(super) fn start(ruleset: Option<&OwnedFd>, page: &ExecPage) -> io::Result<Self> {
        let (channel, theirs) = passing::channel()?;
        let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let child_side = ChildSide {
            channel: theirs.as_raw_fd(),
            nothing: nothing.as_raw_fd(),
            ruleset: ruleset.map(AsRawFd::as_raw_fd),
            page: page.words,
        };
        // SAFETY: the child of a process with threads only makes system calls until it ends, see `ChildSide`.
        let pid = match unsafe { libc::fork() } {
            0 => child_side.serve(),
            pid if pid > 0 => Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?,
            _ => return Err(io::Error::last_os_error()),
        };
        Ok(Self { channel, process: rustix::process::pidfd_open(pid, PidfdFlags::empty())? })
    }

    pub(super) fn lead_in(&self, directory: BorrowedFd<'_>, output: BorrowedFd<'_>) -> Result<Pid, Refused> {
        let (failure, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| Refused::Command(error.into()))?;
        passing::send(&self.channel, b"1", &[directory, output, theirs.as_fd()]).map_err(Refused::Absent)?;
        drop(theirs);
        let pid = self.answer().map_err(Refused::Lost)?;
        // Closed without a word when the child has become the program.
        let mut errno = [0; 4];
        let has_failed =
            is_readable(failure.as_fd()) && std::fs::File::from(failure).read_exact(&mut errno).is_ok();
        if !has_failed {
            return Ok(pid);
        }
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        Err(Refused::Command(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
    }

    fn answer(&self) -> io::Result<Pid> {
        if !is_readable(self.channel.as_fd()) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER));
        }
        let mut answer = [0; 4];
        if rustix::io::read(&self.channel, &mut answer)? < answer.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, NO_ANSWER));
        }
        match i32::from_ne_bytes(answer) {
            errno if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
            pid => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.process, Signal::KILL);
        // Whoever collects orphans may have been first.
        let _ = rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

pub(super) fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&PATIENCE))).is_ok_and(|ready| ready > 0)
}
