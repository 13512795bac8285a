//! What an operator sees of a session: who, where, which processes, and what they take.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use rustix::process::Pid;
use serde::Serialize;
use upstream::{cpu_ticks, with_descendants};

use super::Session;
use crate::route::{MemberReport, Route};
use crate::session_context::{SessionContext, SessionQuery};
use crate::stored::StoredSession;
use crate::worker::Worker;

#[derive(Clone, Debug, Serialize)]
pub struct SessionOverview {
    /// The short hash that stands for the session's id.
    pub session: String,
    pub principal: String,
    pub client: String,
    pub instance: String,
    pub state: &'static str,
    pub lifecycle: &'static str,
    pub scope: Vec<PathBuf>,
    pub scope_source: Option<&'static str>,
    /// The session workspace that takes the place of the scope.
    pub copy: Option<String>,
    pub workers: Vec<WorkerOverview>,
    pub unavailable: Vec<UnavailableServer>,
    pub calls: u64,
    pub errors: u64,
    pub in_flight: usize,
    pub age_seconds: f64,
    pub idle_seconds: f64,
    pub created: Timestamp,
    /// How many gateways had it before.
    pub restarts: u32,
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// How many there are.
    pub notes: usize,
    #[serde(skip)]
    pub(crate) context: SessionContext,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkerOverview {
    pub upstream: String,
    pub state: &'static str,
    pub generation: u64,
    /// The process to look at from outside; in a fence, the one that keeps the tree.
    pub pid: Option<i32>,
    pub processes: usize,
    /// Of the whole tree; `None` where the kernel does not tell.
    pub pss_bytes: Option<u64>,
    pub cpu_seconds: Option<f64>,
    /// `fenced`, `unfenced`, or `elsewhere` if it is no process of this machine.
    pub fence: &'static str,
    /// What holds around it while it runs in a fence.
    pub confinement: Option<String>,
    /// Why it does not run, if it failed.
    pub reason: Option<String>,
}

/// A server that the session cannot use.
#[derive(Clone, Debug, Serialize)]
pub struct UnavailableServer {
    pub server: String,
    pub reason: String,
}

impl Session {
    /// Reads much of `/proc`: not for a thread that must not block.
    pub fn overview(&self) -> SessionOverview {
        let activity = self.client.activity();
        let record = self.client.record().clone();
        let workers = self.route().map(Route::workers).unwrap_or_default();
        SessionOverview {
            session: self.handle().to_string(),
            principal: record.key.principal.to_string(),
            created: record.opened,
            restarts: record.epoch,
            name: record.context.name.clone(),
            labels: record.context.labels.clone(),
            notes: record.context.notes.len(),
            context: record.context,
            client: record.client,
            instance: record.instance.to_string(),
            state: if self.has_ended() { "draining" } else { self.gate.lock().describe() },
            lifecycle: self.roster.lifecycle(),
            scope: record.scope.as_ref().map(|scope| scope.paths()).unwrap_or_default(),
            scope_source: record.scope.as_ref().map(|scope| scope.source().as_str()),
            copy: record.scope.as_ref().and_then(|scope| scope.copy_name().map(str::to_owned)),
            workers: workers.iter().map(|worker| worker.overview()).collect(),
            unavailable: unavailable(&self.servers()),
            calls: activity.calls,
            errors: activity.errors,
            in_flight: activity.in_flight,
            age_seconds: activity.age.as_secs_f64(),
            idle_seconds: activity.idle.as_secs_f64(),
        }
    }
}

impl SessionOverview {
    /// A session of an earlier gateway whose client has not come back. Nothing runs for it.
    pub(crate) fn of_stored(stored: &StoredSession) -> Self {
        let now = Timestamp::now();
        let seconds_since = |then: Timestamp| now.duration_since(then).as_secs_f64().max(0.0);
        let scope = stored.scope.as_ref();
        Self {
            session: stored.handle.clone(),
            principal: stored.principal.clone(),
            created: stored.opened,
            restarts: stored.epoch,
            name: stored.context.name.clone(),
            labels: stored.context.labels.clone(),
            notes: stored.context.notes.len(),
            context: stored.context.clone(),
            client: stored.client.clone(),
            instance: stored.instance.clone(),
            state: "stored",
            lifecycle: "-",
            scope: stored.directories(),
            scope_source: scope.map(|scope| scope.source.as_str()),
            copy: None,
            workers: Vec::new(),
            unavailable: Vec::new(),
            calls: 0,
            errors: 0,
            in_flight: 0,
            age_seconds: seconds_since(stored.opened),
            idle_seconds: seconds_since(stored.last_used),
        }
    }
}

impl SessionOverview {
    /// Whether it is looked for.
    pub(crate) fn is_found_by(&self, query: &SessionQuery) -> bool {
        let scope: Vec<_> = self.scope.iter().map(|path| path.to_string_lossy()).collect();
        let more = [&self.session, &self.principal, &self.client, &self.instance];
        query.finds(
            &self.context,
            more.into_iter().map(String::as_str).chain(scope.iter().map(|path| &**path)),
        )
    }
}

impl Worker {
    fn overview(&self) -> WorkerOverview {
        let (state, generation, process) = self.condition();
        let pid = process.as_ref().and_then(|process| process.pid());
        let tree = pid.and_then(Pid::from_raw).map(with_descendants).unwrap_or_default();
        WorkerOverview {
            upstream: self.name().to_owned(),
            state,
            generation,
            pid,
            processes: tree.len(),
            pss_bytes: sum(&tree, pss_bytes),
            cpu_seconds: sum(&tree, cpu_ticks).map(|ticks| {
                #[allow(clippy::cast_precision_loss, reason = "a few decades of ticks are exact")]
                let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
                seconds
            }),
            fence: self.fence_kind(),
            reason: self.down_reason(),
            confinement: process.and_then(|process| process.confinement().map(ToOwned::to_owned)),
        }
    }
}

fn unavailable(servers: &[MemberReport]) -> Vec<UnavailableServer> {
    let troubled = |report: &MemberReport| {
        Some(UnavailableServer { server: report.name.clone(), reason: report.reason.clone()? })
    };
    servers.iter().filter_map(troubled).collect()
}

/// The sum over those that tell; nothing if none does.
fn sum(tree: &[Pid], figure: impl Fn(Pid) -> Option<u64>) -> Option<u64> {
    tree.iter().filter_map(|&pid| figure(pid)).reduce(|a, b| a + b)
}

fn pss_bytes(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
