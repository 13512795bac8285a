//! The supervisors that are alive. Their descendants are the processes inside fences.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};

/// The supervisors of this process.
pub(crate) static SUPERVISORS: LazyLock<Supervisors> = LazyLock::new(Supervisors::default);

#[derive(Debug, Default)]
pub(crate) struct Supervisors(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By pid. A supervisor that was dropped before it ended is kept with a pidfd, and counts until it has ended.
    alive: HashMap<i32, Option<OwnedFd>>,
    /// Launches whose supervisor is not known yet.
    launching: usize,
}

/// The supervisors at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    supervisors: Vec<i32>,
    /// A launch is under way whose supervisor is not known yet.
    pub(crate) is_launching: bool,
}

impl Snapshot {
    pub(crate) fn is_empty(&self) -> bool {
        self.supervisors.is_empty()
    }

    pub(crate) fn has(&self, pid: i32) -> bool {
        self.supervisors.contains(&pid)
    }
}

impl Supervisors {
    /// Marks a launch as under way. Hold it from before the launcher starts until its supervisor is registered.
    pub(crate) fn launching(&'static self) -> Launching {
        self.lock().launching += 1;
        Launching(self)
    }

    pub(crate) fn enter(&'static self, supervisor: Pid) -> Registration {
        let pid = supervisor.as_raw_nonzero().get();
        self.lock().alive.insert(pid, None);
        Registration { supervisors: self, pid, is_reaped: false }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut state = self.lock();
        state.alive.retain(|_, hold| hold.as_ref().is_none_or(is_running));
        Snapshot { supervisors: state.alive.keys().copied().collect(), is_launching: state.launching > 0 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

fn is_running(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

#[derive(Debug)]
pub(crate) struct Launching(&'static Supervisors);

impl Drop for Launching {
    fn drop(&mut self) {
        self.0.lock().launching -= 1;
    }
}

/// One supervisor's entry. Dropped without [`Registration::reaped`], the entry stays until the supervisor has ended,
/// because its tree may outlive the handle.
#[derive(Debug)]
pub(crate) struct Registration {
    supervisors: &'static Supervisors,
    pid: i32,
    is_reaped: bool,
}

impl Registration {
    /// Removes the entry of a supervisor that was reaped: its pid may be used again.
    pub(crate) fn reaped(mut self) {
        self.is_reaped = true;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A process that was not reaped keeps its pid, so this opens the right one or fails.
        let supervisor = Pid::from_raw(self.pid).filter(|_| !self.is_reaped);
        let hold = supervisor
            .and_then(|supervisor| rustix::process::pidfd_open(supervisor, PidfdFlags::empty()).ok());
        let mut state = self.supervisors.lock();
        match hold {
            Some(hold) => state.alive.insert(self.pid, Some(hold)),
            None => state.alive.remove(&self.pid),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_supervisor_counts_until_it_has_ended() {
        let supervisors: &'static Supervisors = Box::leak(Box::default());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let number = pid.as_raw_nonzero().get();
        assert!(!supervisors.snapshot().has(number));
        let registration = supervisors.enter(pid);
        assert!(supervisors.snapshot().has(number));
        drop(registration);
        assert!(supervisors.snapshot().has(number), "let go of, but alive");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!supervisors.snapshot().has(number));
    }

    #[test]
    fn a_supervisor_that_was_reaped_does_not_count() {
        let supervisors: &'static Supervisors = Box::leak(Box::default());
        let mut child = Command::new("true").spawn().unwrap();
        let registration = supervisors.enter(Pid::from_child(&child));
        child.wait().unwrap();
        registration.reaped();
        assert!(supervisors.snapshot().supervisors.is_empty());
        let launching = supervisors.launching();
        assert!(supervisors.snapshot().is_launching);
        drop(launching);
        assert!(!supervisors.snapshot().is_launching);
    }
}
