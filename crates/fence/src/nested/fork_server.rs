//! The server's handle on its fork server: a process inside the domain that starts commands there.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

use super::child_side::ChildSide;
use super::exec_page::ExecPage;
use crate::fd_passing;

/// How long a fork server may take to answer. If a command has stopped or killed it, another one is started.
const ANSWER_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

const NO_ANSWER: &str =
    "the process that starts commands was stopped or killed; there is a new one for the next";

/// The server's side of the process that forks the commands.
#[derive(Debug)]
pub(super) struct ForkServer {
    channel: OwnedFd,
    pub(super) process: OwnedFd,
}

/// Why a command was not started.
pub(super) enum SpawnError {
    /// The fork server is gone. Nothing was started, so another one may try.
    Absent(io::Error),
    /// The fork server did not say whether it started the command, so it must not be started again.
    Lost(io::Error),
    /// The program could not be executed.
    Command(io::Error),
}

impl SpawnError {
    pub(super) fn into_error(self) -> io::Error {
        match self {
            Self::Absent(error) | Self::Lost(error) | Self::Command(error) => error,
        }
    }
}

impl ForkServer {
    pub(super) fn start(ruleset: Option<&OwnedFd>, page: &ExecPage) -> io::Result<Self> {
        let (channel, theirs) = fd_passing::channel()?;
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

    pub(super) fn spawn_command(
        &self,
        directory: BorrowedFd<'_>,
        output: BorrowedFd<'_>,
    ) -> Result<Pid, SpawnError> {
        let (failure, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| SpawnError::Command(error.into()))?;
        fd_passing::send(&self.channel, b"1", &[directory, output, theirs.as_fd()])
            .map_err(SpawnError::Absent)?;
        drop(theirs);
        let pid = self.answer().map_err(SpawnError::Lost)?;
        // The pipe closes without data when the child has executed the program.
        let mut errno = [0; 4];
        let has_failed =
            is_readable(failure.as_fd()) && std::fs::File::from(failure).read_exact(&mut errno).is_ok();
        if !has_failed {
            return Ok(pid);
        }
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        Err(SpawnError::Command(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))))
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
        // The reaper of orphans may have been faster.
        let _ = rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
    }
}

pub(super) fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&ANSWER_TIMEOUT))).is_ok_and(|ready| ready > 0)
}
