//! The order of a run: rounds of short slices that go round the legs, so noise hits all of them alike; then
//! memory and leftover processes, one fresh gateway at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command_line::CommandLine;
use crate::failure::Failure;
use crate::legs::Leg;
use crate::measure_calls::{self, Figures, LoadShape};
use crate::measure_sessions::{self, Leaving};
use crate::measurement_names::{Figure, Measurement};
use crate::other_load::read_other_load_percent;
use crate::peers;
use crate::programs::Programs;
use crate::results::Results;
use crate::running_leg::RunningLeg;
use crate::slice_plan::SlicePlan;
use crate::started_processes;

const SLICE_LIMIT: Duration = Duration::from_secs(45);
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
    pub(crate) fn new(command_line: &CommandLine, programs: &'a Programs) -> Self {
        Self {
            programs,
            legs: command_line.legs(),
            measurements: command_line.measurements(),
            plan: if command_line.quick { SlicePlan::QUICK } else { SlicePlan::FULL },
            rounds: command_line.rounds() as usize,
            running: BTreeMap::new(),
            results: Results::default(),
        }
    }

    pub(crate) async fn run(mut self) -> Results {
        self.install_peers().await;
        self.run_interleaved_rounds().await;
        self.run_fresh_rounds().await;
        self.results
    }

    async fn install_peers(&mut self) {
        for leg in self.legs.clone().into_iter().filter(|leg| leg.is_peer()) {
            if let Err(failure) = peers::install(leg, &self.programs.peers_directory()).await {
                self.give_up_leg(leg, &failure);
            }
        }
    }

    fn give_up_leg(&mut self, leg: Leg, failure: &Failure) {
        eprintln!("{}: {failure}", leg.name());
        self.results.note(leg, None, failure.to_string());
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
            Err(failure) => self.give_up_leg(leg, &failure),
        }
    }

    /// One slice of every measurement for every leg; `round` is none for the warm-up, whose figures are dropped.
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
        if let Err(failure) = outcome {
            self.note_failed_slice(leg, measurement, &failure);
            // The gateway may be stuck or gone; the other measurements get a new one.
            if let Some(running) = self.running.remove(&leg) {
                running.stop().await;
            }
            self.start_leg(leg).await;
        } else if let (Some(round), Ok(figures)) = (round, outcome) {
            self.record(leg, round, figures);
        }
    }

    fn note_failed_slice(&mut self, leg: Leg, measurement: Measurement, failure: &Failure) {
        eprintln!("{}, {measurement:?}: {failure}", leg.name());
        self.results.note(leg, Some(measurement), failure.to_string());
    }

    fn record(&mut self, leg: Leg, round: usize, figures: Figures) {
        for (figure, value) in figures {
            self.results.record(leg, figure, round, value);
        }
    }

    async fn run_fresh_rounds(&mut self) {
        let fresh: Vec<Measurement> =
            self.measurements.iter().copied().filter(|of| of.needs_a_fresh_gateway()).collect();
        for measurement in fresh {
            // Leftovers are counted, not timed: once is enough.
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
        let is_for_fences = measurement == Measurement::Held;
        if self.results.is_given_up(leg, measurement) || (is_for_fences && leg != Leg::RingfenceFenced) {
            return;
        }
        let outcome = match RunningLeg::start(leg, self.programs).await {
            Err(failure) => Err(failure),
            Ok(running) => {
                let outcome = within_limit(measure(&running, measurement, &self.plan)).await;
                running.stop().await;
                outcome
            }
        };
        started_processes::kill_adopted_orphans();
        match outcome {
            Ok(figures) => self.record(leg, round, figures),
            Err(failure) => self.note_failed_slice(leg, measurement, &failure),
        }
    }
}

async fn within_limit(slice: impl Future<Output = Result<Figures, Failure>>) -> Result<Figures, Failure> {
    let missing = || Failure::new(format!("missing answer: not done within {} s", SLICE_LIMIT.as_secs()));
    tokio::time::timeout(SLICE_LIMIT, slice).await.unwrap_or_else(|_| Err(missing()))
}

async fn measure(leg: &RunningLeg, measurement: Measurement, plan: &SlicePlan) -> Result<Figures, Failure> {
    let endpoint = &leg.endpoint;
    let shape = |sessions, in_flight, figure| LoadShape { sessions, in_flight, figure };
    match measurement {
        Measurement::Latency => measure_calls::measure_latency(endpoint, plan.latency).await,
        Measurement::Throughput1x32 => {
            measure_calls::measure_throughput(leg, shape(1, 32, Figure::Throughput1x32), plan.throughput)
                .await
        }
        Measurement::Throughput32x1 => {
            measure_calls::measure_throughput(leg, shape(32, 1, Figure::Throughput32x1), plan.throughput)
                .await
        }
        Measurement::Throughput64x4 => {
            measure_calls::measure_throughput(leg, shape(64, 4, Figure::Throughput64x4), plan.throughput)
                .await
        }
        Measurement::Creation => measure_sessions::measure_creation(endpoint, plan).await,
        Measurement::CreationRate => measure_sessions::measure_creation_rate(endpoint, plan).await,
        Measurement::Big1MiB => measure_calls::measure_big(endpoint, MIB, Figure::Big1MiB, plan.big).await,
        Measurement::Big8MiB => {
            measure_calls::measure_big(endpoint, 8 * MIB, Figure::Big8MiB, plan.big).await
        }
        Measurement::Memory => measure_sessions::measure_memory(leg, plan).await,
        Measurement::Held => measure_sessions::measure_held(leg).await,
        Measurement::ProcessesAfterDelete => {
            measure_sessions::measure_processes_left(leg, Leaving::Delete, plan).await
        }
        Measurement::ProcessesAfterVanishing => {
            measure_sessions::measure_processes_left(leg, Leaving::Vanish, plan).await
        }
    }
}
