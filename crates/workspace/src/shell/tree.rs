//! Process trees of operations: which processes belong to one, and how all of them end.
//!
//! This process is a subreaper: a process whose parent has ended becomes its child. Such an orphan is recognised by
//! the mark in its environment, or by its session or group. A process that leaves its session *and* hides its
//! environment cannot be attributed, and ends with the fence.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fence::{Membership, ProcessStat, all_with_descendants, membership_of, variable_of};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, waitpid};

/// The environment variable whose value no other operation has, here or in another server.
pub(super) const MARK_VARIABLE: &str = "RINGFENCE_OPERATION_MARK";

/// An orphan that is starting a program is looked at again, so often and after so long.
const STARTING_TRIES: u32 = 5;
const STARTING_PAUSE: Duration = Duration::from_millis(1);

/// The shells that were started here and not yet reaped. Hold the lock to reap or to signal, so that no pid is used
/// again between the check and the signal.
static SHELLS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn shells() -> MutexGuard<'static, Vec<Pid>> {
    SHELLS.lock()
}

/// One operation's processes.
#[derive(Debug)]
pub(super) struct Tree {
    root: Pid,
    mark: String,
}

impl Tree {
    /// Runs `spawn` with a fresh mark, and registers the shell before it can be mistaken for an orphan.
    pub(super) fn start<T>(spawn: impl FnOnce(&str) -> io::Result<(Pid, T)>) -> io::Result<(Self, T)> {
        let mark = fresh_mark();
        let mut shells = shells();
        let (root, rest) = spawn(&mark)?;
        shells.push(root);
        Ok((Self { root, mark }, rest))
    }

    pub(super) fn root(&self) -> Pid {
        self.root
    }

    /// Reaps the shell if it has ended, and returns how it ended.
    pub(super) fn wait_for_root(&self) -> Option<WaitStatus> {
        let mut shells = shells();
        let (_, status) = waitpid(Some(self.root), WaitOptions::NOHANG).ok().flatten()?;
        shells.retain(|shell| *shell != self.root);
        Some(status)
    }

    /// How many processes of the tree run now.
    pub(super) fn count(&self) -> usize {
        self.members(&shells()).len()
    }

    /// Signals all processes of the tree; returns how many there were.
    pub(super) fn signal(&self, signal: Signal) -> usize {
        let shells = shells();
        let members = self.members(&shells);
        for pid in &members {
            // Gone already is as good.
            let _ = kill_process(*pid, signal);
        }
        members.len()
    }

    /// All processes of the tree that have not ended.
    fn members(&self, shells: &[Pid]) -> Vec<Pid> {
        let belongs = |pid: &Pid| if shells.contains(pid) { *pid == self.root } else { self.is_ours(*pid) };
        let mut members =
            all_with_descendants(fence::children_of(getpid()).into_iter().filter(|pid| belongs(pid)));
        members.retain(|pid| ProcessStat::of(*pid).is_some_and(|stat| !stat.has_ended));
        members
    }

    fn is_ours(&self, orphan: Pid) -> bool {
        // A mark says more than the number of a session, which may be used again.
        let mut mark = variable_of(orphan, MARK_VARIABLE);
        for _ in 0..STARTING_TRIES {
            if mark.is_some() || !is_starting_a_program(orphan) {
                break;
            }
            std::thread::sleep(STARTING_PAUSE);
            mark = variable_of(orphan, MARK_VARIABLE);
        }
        mark.map_or_else(
            || membership_of(orphan).is_some_and(|of| [of.session, of.group].contains(&Some(self.root))),
            |mark| mark == self.mark.as_bytes(),
        )
    }
}

/// Reaps orphans of commands that have ended. Commands have sessions of their own, and none of their descendants can
/// enter this process's session; so children of other parts of the server are left to them.
pub(super) fn reap_orphans() {
    let shells = shells();
    let own = membership_of(getpid());
    for pid in fence::children_of(getpid()) {
        if is_orphan(pid, &shells, own) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

fn is_orphan(child: Pid, shells: &[Pid], own: Option<Membership>) -> bool {
    !shells.contains(&child)
        && membership_of(child).is_some_and(|of| own.is_some_and(|own| of.session != own.session))
}

/// Whether a process runs that has no environment: for a moment between one program and the next it shows none.
fn is_starting_a_program(pid: Pid) -> bool {
    let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    environment.is_ok_and(|text| text.is_empty()) && ProcessStat::of(pid).is_some_and(|stat| !stat.has_ended)
}

fn fresh_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{}.{}.{}", std::process::id(), now.as_nanos(), NEXT.fetch_add(1, Ordering::Relaxed))
}
