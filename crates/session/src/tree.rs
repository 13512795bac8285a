//! Process trees: who belongs to an upstream, and how the whole of it ends.
//!
//! The gateway is a subreaper: what an upstream's children leave behind becomes a child of the gateway
//! instead of vanishing to init. Such an orphan is recognised by its process group or by the mark that every
//! upstream carries in its environment. A process that leaves its group *and* clears its environment is not
//! attributed until the gateway ends; the fence closes that gap.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpgid, kill_process, set_child_subreaper, waitpid};
use uuid::Uuid;

/// The environment variable that marks what belongs to one upstream process.
pub(crate) const MARK_VARIABLE: &str = "RINGFENCE_WORKER";

/// Between two looks at a tree that is being killed.
const KILL_INTERVAL: Duration = Duration::from_millis(5);
/// A process in the kernel's uninterruptible sleep cannot be waited for without end.
const KILL_ATTEMPTS: usize = 400;

/// The processes that this gateway started itself. Whoever else is a child of it was adopted.
static STARTED: LazyLock<Mutex<HashSet<Pid>>> = LazyLock::new(Mutex::default);

fn started() -> MutexGuard<'static, HashSet<Pid>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes orphans of upstreams children of this process. Once, at start.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// One upstream's processes.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Pid,
    mark: String,
}

impl Tree {
    /// Runs `spawn` with a fresh mark and registers the child before anybody can take it for an orphan.
    pub(crate) fn start<C>(
        spawn: impl FnOnce(&str) -> io::Result<C>,
        pid_of: impl FnOnce(&C) -> Option<u32>,
    ) -> io::Result<(C, Self)> {
        let mark = Uuid::new_v4().simple().to_string();
        let mut started = started();
        let child = spawn(&mark)?;
        let root = pid_of(&child)
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the process ended before it had a pid"))?;
        started.insert(root);
        Ok((child, Self { root, mark }))
    }

    pub(crate) fn root(&self) -> Pid {
        self.root
    }

    /// The root was waited for; its pid may be used by somebody else from now on.
    pub(crate) fn root_is_gone(&self) {
        started().remove(&self.root);
    }

    /// Everybody who belongs to the tree now.
    fn members(&self) -> Vec<Pid> {
        let started = started().clone();
        let belongs = |pid: Pid| {
            if started.contains(&pid) { pid == self.root } else { self.is_orphan_of_ours(pid) }
        };
        own_children().into_iter().filter(|&pid| belongs(pid)).flat_map(with_descendants).collect()
    }

    fn is_orphan_of_ours(&self, pid: Pid) -> bool {
        if getpgid(Some(pid)).is_ok_and(|group| group == self.root) {
            return true;
        }
        let marked = format!("{MARK_VARIABLE}={}", self.mark);
        fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|environment| {
            environment.split(|&byte| byte == 0).any(|entry| entry == marked.as_bytes())
        })
    }

    pub(crate) fn terminate(&self) {
        for pid in self.members() {
            // Gone already is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills until nobody is left.
    pub(crate) async fn kill(&self) {
        kill_until_empty(|| self.members()).await;
    }
}

/// Kills whatever this process still has for children, adopted or not. The last step of a shutdown.
pub async fn end_all_children() {
    kill_until_empty(|| own_children().into_iter().flat_map(with_descendants).collect()).await;
}

async fn kill_until_empty(members: impl Fn() -> Vec<Pid>) {
    for _ in 0..KILL_ATTEMPTS {
        let members = members();
        if members.is_empty() {
            return;
        }
        for pid in members {
            let _ = kill_process(pid, Signal::KILL);
        }
        reap_orphans();
        tokio::time::sleep(KILL_INTERVAL).await;
    }
    tracing::warn!("some processes of an MCP server did not end after SIGKILL");
}

/// Collects adopted processes that have ended, so that they do not stay as zombies.
pub(crate) fn reap_orphans() {
    let started = started();
    for pid in own_children() {
        if !started.contains(&pid) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

fn own_children() -> Vec<Pid> {
    fence::children_of(rustix::process::getpid())
}

fn with_descendants(pid: Pid) -> Vec<Pid> {
    let mut found = vec![pid];
    let mut looked_at = 0;
    while let Some(&parent) = found.get(looked_at) {
        looked_at += 1;
        for child in fence::children_of(parent) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}
