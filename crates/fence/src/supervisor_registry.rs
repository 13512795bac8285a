//! The supervisors of this process that are alive. Their descendants are the processes inside its fences. Each is also
//! registered for the other ringfence processes of this user ([`crate::supervisor_files`]).

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};

use crate::supervisor_files::{SupervisorFiles, SupervisorName};

/// The supervisors of this process.
pub(crate) static SUPERVISORS: LazyLock<Supervisors> = LazyLock::new(Supervisors::default);

#[derive(Debug, Default)]
pub(crate) struct Supervisors(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By pid.
    alive: HashMap<i32, Alive>,
    /// Launches whose supervisor is not known yet.
    launching: usize,
    /// By ringfence's own directory. Empty while no supervisor is alive, so that an idle process leaves no files.
    files: HashMap<PathBuf, SupervisorFiles>,
}

#[derive(Debug)]
struct Alive {
    /// Set for a supervisor that was dropped before it ended, which counts until it has ended.
    pidfd: Option<OwnedFd>,
    #[allow(dead_code, reason = "held, not used")]
    name: Option<SupervisorName>,
}

impl State {
    /// Makes the supervisor known to other processes.
    fn register(&mut self, supervisor: Pid, own: &Path) -> io::Result<Option<SupervisorName>> {
        if !self.files.contains_key(own) {
            self.files.insert(own.to_owned(), SupervisorFiles::open(own)?);
        }
        self.files.get(own).map_or(Ok(None), |files| files.enter(supervisor))
    }

    fn remove_ended(&mut self) {
        self.alive.retain(|_, alive| alive.pidfd.as_ref().is_none_or(is_running));
        if self.alive.is_empty() {
            self.files.clear();
        }
    }
}

/// The supervisors at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    supervisors: Vec<i32>,
    /// A launch is under way whose supervisor is not known yet.
    pub(crate) is_launching: bool,
}

impl Snapshot {
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

    /// Registers a supervisor, also for other processes. `own` is ringfence's own directory.
    pub(crate) fn enter(&'static self, supervisor: Pid, own: &Path) -> Registration {
        let pid = supervisor.as_raw_nonzero().get();
        let mut state = self.lock();
        let name = state.register(supervisor, own).unwrap_or_else(|error| {
            // Gateways of other processes still recognise the fence by its launcher.
            tracing::warn!("cannot register a fence in {}: {error}", own.display());
            None
        });
        state.alive.insert(pid, Alive { pidfd: None, name });
        Registration { supervisors: self, pid, is_reaped: false }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut state = self.lock();
        state.remove_ended();
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
        let pidfd = supervisor
            .and_then(|supervisor| rustix::process::pidfd_open(supervisor, PidfdFlags::empty()).ok());
        let mut state = self.supervisors.lock();
        match (pidfd, state.alive.get_mut(&self.pid)) {
            (Some(pidfd), Some(alive)) => alive.pidfd = Some(pidfd),
            _ => drop(state.alive.remove(&self.pid)),
        }
        state.remove_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor_files::directory_in;
    use std::process::Command;

    #[test]
    fn a_supervisor_counts_until_it_has_ended() {
        let own = crate::test_directory::directory("supervisor-registry");
        let supervisors: &'static Supervisors = Box::leak(Box::default());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let number = pid.as_raw_nonzero().get();
        assert!(!supervisors.snapshot().has(number));
        let registration = supervisors.enter(pid, &own);
        assert!(supervisors.snapshot().has(number));
        let names = || std::fs::read_dir(directory_in(&own)).unwrap().count();
        assert_eq!(names(), 2, "one for the process, one for the supervisor");
        drop(registration);
        assert!(supervisors.snapshot().has(number), "let go of, but alive");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!supervisors.snapshot().has(number));
        assert_eq!(names(), 0);
    }

    #[test]
    fn a_supervisor_that_was_reaped_does_not_count() {
        let own = crate::test_directory::directory("supervisor-registry-reaped");
        let supervisors: &'static Supervisors = Box::leak(Box::default());
        let mut child = Command::new("true").spawn().unwrap();
        let registration = supervisors.enter(Pid::from_child(&child), &own);
        child.wait().unwrap();
        registration.reaped();
        assert!(supervisors.snapshot().supervisors.is_empty());
        let launching = supervisors.launching();
        assert!(supervisors.snapshot().is_launching);
        drop(launching);
        assert!(!supervisors.snapshot().is_launching);
    }
}
