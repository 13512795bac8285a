//! Process trees: who belongs to an operation, and how all of it ends.
//!
//! This process is a subreaper: what a command's children leave behind becomes a child of this process. Such an
//! orphan is recognised by the mark in its environment, or by its session or group. A process that leaves its
//! session *and* hides its environment belongs to nobody, and ends with the fence.

use parking_lot::{Mutex, MutexGuard};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use fence::{Membership, membership_of};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, waitpid};

/// The environment variable whose value no other operation has, here or in another server.
pub(super) const MARK_VARIABLE: &str = "RINGFENCE_OPERATION_MARK";

/// The shells that were started here and not yet waited for. Whoever reaps or signals holds the lock, so that
/// no pid can pass to a stranger between a look and a deed.
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
    /// Runs `spawn` with a fresh mark and registers the shell before anybody can take it for an orphan.
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

    /// How the shell ended, once, if it has.
    pub(super) fn wait_for_root(&self) -> Option<WaitStatus> {
        let mut shells = shells();
        let (_, status) = waitpid(Some(self.root), WaitOptions::NOHANG).ok().flatten()?;
        shells.retain(|shell| *shell != self.root);
        Some(status)
    }

    /// How many of the tree run now.
    pub(super) fn count(&self) -> usize {
        self.members(&shells()).len()
    }

    /// Signals everybody; returns how many that were.
    pub(super) fn signal(&self, signal: Signal) -> usize {
        let shells = shells();
        let members = self.members(&shells);
        for pid in &members {
            // Gone already is as good.
            let _ = kill_process(*pid, signal);
        }
        members.len()
    }

    /// Everybody who belongs to the tree and has not ended.
    fn members(&self, shells: &[Pid]) -> Vec<Pid> {
        let belongs = |pid: Pid| if shells.contains(&pid) { pid == self.root } else { self.is_ours(pid) };
        let mut members: Vec<Pid> =
            fence::children_of(getpid()).into_iter().filter(|pid| belongs(*pid)).collect();
        let mut looked_at = 0;
        while let Some(&parent) = members.get(looked_at) {
            looked_at += 1;
            for child in fence::children_of(parent) {
                if !members.contains(&child) {
                    members.push(child);
                }
            }
        }
        members.retain(|pid| !has_ended(*pid));
        members
    }

    fn is_ours(&self, orphan: Pid) -> bool {
        // A mark tells more than the number of a session, which may be used again.
        mark_of(orphan).map_or_else(
            || membership_of(orphan).is_some_and(|of| [of.session, of.group].contains(&Some(self.root))),
            |mark| mark == self.mark.as_bytes(),
        )
    }
}

/// Collects what commands have left behind and what has ended since, so that it does not stay as a zombie.
/// Commands have sessions of their own, which none of their descendants can leave for this process's: so a
/// child of another part of the server is not taken from it.
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

fn fresh_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{}.{}.{}", std::process::id(), now.as_nanos(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// `None` if there is none, or if the process hides its environment.
fn mark_of(pid: Pid) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let prefix = format!("{MARK_VARIABLE}=");
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(prefix.as_bytes()))
        .map(<[u8]>::to_vec)
}

fn has_ended(pid: Pid) -> bool {
    let Ok(text) = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())) else { return true };
    // The name of the program may hold anything, and ends with the last parenthesis.
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|end| text.get(end + 2));
    matches!(state, None | Some(b'Z' | b'X'))
}
