//! The order of a run: rounds of short slices that rotate through the legs, so noise hits all of them alike; then
//! memory and leftover processes, one fresh gateway at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::benchmarks::bridges::calls::{self, Figures, LoadShape};
use crate::benchmarks::bridges::measurements::{Figure, Measurement};
use crate::benchmarks::bridges::results::Results;
use crate::benchmarks::bridges::sessions::{self, Leaving};
use crate::benchmarks::bridges::slice_plan::SlicePlan;
use crate::error::Error;
use crate::legs::Leg;
use crate::legs::peers;
use crate::legs::running_leg::RunningLeg;
use crate::machine::other_load::read_other_load_percent;
use crate::machine::started_processes;
use crate::programs::Programs;

const SLICE_LIMIT: Duration = Duration::from_secs(60);
const MIB: u32 = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct RunSchedule<'a> {
    programs: &'a Programs,
    legs: Vec<Leg>,
    measurements: Vec<Measurement>,
    plan: SlicePlan,
    rounds: usize,
    running: BTreeMap<Leg, RunningLeg>,
    results: Results,
}

impl<'a> RunSchedule<'a> {
    pub(crate) fn new(
        programs: &'a Programs,
        legs: Vec<Leg>,
        measurements: Vec<Measurement>,
        plan: SlicePlan,
        rounds: usize,
    ) -> Self {
        let (running, results) = (BTreeMap::new(), Results::default());
        Self { programs, legs, measurements, plan, rounds, running, results }
    }

    pub(crate) async fn run(mut self) -> Results {
        self.install_peers().await;
        self.run_interleaved_rounds().await;
        self.run_fresh_rounds().await;
        self.results
    }

    async fn install_peers(&mut self) {
        for leg in self.legs.clone().into_iter().filter(|leg| leg.is_peer()) {
            if let Err(error) = peers::install(leg, &self.programs.peers_directory()).await {
                self.give_up_leg(leg, &error);
            }
        }
    }

    fn give_up_leg(&mut self, leg: Leg, error: &Error) {
        eprintln!("{}: {error}", leg.name());
        self.results.note(leg, None, error.to_string());
        self.legs.retain(|other| *other != leg);
    }

    async fn run_interleaved_rounds(&mut self) {
        let sliced: Vec<Measurement> =
            self.measurements.iter().copied().filter(|of| !of.needs_a_fresh_gateway()).collect();
        if sliced.is_empty() {
            return;
        }
        for leg in self.legs.clone() {
            self.start_leg(leg).await;
        }
        eprintln!("warming up …");
        self.run_round(&sliced, None).await;
        for round in 0..self.rounds {
            eprintln!("round {} of {} …", round + 1, self.rounds);
            self.results.record_other_load(read_other_load_percent().await);
            self.run_round(&sliced, Some(round)).await;
        }
        for (_, leg) in std::mem::take(&mut self.running) {
            leg.stop().await;
        }
        started_processes::kill_adopted_orphans();
    }

    async fn start_leg(&mut self, leg: Leg) {
        match RunningLeg::start(leg, self.programs).await {
            Ok(running) => {
                self.running.insert(leg, running);
            }
            Err(error) => self.give_up_leg(leg, &error),
        }
    }

    /// Runs one slice of every measurement for every leg; `round` is `None` in the warm-up, whose figures are
    /// dropped.
    async fn run_round(&mut self, sliced: &[Measurement], round: Option<usize>) {
        for measurement in sliced {
            let mut legs = self.legs.clone();
            let first = round.unwrap_or_default() % legs.len().max(1);
            legs.rotate_left(first);
            for leg in legs {
                self.run_slice(leg, *measurement, round).await;
            }
        }
    }

    async fn run_slice(&mut self, leg: Leg, measurement: Measurement, round: Option<usize>) {
        if self.results.is_given_up(leg, measurement) {
            return;
        }
        let Some(running) = self.running.get(&leg) else { return };
        let plan = if round.is_some() { self.plan } else { SlicePlan::WARM_UP };
        let outcome = within_limit(measure(running, measurement, &plan)).await;
        if let Err(error) = outcome {
            self.note_failed_slice(leg, measurement, &error);
            // The gateway may be stuck or gone, so the other measurements get a new one.
            if let Some(running) = self.running.remove(&leg) {
                running.stop().await;
            }
            self.start_leg(leg).await;
        } else if let (Some(round), Ok(figures)) = (round, outcome) {
            self.record(leg, round, figures);
        }
    }

    fn note_failed_slice(&mut self, leg: Leg, measurement: Measurement, error: &Error) {
        eprintln!("{}, {measurement:?}: {error}", leg.name());
        self.results.note(leg, Some(measurement), error.to_string());
    }

    fn record(&mut self, leg: Leg, round: usize, figures: Figures) {
        for (figure, value) in figures {
            self.results.samples.record(leg, figure, round, value);
        }
    }

    async fn run_fresh_rounds(&mut self) {
        let fresh: Vec<Measurement> =
            self.measurements.iter().copied().filter(|of| of.needs_a_fresh_gateway()).collect();
        for measurement in fresh {
            // Processes and sessions are counted, not sampled: once is enough.
            let is_counted = matches!(measurement.group(), "processes" | "held");
            let rounds = if is_counted { 1 } else { self.plan.fresh_rounds };
            for round in 0..rounds as usize {
                eprintln!("{}, {} of {rounds} …", measurement.group(), round + 1);
                for leg in self.legs.clone() {
                    self.run_with_fresh_gateway(leg, measurement, round).await;
                }
            }
        }
    }

    async fn run_with_fresh_gateway(&mut self, leg: Leg, measurement: Measurement, round: usize) {
        if self.results.is_given_up(leg, measurement) || !measurement.is_for(leg) {
            return;
        }
        let outcome = match RunningLeg::start_with(leg, self.programs, measurement.gateway_options()).await {
            Err(error) => Err(error),
            Ok(running) => {
                let outcome = within_limit(measure(&running, measurement, &self.plan)).await;
                running.stop().await;
                outcome
            }
        };
        started_processes::kill_adopted_orphans();
        match outcome {
            Ok(figures) => self.record(leg, round, figures),
            Err(error) => self.note_failed_slice(leg, measurement, &error),
        }
    }
}

async fn within_limit(slice: impl Future<Output = Result<Figures, Error>>) -> Result<Figures, Error> {
    let missing = || Error::new(format!("missing answer: not done within {} s", SLICE_LIMIT.as_secs()));
    tokio::time::timeout(SLICE_LIMIT, slice).await.unwrap_or_else(|_| Err(missing()))
}

async fn measure(leg: &RunningLeg, measurement: Measurement, plan: &SlicePlan) -> Result<Figures, Error> {
    let endpoint = &leg.endpoint;
    let shape = |sessions, in_flight, figure| LoadShape { sessions, in_flight, figure };
    match measurement {
        Measurement::Latency => calls::measure_latency(endpoint, plan.latency).await,
        Measurement::Throughput1x32 => {
            calls::measure_throughput(leg, shape(1, 32, Figure::Throughput1x32), plan.throughput).await
        }
        Measurement::Throughput32x1 => {
            calls::measure_throughput(leg, shape(32, 1, Figure::Throughput32x1), plan.throughput).await
        }
        Measurement::Throughput64x4 => {
            calls::measure_throughput(leg, shape(64, 4, Figure::Throughput64x4), plan.throughput).await
        }
        Measurement::Creation => sessions::measure_creation(endpoint, plan).await,
        Measurement::CreationRate => sessions::measure_creation_rate(endpoint, plan).await,
        Measurement::Big1MiB => calls::measure_big(endpoint, MIB, Figure::Big1MiB, plan.big).await,
        Measurement::Big8MiB => calls::measure_big(endpoint, 8 * MIB, Figure::Big8MiB, plan.big).await,
        Measurement::Memory => sessions::measure_memory(leg, plan).await,
        Measurement::Held => sessions::measure_held(leg).await,
        Measurement::Vanished => sessions::measure_vanished(leg).await,
        Measurement::ProcessesAfterDelete => {
            sessions::measure_processes_left(leg, Leaving::Delete, plan).await
        }
        Measurement::ProcessesAfterVanishing => {
            sessions::measure_processes_left(leg, Leaving::Vanish, plan).await
        }
    }
}
