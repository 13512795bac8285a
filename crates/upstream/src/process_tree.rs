//! Process trees of upstreams without a fence: which processes belong to one, and how all of them end.
//!
//! The gateway is a subreaper: a process whose parent has ended becomes a child of the gateway instead of init's.
//! Such an orphan is recognised by its process group or by the mark that every upstream carries in its
//! environment. A process that leaves its group *and* clears its environment is not attributed until the gateway
//! ends; the fence closes that gap.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use fence::{ProcessStat, all_with_descendants, membership_of, variable_of};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use uuid::Uuid;

/// The environment variable that marks what belongs to one upstream process.
pub(crate) const MARK_VARIABLE: &str = "RINGFENCE_WORKER";

/// The pause between two attempts to kill a tree.
const KILL_INTERVAL: Duration = Duration::from_millis(5);
/// A process in the kernel's uninterruptible sleep cannot be waited for without end.
const KILL_ATTEMPTS: usize = 400;

/// The processes that this gateway started itself. Its other children were adopted.
static STARTED: LazyLock<Mutex<HashSet<Pid>>> = LazyLock::new(Mutex::default);

fn started() -> MutexGuard<'static, HashSet<Pid>> {
    STARTED.lock()
}

/// Names this gateway in marks: its pid, and when it started, because pids are used again.
static OWN_MARK: LazyLock<String> =
    LazyLock::new(|| format!("{}.{}", getpid(), start_time(getpid()).unwrap_or(0)));

/// Kills what a killed gateway of this user has left: processes with the mark of a gateway that no longer runs.
/// Fenced processes end with their gateway and are never left. Returns how many were killed.
pub fn sweep_orphans() -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let own_line = line_of_ancestors(getpid());
    let orphans =
        all_with_descendants(pids.filter(|pid| !own_line.contains(pid) && is_of_a_dead_gateway(*pid)));
    for pid in &orphans {
        // Gone already is as good.
        let _ = kill_process(*pid, Signal::KILL);
    }
    orphans.len()
}

/// A process and its ancestors. A gateway may itself be started by a process that carries a mark.
fn line_of_ancestors(pid: Pid) -> Vec<Pid> {
    let mut line = vec![pid];
    while let Some(parent) = ProcessStat::of(line[line.len() - 1]).and_then(|stat| stat.parent)
        && !line.contains(&parent)
    {
        line.push(parent);
    }
    line
}

fn is_of_a_dead_gateway(pid: Pid) -> bool {
    // In another namespace the pid in a mark means another process.
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace(&pid.to_string()).is_none_or(|theirs| Some(theirs) != namespace("self")) {
        return false;
    }
    let mark = variable_of(pid, MARK_VARIABLE).and_then(|mark| String::from_utf8(mark).ok());
    let Some(mark) = mark else { return false };
    let mut parts = mark.split('.').map_while(|part| part.parse::<u64>().ok());
    let (Some(gateway), Some(started)) = (parts.next(), parts.next()) else { return false };
    let gateway = i32::try_from(gateway).ok().and_then(Pid::from_raw);
    gateway.and_then(start_time) != Some(started)
}

fn start_time(pid: Pid) -> Option<u64> {
    Some(ProcessStat::of(pid)?.start_time)
}

/// The user and system time that a process has used, in clock ticks.
pub fn cpu_ticks(pid: Pid) -> Option<u64> {
    Some(ProcessStat::of(pid)?.cpu_ticks)
}

/// Makes orphans of upstreams children of this process. Once, at start.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(io::Error::from)
}

/// One upstream's processes.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    root: Pid,
    mark: String,
}

impl ProcessTree {
    /// Runs `spawn` with a fresh mark, and registers the child before it can be mistaken for an orphan.
    pub(crate) fn start<C>(
        spawn: impl FnOnce(&str) -> io::Result<C>,
        pid_of: impl FnOnce(&C) -> Option<u32>,
    ) -> io::Result<(C, Self)> {
        let mark = format!("{}.{}", *OWN_MARK, Uuid::new_v4().simple());
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

    /// Forgets a root that was reaped: its pid may be used again.
    pub(crate) fn root_is_gone(root: Pid) {
        started().remove(&root);
    }

    /// All processes that belong to the tree now.
    fn members(&self) -> Vec<Pid> {
        let started = started().clone();
        let belongs = |pid: Pid| {
            if started.contains(&pid) { pid == self.root } else { self.is_orphan_of_ours(pid) }
        };
        all_with_descendants(own_children().into_iter().filter(|&pid| belongs(pid)))
    }

    fn is_orphan_of_ours(&self, pid: Pid) -> bool {
        membership_of(pid).is_some_and(|of| of.group == Some(self.root))
            || variable_of(pid, MARK_VARIABLE).is_some_and(|mark| mark == self.mark.as_bytes())
    }

    pub(crate) fn terminate(&self) {
        for pid in self.members() {
            // Gone already is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills until no process is left.
    pub(crate) async fn kill(&self) {
        kill_until_empty(|| self.members()).await;
    }
}

/// Kills all children of this process, adopted or not. The last step of a shutdown.
pub async fn end_all_children() {
    kill_until_empty(|| all_with_descendants(own_children())).await;
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

/// Reaps adopted processes that have ended.
pub fn reap_orphans() {
    let started = started();
    for pid in own_children() {
        if !started.contains(&pid) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

fn own_children() -> Vec<Pid> {
    fence::children_of(getpid())
}
