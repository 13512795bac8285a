//! The processes that the benchmark started, and the orphans that it adopts.
//!
//! The benchmark makes itself a child subreaper: a process that its gateway orphans becomes a child of the
//! benchmark, is counted as left behind and is killed at the end.

use std::collections::HashSet;

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Error, WhileDoing};
use crate::machine::process_table::ProcessTable;

static STARTED: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

pub(crate) fn remember(process_id: Option<u32>) {
    let mut started = STARTED.lock();
    started.get_or_insert_default().extend(process_id);
}

fn is_started(process_id: u32) -> bool {
    let started = STARTED.lock();
    started.as_ref().is_some_and(|set| set.contains(&process_id))
}

/// Adopts orphans, and raises the limit on open files for this process and every leg.
fn prepare_this_process() -> Result<(), Error> {
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

/// Runs a benchmark that starts processes, and kills what they left behind. On SIGINT and SIGTERM the future is
/// dropped, which kills every process it started.
pub(crate) fn run_and_kill_orphans<T>(run: impl Future<Output = T>) -> Result<T, Error> {
    prepare_this_process()?;
    // One thread: the load shares the cores with the gateway it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(until_interrupted(run));
    kill_adopted_orphans();
    outcome
}

async fn until_interrupted<T>(run: impl Future<Output = T>) -> Result<T, Error> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        results = run => Ok(results),
        _ = tokio::signal::ctrl_c() => Err(Error::new("interrupted")),
        _ = terminated.recv() => Err(Error::new("terminated")),
    }
}

/// Kills and reaps every adopted orphan. Called only while no gateway runs.
pub(crate) fn kill_adopted_orphans() {
    for process_id in adopted_orphans(&ProcessTable::read()) {
        kill(process_id);
        if let Some(pid) = as_pid(process_id) {
            // It was killed, so this returns as soon as the kernel has torn it down.
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Kills a process, the group it leads, and every descendant that left the group.
pub(crate) fn kill_tree(process_id: u32) {
    let descendants = ProcessTable::read().descendants_of(process_id);
    if let Some(pid) = as_pid(process_id) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    kill(process_id);
    descendants.into_iter().for_each(kill);
}

/// Ignores errors: the process may already be gone.
fn kill(process_id: u32) {
    if let Some(pid) = as_pid(process_id) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

fn as_pid(process_id: u32) -> Option<Pid> {
    i32::try_from(process_id).ok().and_then(Pid::from_raw)
}
