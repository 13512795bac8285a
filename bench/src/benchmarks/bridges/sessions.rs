//! Session creation, the memory of idle sessions, and processes left behind by ended ones.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::benchmarks::bridges::calls::{Figures, close_all};
use crate::benchmarks::bridges::measurements::Figure;
use crate::benchmarks::bridges::slice_plan::SlicePlan;
use crate::error::Error;
use crate::legs::running_leg::RunningLeg;
use crate::machine::process_table::{ProcessTable, proportional_set_kib};
use crate::machine::started_processes;
use crate::mcp_client::session::{Endpoint, McpSession};
use crate::statistics::percentile;

const CREATORS: u32 = 8;
const LEAVING_SESSIONS: u32 = 20;
const LEAVING_POLL: Duration = Duration::from_millis(50);
const VANISHING_CLIENTS: u32 = 50;

/// How long the servers of vanished clients may take to be stopped.
const VANISHED_WITHIN: Duration = Duration::from_secs(12);

/// The gateway gives freed memory back to the kernel every ten seconds.
const GIVEN_BACK_AFTER: Duration = Duration::from_secs(11);

async fn open_and_call(endpoint: &Endpoint) -> Result<McpSession, Error> {
    let mut session = McpSession::open(endpoint).await?;
    session.call_echo().await?;
    Ok(session)
}

/// Opens sessions one after another: connect, initialize, initialized, first call. Closing them is not timed.
pub(crate) async fn measure_creation(endpoint: &Endpoint, plan: &SlicePlan) -> Result<Figures, Error> {
    let mut microseconds = Vec::new();
    let deadline = Instant::now() + plan.creations_limit;
    for _ in 0..plan.creations {
        let started = Instant::now();
        if started > deadline {
            break;
        }
        let session = open_and_call(endpoint).await?;
        microseconds.push(started.elapsed().as_secs_f64() * 1e6);
        session.close().await?;
    }
    let figures = [(Figure::CreationP50, 50), (Figure::CreationP99, 99)];
    Ok(figures.iter().filter_map(|(figure, at)| Some((*figure, percentile(&microseconds, *at)?))).collect())
}

/// Opens sessions with eight creators at once; all of them stay open until the measurement ends.
pub(crate) async fn measure_creation_rate(endpoint: &Endpoint, plan: &SlicePlan) -> Result<Figures, Error> {
    let each = plan.creations_per_creator;
    let started = Instant::now();
    let mut creators = JoinSet::new();
    for _ in 0..CREATORS {
        let endpoint = endpoint.clone();
        creators.spawn(async move { open_sessions(&endpoint, each).await });
    }
    let mut sessions = Vec::new();
    while let Some(joined) = creators.join_next().await {
        sessions.extend(joined.map_err(|error| Error::new(error.to_string()))??);
    }
    let rate = f64::from(CREATORS * each) / started.elapsed().as_secs_f64();
    close_all(sessions).await?;
    Ok(vec![(Figure::CreationRate, rate)])
}

async fn open_sessions(endpoint: &Endpoint, count: u32) -> Result<Vec<McpSession>, Error> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(open_and_call(endpoint).await?);
    }
    Ok(sessions)
}

/// Memory at 1, 50 and 200 idle sessions of a fresh gateway, each after one call, connections open.
pub(crate) async fn measure_memory(leg: &RunningLeg, plan: &SlicePlan) -> Result<Figures, Error> {
    let steps = [
        (1, Figure::GatewayMemory1, Figure::ChildrenMemory1),
        (49, Figure::GatewayMemory50, Figure::ChildrenMemory50),
        (150, Figure::GatewayMemory200, Figure::ChildrenMemory200),
    ];
    let mut sessions = Vec::new();
    let mut figures = Vec::new();
    let mut gateway_kib = Vec::new();
    for (more, gateway_figure, children_figure) in steps {
        sessions.extend(open_sessions(&leg.endpoint, more).await?);
        tokio::time::sleep(plan.settle).await;
        let mut children = leg.descendants();
        children.extend(sessions.iter().filter_map(McpSession::server_process_id));
        if let Some(gateway) = leg.gateway_process_id() {
            let kib = proportional_set_kib(&[gateway]);
            gateway_kib.push(kib);
            figures.push((gateway_figure, kib));
        }
        if !children.is_empty() {
            figures.push((children_figure, proportional_set_kib(&children)));
        }
    }
    if let [_, at_50, at_200] = gateway_kib[..] {
        figures.push((Figure::GatewayMemoryPerSession, (at_200 - at_50) / 150.0));
    }
    close_all(sessions).await?;
    Ok(figures)
}

/// Opens 500 sessions and counts how many answer while all of them are open.
pub(crate) async fn measure_held(leg: &RunningLeg) -> Result<Figures, Error> {
    const HELD_SESSIONS: u32 = 500;
    let mut sessions = open_sessions(&leg.endpoint, HELD_SESSIONS).await?;
    let mut answering = 0;
    for session in &mut sessions {
        session.call_echo().await?;
        answering += 1;
    }
    close_all(sessions).await?;
    Ok(vec![(Figure::Held500, f64::from(answering))])
}

/// What 50 clients that have vanished still cost, processes below the gateway included. What is made once is not
/// counted: one client has vanished before.
pub(crate) async fn measure_vanished(leg: &RunningLeg) -> Result<Figures, Error> {
    let Some(gateway) = leg.gateway_process_id() else { return Ok(Vec::new()) };
    let at_first = count_processes(leg);
    let memory_after = async |clients: u32| {
        drop(open_sessions(&leg.endpoint, clients).await?);
        wait_for_processes_to_leave(leg, at_first, VANISHED_WITHIN).await;
        tokio::time::sleep(GIVEN_BACK_AFTER).await;
        let mut processes = leg.descendants();
        processes.push(gateway);
        Ok::<_, Error>(proportional_set_kib(&processes))
    };
    let before = memory_after(1).await?;
    let after = memory_after(VANISHING_CLIENTS).await?;
    Ok(vec![(Figure::MemoryPerVanished, (after - before) / f64::from(VANISHING_CLIENTS))])
}

/// How sessions end before leftover processes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    Delete,
    Vanish,
}

/// How many processes a fresh gateway still has after its sessions ended.
pub(crate) async fn measure_processes_left(
    leg: &RunningLeg,
    leaving: Leaving,
    plan: &SlicePlan,
) -> Result<Figures, Error> {
    if leg.gateway_process_id().is_none() {
        return Ok(Vec::new());
    }
    let at_first = count_processes(leg);
    let sessions = open_sessions(&leg.endpoint, LEAVING_SESSIONS).await?;
    let figure = match leaving {
        Leaving::Delete => {
            close_all(sessions).await?;
            Figure::ProcessesAfterDelete
        }
        Leaving::Vanish => {
            drop(sessions);
            Figure::ProcessesAfterVanishing
        }
    };
    let left = wait_for_processes_to_leave(leg, at_first, plan.leave).await;
    Ok(vec![(figure, f64::from(left))])
}

/// Waits until at most `at_first` processes are left or the time is up; returns how many are left.
async fn wait_for_processes_to_leave(leg: &RunningLeg, at_first: u32, limit: Duration) -> u32 {
    let deadline = Instant::now() + limit;
    loop {
        let left = count_processes(leg);
        if left <= at_first || Instant::now() > deadline {
            return left;
        }
        tokio::time::sleep(LEAVING_POLL).await;
    }
}

/// The gateway's descendants, including unreaped ones, and its live orphans.
fn count_processes(leg: &RunningLeg) -> u32 {
    let table = ProcessTable::read();
    let descendants =
        leg.gateway_process_id().map(|gateway| table.descendants_of(gateway)).unwrap_or_default();
    let mut orphans = started_processes::adopted_orphans(&table);
    orphans.retain(|process_id| !table.is_zombie(*process_id));
    u32::try_from(descendants.len() + orphans.len()).unwrap_or(u32::MAX)
}
