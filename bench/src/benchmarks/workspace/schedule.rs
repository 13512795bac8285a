//! The order of a run of the workspace benchmark: first memory, while nothing else runs; then rounds in which each
//! measurement takes its turn. A measurement that fails is dropped, and the others continue.

use crate::benchmarks::workspace::creation::CreationBench;
use crate::benchmarks::workspace::grep::GrepBench;
use crate::benchmarks::workspace::legs::WorkspaceMeasurement;
use crate::benchmarks::workspace::memory;
use crate::benchmarks::workspace::overhead::OverheadBench;
use crate::benchmarks::workspace::peer::PeerBench;
use crate::benchmarks::workspace::results::{WorkspaceNote, WorkspaceResults, WorkspaceSample};
use crate::error::Error;
use crate::machine::other_load::read_other_load_percent;
use crate::programs::Programs;

/// Memory hardly varies, and each reading needs a gateway of its own.
const MAX_MEMORY_ROUNDS: usize = 3;

#[derive(Debug)]
pub(crate) struct WorkspaceSchedule<'a> {
    programs: &'a Programs,
    measurements: Vec<WorkspaceMeasurement>,
    rounds: usize,
    results: WorkspaceResults,
}

/// A measurement with its processes running.
#[derive(Debug)]
enum Prepared {
    Overhead(OverheadBench),
    Peer(PeerBench),
    Grep(GrepBench),
    Creation(Box<CreationBench>),
}

impl<'a> WorkspaceSchedule<'a> {
    pub(crate) fn new(
        programs: &'a Programs,
        measurements: Vec<WorkspaceMeasurement>,
        rounds: usize,
    ) -> Self {
        Self { programs, measurements, rounds, results: WorkspaceResults::default() }
    }

    pub(crate) async fn run(mut self) -> WorkspaceResults {
        if self.measurements.contains(&WorkspaceMeasurement::Memory) {
            self.measure_memory().await;
        }
        let mut prepared = Vec::new();
        for measurement in self.measurements.clone() {
            match self.prepare(measurement).await {
                Ok(bench) => prepared.extend(bench.map(|bench| (measurement, bench))),
                Err(error) => self.give_up(measurement, &error),
            }
        }
        // The first round fills caches and is dropped.
        for round in 0..=self.rounds {
            eprintln!("round {round} of {} …", self.rounds);
            if round > 0 {
                self.results.other_load_percents.extend(read_other_load_percent().await);
            }
            prepared = self.run_round(round, prepared).await;
        }
        for (_, bench) in prepared {
            bench.stop().await;
        }
        self.results
    }

    async fn run_round(
        &mut self,
        round: usize,
        prepared: Vec<(WorkspaceMeasurement, Prepared)>,
    ) -> Vec<(WorkspaceMeasurement, Prepared)> {
        let mut kept = Vec::new();
        for (measurement, mut bench) in prepared {
            match bench.measure(self.programs, round).await {
                Ok(samples) => {
                    if let Some(round) = round.checked_sub(1) {
                        self.results.record(round, samples);
                    }
                    kept.push((measurement, bench));
                }
                Err(error) => {
                    self.give_up(measurement, &error);
                    bench.stop().await;
                }
            }
        }
        kept
    }

    async fn measure_memory(&mut self) {
        for round in 0..self.rounds.min(MAX_MEMORY_ROUNDS) {
            match memory::measure(self.programs).await {
                Ok(samples) => self.results.record(round, samples),
                Err(error) => return self.give_up(WorkspaceMeasurement::Memory, &error),
            }
        }
    }

    /// Returns `None` for memory, which needs no preparation, and for the peer if it is not installed.
    async fn prepare(&mut self, measurement: WorkspaceMeasurement) -> Result<Option<Prepared>, Error> {
        let programs = self.programs;
        Ok(match measurement {
            WorkspaceMeasurement::Memory => None,
            WorkspaceMeasurement::Overhead => {
                Some(Prepared::Overhead(OverheadBench::prepare(programs).await?))
            }
            WorkspaceMeasurement::Creation => {
                Some(Prepared::Creation(Box::new(CreationBench::prepare(programs).await?)))
            }
            WorkspaceMeasurement::Grep => {
                let bench = GrepBench::prepare(programs)?;
                if !bench.has_ripgrep() {
                    self.note_absence(measurement, "rg is not installed (Debian: apt-get install ripgrep)");
                }
                Some(Prepared::Grep(bench))
            }
            WorkspaceMeasurement::Peer => {
                let bench = PeerBench::prepare(programs).await?;
                if bench.is_none() {
                    self.note_absence(
                        measurement,
                        "server-filesystem is not installed (scripts/install-test-parts)",
                    );
                }
                bench.map(Prepared::Peer)
            }
        })
    }

    fn note_absence(&mut self, measurement: WorkspaceMeasurement, reason: &str) {
        eprintln!("{}: {reason}", measurement.name());
        self.results.note(WorkspaceNote { measurement, reason: reason.to_owned(), is_absence: true });
    }

    fn give_up(&mut self, measurement: WorkspaceMeasurement, error: &Error) {
        eprintln!("{}: {error}", measurement.name());
        self.results.note(WorkspaceNote { measurement, reason: error.to_string(), is_absence: false });
    }
}

impl Prepared {
    async fn measure(&mut self, programs: &Programs, round: usize) -> Result<Vec<WorkspaceSample>, Error> {
        match self {
            Self::Overhead(bench) => bench.measure(round).await,
            Self::Peer(bench) => bench.measure(round).await,
            Self::Grep(bench) => bench.measure(round),
            Self::Creation(bench) => bench.measure(programs, round).await,
        }
    }

    async fn stop(self) {
        match self {
            Self::Overhead(bench) => bench.stop().await,
            Self::Peer(bench) => bench.stop().await,
            // The worker exits when its pipes close; an error while waiting for it changes no figure.
            Self::Grep(bench) => drop(bench.stop()),
            Self::Creation(bench) => bench.stop().await,
        }
    }
}
