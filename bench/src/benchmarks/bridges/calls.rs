//! Sequential latency, throughput with processor time per call, and big results.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::benchmarks::bridges::measurements::Figure;
use crate::error::Error;
use crate::legs::running_leg::RunningLeg;
use crate::machine::process_table;
use crate::mcp_client::session::{Endpoint, McpSession};
use crate::statistics::percentile;

pub(crate) type Figures = Vec<(Figure, f64)>;

const WARM_UP_CALLS: u32 = 20;

/// One session, one call in flight.
pub(crate) async fn measure_latency(endpoint: &Endpoint, duration: Duration) -> Result<Figures, Error> {
    let mut session = McpSession::open(endpoint).await?;
    for _ in 0..WARM_UP_CALLS {
        session.call_echo().await?;
    }
    let mut microseconds = Vec::new();
    let deadline = Instant::now() + duration;
    let mut before = Instant::now();
    while before < deadline {
        session.call_echo().await?;
        let after = Instant::now();
        microseconds.push((after - before).as_secs_f64() * 1e6);
        before = after;
    }
    session.close().await?;
    let figures = [(Figure::LatencyP50, 50), (Figure::LatencyP99, 99)];
    Ok(figures.iter().filter_map(|(figure, at)| Some((*figure, percentile(&microseconds, *at)?))).collect())
}

/// The number of sessions, and how many calls each keeps in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadShape {
    pub(crate) sessions: u32,
    pub(crate) in_flight: u32,
    pub(crate) figure: Figure,
}

pub(crate) async fn measure_throughput(
    leg: &RunningLeg,
    shape: LoadShape,
    duration: Duration,
) -> Result<Figures, Error> {
    let (first_lanes, more_lanes) = open_lanes(&leg.endpoint, shape).await?;
    let gateway: Vec<u32> = leg.gateway_process_id().into_iter().collect();
    let mut children = leg.descendants();
    children.extend(first_lanes.iter().filter_map(McpSession::server_process_id));
    let seconds_before =
        (process_table::processor_seconds(&gateway), process_table::processor_seconds(&children));
    let sessions = first_lanes.len();
    let load = drive_lanes(first_lanes, more_lanes, duration).await?;
    let gateway_seconds = process_table::processor_seconds(&gateway) - seconds_before.0;
    let children_seconds = process_table::processor_seconds(&children) - seconds_before.1;
    close_all(load.lanes.into_iter().take(sessions)).await?;

    let calls = f64::from(load.answered);
    let mut figures = vec![(shape.figure, calls / load.elapsed.as_secs_f64())];
    if shape.figure == Figure::Throughput1x32 && calls > 0.0 {
        if !gateway.is_empty() {
            figures.push((Figure::GatewayCpu, gateway_seconds * 1e6 / calls));
        }
        if !children.is_empty() {
            figures.push((Figure::ChildrenCpu, children_seconds * 1e6 / calls));
        }
    }
    Ok(figures)
}

/// Opens all lanes; returns the first lane of every session, and the others.
async fn open_lanes(
    endpoint: &Endpoint,
    shape: LoadShape,
) -> Result<(Vec<McpSession>, Vec<McpSession>), Error> {
    let (mut first_lanes, mut more_lanes) = (Vec::new(), Vec::new());
    for _ in 0..shape.sessions {
        let mut lanes = McpSession::open(endpoint).await?.into_lanes(shape.in_flight).await?.into_iter();
        first_lanes.extend(lanes.next());
        more_lanes.extend(lanes);
    }
    for lane in first_lanes.iter_mut().chain(&mut more_lanes) {
        lane.call_echo().await?;
    }
    Ok((first_lanes, more_lanes))
}

#[derive(Debug)]
struct DrivenLoad {
    answered: u32,
    elapsed: Duration,
    /// The first lanes come first, in any order.
    lanes: Vec<McpSession>,
}

async fn drive_lanes(
    first_lanes: Vec<McpSession>,
    more_lanes: Vec<McpSession>,
    duration: Duration,
) -> Result<DrivenLoad, Error> {
    let sessions = first_lanes.len();
    let started = Instant::now();
    let deadline = started + duration;
    let mut tasks = JoinSet::new();
    for (position, mut lane) in first_lanes.into_iter().chain(more_lanes).enumerate() {
        tasks.spawn(async move {
            let answered = lane.call_echo_until(deadline).await?;
            Ok::<_, Error>((position, answered, lane))
        });
    }
    let mut load = DrivenLoad { answered: 0, elapsed: Duration::ZERO, lanes: Vec::new() };
    let mut others = Vec::new();
    while let Some(joined) = tasks.join_next().await {
        let (position, answered, lane) = joined.map_err(|error| Error::new(error.to_string()))??;
        load.answered += answered;
        if position < sessions { load.lanes.push(lane) } else { others.push(lane) }
    }
    load.elapsed = started.elapsed();
    load.lanes.append(&mut others);
    Ok(load)
}

pub(crate) async fn close_all(sessions: impl IntoIterator<Item = McpSession>) -> Result<(), Error> {
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}

/// Makes one `big` call after another; the figure is megabytes (10⁶) of text per second.
pub(crate) async fn measure_big(
    endpoint: &Endpoint,
    bytes: u32,
    figure: Figure,
    duration: Duration,
) -> Result<Figures, Error> {
    let mut session = McpSession::open(endpoint).await?;
    session.call_big(bytes).await?;
    let started = Instant::now();
    let mut calls = 0_u32;
    while calls == 0 || started.elapsed() < duration {
        session.call_big(bytes).await?;
        calls += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    session.close().await?;
    Ok(vec![(figure, f64::from(bytes) * f64::from(calls) / 1e6 / seconds)])
}
