//! A command inside its fence, as its parent holds it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::events::Events;
use crate::cgroup::{CgroupLeaf, LimitHit};
use crate::confinement::Confinement;
use crate::error::LaunchError;
use crate::launch_request::Event;
use crate::network::Listeners;
use crate::supervisor_registry::Registration;

/// A command inside its fence. Dropping it kills the command and everything it started.
#[derive(Debug)]
pub struct Fenced {
    /// The process that waits for the command: in Tier B PID 1 of its namespace, in Tier A a process outside.
    pub(super) supervisor: Pid,
    /// Registers the tree as fenced until the supervisor is reaped.
    pub(super) registration: Option<Registration>,
    pub(super) pidfd: OwnedFd,
    pub(super) events: Events,
    /// The supervisor kills the tree when this closes.
    pub(super) lifeline: Option<OwnedFd>,
    pub confinement: Confinement,
    /// The listeners of the command's private network, if it has one.
    pub listeners: Listeners,
    pub(super) leaf: Option<CgroupLeaf>,
    /// Set if the command ended while it was being launched.
    pub(super) ending: Option<Ending>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The limit that it hit.
    pub limit: Option<LimitHit>,
    /// It was ended because a program outside replaced a file that the fence keeps.
    pub mount_lost: bool,
}

impl Ending {
    /// The exit code that a shell would report: 128 + n for signal n.
    pub fn exit_code(&self) -> i32 {
        self.code.or_else(|| self.signal.map(|signal| 128 + signal)).unwrap_or(128 + libc::SIGKILL)
    }
}

impl Fenced {
    /// The process to watch from outside.
    pub fn supervisor(&self) -> Pid {
        self.supervisor
    }

    /// Readable when the supervisor has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Passes a signal on to the command and its children.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Kills the whole tree, which is gone when [`Self::wait`] returns.
    pub fn kill(&mut self) {
        self.lifeline = None;
    }

    /// Resolves when the command and everything it started have ended. After that [`Self::wait`] does not block.
    pub async fn ended(&self) -> io::Result<()> {
        let pidfd = self.pidfd.try_clone()?;
        // SAFETY: the descriptor belongs to what is registered, so it stays open as long as that lives.
        let pidfd = unsafe { tokio::io::unix::AsyncFd::register(pidfd) }?;
        let _ = pidfd.readable().await?;
        Ok(())
    }

    /// Blocks until the command and everything it started have ended.
    pub fn wait(&mut self) -> Result<Ending, LaunchError> {
        let (mut ending, mut mount_lost) = (self.ending, false);
        while let Some(event) = self.events.next(None)? {
            match event {
                Event::Ended { code, signal } => {
                    ending = Some(Ending { code, signal, limit: None, mount_lost });
                }
                Event::MountLost { path } => {
                    mount_lost = true;
                    let path = path.display();
                    tracing::warn!(
                        "{path} was replaced outside the fence that keeps it; its command is ended"
                    );
                }
                _ => {}
            }
        }
        let reap = || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        while matches!(reap(), Err(rustix::io::Errno::INTR)) {}
        if let Some(registration) = self.registration.take() {
            registration.reaped();
        }
        self.lifeline = None;
        let killed = Ending { code: None, signal: Some(libc::SIGKILL), limit: None, mount_lost };
        let mut ending = ending.unwrap_or(killed);
        if let Some(leaf) = self.leaf.take() {
            ending.limit = leaf.limit_hit();
            leaf.remove();
        }
        self.ending = Some(ending);
        Ok(ending)
    }

    /// A handle that signals and kills the tree while another task waits for it. It takes over the tree's life: the
    /// tree is killed when the handle is dropped.
    pub fn remote(&mut self) -> io::Result<Remote> {
        Ok(Remote { pidfd: self.pidfd.try_clone()?, lifeline: self.lifeline.take() })
    }
}

/// Signals and kills a fenced tree while another task waits for it. Dropping it kills the tree.
#[derive(Debug)]
pub struct Remote {
    pidfd: OwnedFd,
    lifeline: Option<OwnedFd>,
}

impl Remote {
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }

    pub fn kill(&mut self) {
        self.lifeline = None;
    }
}
