//! Process trees: who belongs to an upstream, and how the whole of it ends.
//!
//! The gateway is a subreaper: what an upstream's children leave behind becomes a child of the gateway
//! instead of vanishing to init. Such an orphan is recognised by its process group or by the mark that every
//! upstream carries in its environment. A process that leaves its group *and* clears its environment is not
//! attributed until the gateway ends; the fence closes that gap.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};
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
    STARTED.lock()
}

/// Names this gateway in marks: its pid, and when it started, because pids are used again.
static OWN_MARK: LazyLock<String> = LazyLock::new(|| {
    let pid = std::process::id();
    format!("{pid}.{}", start_time(pid).unwrap_or(0))
});

/// Ends what a gateway of this user that was killed has left: processes with the mark of one that runs no more.
/// Inside a fence there are none, because they end with their gateway.
pub fn sweep_orphans() -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own_line = line_of_ancestors(std::process::id());
    let orphans: Vec<Pid> = pids
        .filter(|pid| !own_line.contains(pid) && is_of_a_dead_gateway(*pid))
        .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        .flat_map(with_descendants)
        .collect();
    for pid in &orphans {
        // Gone already is as good.
        let _ = kill_process(*pid, Signal::KILL);
    }
    orphans.len()
}

/// A process and whom it descends from: a gateway may have been started by somebody who carries a mark.
fn line_of_ancestors(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(parent) = stat_field(line[line.len() - 1], PARENT).and_then(|pid| u32::try_from(pid).ok())
        && parent > 0
        && !line.contains(&parent)
    {
        line.push(parent);
    }
    line
}

fn is_of_a_dead_gateway(pid: u32) -> bool {
    // In another namespace the pid in a mark means another process.
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace(&pid.to_string()).is_none_or(|theirs| Some(theirs) != namespace("self")) {
        return false;
    }
    // Another user's cannot be read.
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let prefix = format!("{MARK_VARIABLE}=");
    let mark = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
    let Some(mark) = mark.and_then(|mark| std::str::from_utf8(mark).ok()) else { return false };
    let mut parts = mark.split('.').map_while(|part| part.parse::<u64>().ok());
    let (Some(gateway), Some(started)) = (parts.next(), parts.next()) else { return false };
    u32::try_from(gateway).ok().and_then(start_time) != Some(started)
}

/// When a process started, in ticks since the system did.
fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, START_TIME)
}

/// Fields of `/proc/PID/stat`, counted from the one after the program's name.
const PARENT: usize = 1;
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const START_TIME: usize = 19;

fn stat_field(pid: u32, field: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may hold anything, and ends with the last parenthesis.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(field)?.parse().ok()
}

/// The user and system time that a process has taken.
pub fn cpu_ticks(pid: Pid) -> Option<u64> {
    let pid = u32::try_from(pid.as_raw_nonzero().get()).ok()?;
    Some(stat_field(pid, USER_TIME)? + stat_field(pid, SYSTEM_TIME)?)
}

/// Makes orphans of upstreams children of this process. Once, at start.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// One upstream's processes.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    root: Pid,
    mark: String,
}

impl ProcessTree {
    /// Runs `spawn` with a fresh mark and registers the child before anybody can take it for an orphan.
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

    /// The root of a tree was waited for; its pid may be used by somebody else from now on.
    pub(crate) fn root_is_gone(root: Pid) {
        started().remove(&root);
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
        if fence::membership_of(pid).is_some_and(|of| of.group == Some(self.root)) {
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
pub fn reap_orphans() {
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

pub fn with_descendants(pid: Pid) -> Vec<Pid> {
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
