//! Which processes the benchmark started itself, and the orphans it adopts as their subreaper.
//!
//! The benchmark makes itself a child subreaper: a process whose gateway lets go of it becomes ours, so it
//! can be counted as left behind and is killed at the end.

use parking_lot::Mutex;
use std::collections::HashSet;

use rustix::process::{Pid, Resource, Signal, WaitOptions};

use crate::failure::{Failure, WhileDoing};
use crate::process_table::ProcessTable;

static STARTED: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

pub(crate) fn remember(process_id: Option<u32>) {
    let mut started = STARTED.lock();
    started.get_or_insert_default().extend(process_id);
}

fn is_started(process_id: u32) -> bool {
    let started = STARTED.lock();
    started.as_ref().is_some_and(|set| set.contains(&process_id))
}

/// Adopts orphans, and lifts the limit on open files for us and for every leg alike.
pub(crate) fn prepare_this_process() -> Result<(), Failure> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .while_doing("becoming a subreaper")?;
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(Resource::Nofile, limit).while_doing("raising the open-files limit")
}

/// Children of this process that it did not start.
pub(crate) fn adopted_orphans(table: &ProcessTable) -> Vec<u32> {
    let mut orphans = table.children_of(std::process::id());
    orphans.retain(|process_id| !is_started(*process_id));
    orphans
}

/// Kills and reaps every adopted orphan. Called only while no gateway runs.
pub(crate) fn kill_adopted_orphans() {
    for process_id in adopted_orphans(&ProcessTable::read()) {
        kill(process_id);
        if let Some(pid) = as_pid(process_id) {
            // It was killed: the wait is over as soon as the kernel has torn it down.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Kills a process that leads a group, the group, and every descendant that left it.
pub(crate) fn kill_tree(process_id: u32) {
    let descendants = ProcessTable::read().descendants_of(process_id);
    if let Some(pid) = as_pid(process_id) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    kill(process_id);
    descendants.into_iter().for_each(kill);
}

/// Already gone is as good as killed, hence no result.
fn kill(process_id: u32) {
    if let Some(pid) = as_pid(process_id) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

fn as_pid(process_id: u32) -> Option<Pid> {
    i32::try_from(process_id).ok().and_then(Pid::from_raw)
}
