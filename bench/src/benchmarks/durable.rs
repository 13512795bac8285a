//! What it costs that sessions outlive the gateway, and how soon they go on: a gateway that keeps them against one that
//! does not, in turns; a restart after SIGKILL; and a start with thousands of stored sessions.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::round_order::permutation;
use crate::command_line::CommandLine;
use crate::error::{Error, WhileDoing};
use crate::legs::Leg;
use crate::legs::running_leg::RunningLeg;
use crate::machine::started_processes;
use crate::mcp_client::http_session::{HttpEndpoint, HttpSession};
use crate::programs::{self, Programs};
use crate::report::bounds::{Bound, ReachRow};
use crate::report::markdown::{reach_table, run_line};
use crate::report::{RunDescription, json as report_json, write_json};
use crate::statistics::{median, ratios_per_round};

const CALLS: usize = 400;
const CREATIONS: usize = 5;
const STORED: usize = 10_000;
const STORED_QUICK: usize = 500;

/// Whether a gateway keeps its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    On,
    Off,
}

const BOTH: [Store; 2] = [Store::On, Store::Off];

/// Milliseconds per round.
#[derive(Debug, Default)]
struct Figures {
    /// How many sessions wait in the state that many starts read.
    stored: usize,
    call_on: Vec<Option<f64>>,
    call_off: Vec<Option<f64>>,
    creation_on: Vec<Option<f64>>,
    creation_off: Vec<Option<f64>>,
    restart: Vec<Option<f64>>,
    /// From the start of a gateway until it listens.
    start_with_many: Vec<Option<f64>>,
    start_with_none: Vec<Option<f64>>,
    kib_per_stored: Vec<Option<f64>>,
}

/// Measures, prints the report and writes the results.
pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    let programs = programs::build_and_locate()?;
    let started = Instant::now();
    let figures = started_processes::run_and_kill_orphans(measure(&programs, command_line))??;
    let run = RunDescription::since(started, command_line);
    let rows = figures.rows();
    println!("{}\n\n{}", run_line(&run), reach_table(&rows));
    let results = json!({ "figures": figures.json(), "reach": report_json::reach_as_json(&rows) });
    write_json(
        &command_line.json_file(&programs, "durable-results.json"),
        &report_json::with_run(results, &run),
    )
}

async fn measure(programs: &Programs, command_line: &CommandLine) -> Result<Figures, Error> {
    let stored = if command_line.quick { STORED_QUICK } else { STORED };
    let many = fill(programs, stored).await?;
    let mut figures = Figures { stored, ..Figures::default() };
    for round in 0..command_line.rounds() {
        eprintln!("round {} of {} …", round + 1, command_line.rounds());
        for store in permutation(&BOTH, round as usize) {
            let call = calls(programs, store).await?;
            let creation = creations(programs, store).await?;
            let (calls, creations) = match store {
                Store::On => (&mut figures.call_on, &mut figures.creation_on),
                Store::Off => (&mut figures.call_off, &mut figures.creation_off),
            };
            calls.push(call);
            creations.push(creation);
        }
        figures.restart.push(Some(restart(programs).await?));
        let none = state_directory(programs, "none")?;
        let (start_with_none, bytes_with_none) = start(programs, &none).await?;
        let (start_with_many, bytes_with_many) = start(programs, &many).await?;
        figures.start_with_none.push(Some(start_with_none));
        figures.start_with_many.push(Some(start_with_many));
        figures.kib_per_stored.push(Some((bytes_with_many - bytes_with_none) / 1024.0 / as_f64(stored)));
    }
    Ok(figures)
}

/// An empty directory for the sessions of a gateway.
fn state_directory(programs: &Programs, name: &str) -> Result<PathBuf, Error> {
    let directory = programs.work_directory.join("durable").join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).while_doing("removing the state of an earlier run")?;
    }
    Ok(directory)
}

async fn start_leg(programs: &Programs, leg: Leg, state: Option<&PathBuf>) -> Result<RunningLeg, Error> {
    let path = state.map(|state| state.display().to_string());
    match &path {
        Some(path) => {
            RunningLeg::start_with(leg, programs, &["--max-sessions", "20000", "--state-dir", path]).await
        }
        None => RunningLeg::start_with(leg, programs, &["--max-sessions", "20000", "--ephemeral"]).await,
    }
}

async fn start_keeping(programs: &Programs, leg: Leg, store: Store) -> Result<RunningLeg, Error> {
    let state = state_directory(programs, "turns")?;
    start_leg(programs, leg, (store == Store::On).then_some(&state)).await
}

/// The median time of calls in one session.
async fn calls(programs: &Programs, store: Store) -> Result<Option<f64>, Error> {
    let gateway = start_keeping(programs, Leg::RingfenceSession, store).await?;
    let mut session = HttpSession::open(gateway.http_endpoint()?).await?;
    session.call_echo().await?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        session.call_echo().await?;
        times.push(milliseconds_since(began));
    }
    gateway.stop().await;
    Ok(median(&times))
}

/// The median time from `initialize` to the first result of a session in its fence.
async fn creations(programs: &Programs, store: Store) -> Result<Option<f64>, Error> {
    let gateway = start_keeping(programs, Leg::RingfenceFenced, store).await?;
    let endpoint = gateway.http_endpoint()?;
    let mut times = Vec::with_capacity(CREATIONS);
    // The first one warms the gateway.
    for number in 0..=CREATIONS {
        let began = Instant::now();
        let mut session = HttpSession::open(endpoint).await?;
        session.call_echo().await?;
        if number > 0 {
            times.push(milliseconds_since(began));
        }
        session.close().await?;
    }
    gateway.stop().await;
    Ok(median(&times))
}

/// From SIGKILL to the first answer of an old session in its fence, at the next gateway.
async fn restart(programs: &Programs) -> Result<f64, Error> {
    let state = state_directory(programs, "restart")?;
    let gateway = start_leg(programs, Leg::RingfenceFenced, Some(&state)).await?;
    let mut session = HttpSession::open(gateway.http_endpoint()?).await?;
    session.call_echo().await?;
    let began = Instant::now();
    gateway.stop().await;
    let next = start_leg(programs, Leg::RingfenceFenced, Some(&state)).await?;
    let mut again = session.again_at(next.http_endpoint()?).await?;
    again.call_echo().await?;
    let took = milliseconds_since(began);
    next.stop().await;
    Ok(took)
}

/// The state of a gateway with so many sessions whose clients never called.
async fn fill(programs: &Programs, count: usize) -> Result<PathBuf, Error> {
    let state = state_directory(programs, "many")?;
    let gateway = start_leg(programs, Leg::RingfenceFenced, Some(&state)).await?;
    let endpoint: &HttpEndpoint = gateway.http_endpoint()?;
    for number in 0..count {
        if number % 1000 == 0 {
            eprintln!("{number} of {count} sessions …");
        }
        HttpSession::open(endpoint).await?;
    }
    gateway.stop().await;
    Ok(state)
}

/// How long a gateway takes to listen on a state, and how much memory it has then, in bytes.
async fn start(programs: &Programs, state: &PathBuf) -> Result<(f64, f64), Error> {
    let began = Instant::now();
    let gateway = start_leg(programs, Leg::RingfenceFenced, Some(state)).await?;
    let took = milliseconds_since(began);
    // Until the probe of the server is over, which takes memory for a moment.
    let mut session = HttpSession::open(gateway.http_endpoint()?).await?;
    session.call_echo().await?;
    let process = gateway.gateway_process_id().ok_or_else(|| Error::new("the gateway has no process"))?;
    let bytes = resident_bytes(process)?;
    session.close().await?;
    gateway.stop().await;
    Ok((took, bytes))
}

fn resident_bytes(process: u32) -> Result<f64, Error> {
    let text =
        std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).while_doing("reading memory")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024.0).ok_or_else(|| Error::new("the kernel tells no memory"))
}

fn milliseconds_since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

#[allow(clippy::cast_precision_loss, reason = "counts of sessions are small")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

/// What one row has beyond the other, per round.
fn differences(more: &[Option<f64>], less: &[Option<f64>]) -> Vec<f64> {
    more.iter().zip(less).filter_map(|(more, less)| Some(more.as_ref()? - less.as_ref()?)).collect()
}

impl Figures {
    fn rows(&self) -> Vec<ReachRow> {
        let of = |samples: &[Option<f64>]| median(&samples.iter().flatten().copied().collect::<Vec<_>>());
        let ratio = |on: &[Option<f64>], off: &[Option<f64>]| median(&ratios_per_round(on, off));
        let row = |figure: &str, measured, bound| ReachRow { figure: figure.to_owned(), measured, bound };
        let load = median(&differences(&self.start_with_many, &self.start_with_none));
        vec![
            row("call p50, store on / off", ratio(&self.call_on, &self.call_off), Some(Bound::AtMost(1.03))),
            row(
                "fenced session creation p50, store on / off",
                ratio(&self.creation_on, &self.creation_off),
                Some(Bound::AtMost(1.15)),
            ),
            row(
                "SIGKILL, restart → first fenced answer of an old session, ms",
                of(&self.restart),
                Some(Bound::AtMost(300.0)),
            ),
            row(&format!("loading {} stored sessions, ms", self.stored), load, Some(Bound::AtMost(200.0))),
            row("KiB per stored session", of(&self.kib_per_stored), Some(Bound::AtMost(8.0))),
            row("call p50 with the store, ms", of(&self.call_on), None),
            row("fenced session creation p50 with the store, ms", of(&self.creation_on), None),
            row("start without stored sessions until it listens, ms", of(&self.start_with_none), None),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "call_on_ms": self.call_on, "call_off_ms": self.call_off,
            "creation_on_ms": self.creation_on, "creation_off_ms": self.creation_off,
            "restart_ms": self.restart,
            "start_with_many_ms": self.start_with_many, "start_with_none_ms": self.start_with_none,
            "kib_per_stored": self.kib_per_stored,
        })
    }
}
