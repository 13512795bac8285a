//! The order of a run of the fence benchmark: each round starts the command once in every variant, in a different
//! order each time, because the kernel's clean-up after one variant slows down the next.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::benchmarks::fence::launch::{FenceHost, Launched, Streams};
use crate::benchmarks::fence::results::FenceResults;
use crate::benchmarks::fence::variants::{FenceFigure, FenceMeasurement, FenceVariant};
use crate::benchmarks::round_order::permutation;
use crate::error::{Error, WhileDoing};
use crate::machine::other_load::read_other_load_percent;
use crate::machine::process_table::{ProcessTable, memory_kib};
use crate::programs::Programs;

/// Does nothing, so that only the launch is measured.
const SHORT_COMMAND: &str = "/bin/true";
/// Rounds that are not recorded: they fill caches and let the launchers run their one-time checks.
const WARM_UP_ROUNDS: usize = 3;
/// How often the load from other programs is read during the whole run.
const LOAD_READINGS: usize = 10;
const OPENINGS: u32 = 20_000;
const FENCES_AT_ONCE: usize = 8;
/// Bubblewrap does not report when the command runs, so the process table is polled at most this many times, a
/// millisecond apart.
const LOOKS_FOR_COMMAND: u32 = 1000;

type Figures = Vec<(FenceFigure, f64)>;

#[derive(Debug)]
pub(crate) struct FenceSchedule {
    host: FenceHost,
    bench: PathBuf,
    opened: PathBuf,
    variants: Vec<FenceVariant>,
    measurements: Vec<FenceMeasurement>,
    rounds: usize,
    results: FenceResults,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct FenceRun {
    pub(crate) results: FenceResults,
    pub(crate) host: String,
}

impl FenceSchedule {
    pub(crate) fn prepare(
        programs: &Programs,
        variants: Vec<FenceVariant>,
        measurements: Vec<FenceMeasurement>,
        rounds: usize,
    ) -> Result<Self, Error> {
        let host = FenceHost::prepare(programs)?;
        let opened = host.scope().join("opened");
        std::fs::write(&opened, "").while_doing("writing in the scope")?;
        let mut schedule = Self {
            host,
            bench: programs.bench.clone(),
            opened,
            variants,
            measurements,
            rounds,
            results: FenceResults::default(),
        };
        for variant in schedule.variants.clone() {
            if let Err(error) = schedule.host.plan(variant, &programs.bench) {
                eprintln!("{}: {error}", variant.name());
                schedule.results.note(variant, None, error.to_string());
            }
        }
        Ok(schedule)
    }

    pub(crate) fn run(mut self, runtime: &tokio::runtime::Runtime) -> FenceRun {
        eprintln!("warming up …");
        for round in 0..WARM_UP_ROUNDS {
            for measurement in self.measurements.clone() {
                self.run_round(measurement, round, None);
            }
        }
        for round in 0..self.rounds {
            if round % self.rounds.div_ceil(LOAD_READINGS) == 0 {
                eprintln!("round {} of {} …", round + 1, self.rounds);
                self.results.other_load_percents.extend(runtime.block_on(read_other_load_percent()));
            }
            for measurement in self.measurements.clone() {
                if round % measurement.rounds_between() == 0 {
                    self.run_round(measurement, round, Some(round / measurement.rounds_between()));
                }
            }
        }
        let host = self.host.described();
        self.host.finish();
        FenceRun { results: self.results, host }
    }

    /// Measures every variant once; `record_as` is `None` for the warm-up.
    fn run_round(&mut self, measurement: FenceMeasurement, round: usize, record_as: Option<usize>) {
        let concerned: Vec<FenceVariant> =
            self.variants.iter().copied().filter(|variant| measurement.concerns(*variant)).collect();
        for variant in permutation(&concerned, record_as.unwrap_or(round)) {
            if self.results.is_given_up(variant, measurement) {
                continue;
            }
            match (self.measure(variant, measurement), record_as) {
                (Ok(figures), Some(number)) => {
                    for (figure, value) in figures {
                        self.results.samples.record(variant, figure, number, value);
                    }
                }
                (Ok(_), None) => {}
                (Err(error), _) => {
                    eprintln!("{}, {}: {error}", variant.name(), measurement.name());
                    self.results.note(variant, Some(measurement), error.to_string());
                }
            }
        }
    }

    fn measure(&self, variant: FenceVariant, measurement: FenceMeasurement) -> Result<Figures, Error> {
        match measurement {
            FenceMeasurement::Launch => self.measure_launch(variant),
            FenceMeasurement::OpenClose => self.measure_open_close(variant),
            FenceMeasurement::Supervisor => self.measure_supervisor(variant),
        }
    }

    fn measure_launch(&self, variant: FenceVariant) -> Result<Figures, Error> {
        let command = self.host.command(Path::new(SHORT_COMMAND), &[]);
        let began = Instant::now();
        self.host.launch(variant, &command, Streams::default())?.wait()?;
        Ok(vec![(FenceFigure::Launch, began.elapsed().as_secs_f64() * 1e6)])
    }

    fn measure_open_close(&self, variant: FenceVariant) -> Result<Figures, Error> {
        let arguments: [OsString; 3] =
            ["fence-open-close".into(), self.opened.clone().into(), OPENINGS.to_string().into()];
        let command = self.host.command(&self.bench, &arguments);
        let (mut reader, writer) = pipe()?;
        let launched = self.host.launch(variant, &command, Streams { stdin: None, stdout: Some(writer) })?;
        let mut printed = String::new();
        reader.read_to_string(&mut printed)?;
        launched.wait()?;
        let nanoseconds = printed.trim().parse().while_doing("reading what the command printed")?;
        Ok(vec![(FenceFigure::OpenClose, nanoseconds)])
    }

    fn measure_supervisor(&self, variant: FenceVariant) -> Result<Figures, Error> {
        let (alone, alone_dirty) = self.supervisor_memory(variant, 1)?;
        let (each, each_dirty) = self.supervisor_memory(variant, FENCES_AT_ONCE)?;
        Ok(vec![
            (FenceFigure::SupervisorAlone, alone),
            (FenceFigure::SupervisorAloneDirty, alone_dirty),
            (FenceFigure::SupervisorAmongOthers, each),
            (FenceFigure::SupervisorAmongOthersDirty, each_dirty),
        ])
    }

    /// The mean PSS of `count` supervisors that wait at the same time, and its private dirty part.
    fn supervisor_memory(&self, variant: FenceVariant, count: usize) -> Result<(f64, f64), Error> {
        let command = self.host.command(&self.bench, &["fence-wait".into()]);
        let mut waiting = Vec::new();
        for _ in 0..count {
            let (reader, writer) = pipe()?;
            let launched =
                self.host.launch(variant, &command, Streams { stdin: Some(reader), stdout: None })?;
            waiting.push((launched, writer));
        }
        let mut sum = (0.0, 0.0);
        for (launched, _) in &waiting {
            for process_id in supervisor_processes(variant, launched, &self.bench)? {
                let (set, dirty) = memory_kib(process_id)
                    .ok_or_else(|| Error::new("the supervisor's memory can only be read by root"))?;
                sum = (sum.0 + set, sum.1 + dirty);
            }
        }
        for (launched, writer) in waiting {
            drop(writer);
            launched.wait()?;
        }
        #[allow(clippy::cast_precision_loss, reason = "a handful of fences")]
        let count = count as f64;
        Ok((sum.0 / count, sum.1 / count))
    }
}

/// The processes that only wait for the command.
fn supervisor_processes(variant: FenceVariant, launched: &Launched, bench: &Path) -> Result<Vec<u32>, Error> {
    let first = launched.process_id();
    if variant != FenceVariant::Bubblewrap {
        return Ok(vec![first]);
    }
    for _ in 0..LOOKS_FOR_COMMAND {
        let mut tree = ProcessTable::read().descendants_of(first);
        let is_command =
            |id: &u32| std::fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|exe| exe == bench);
        if tree.iter().any(is_command) {
            tree.retain(|id| !is_command(id));
            tree.push(first);
            return Ok(tree);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Err(Error::new("the command did not start"))
}

fn pipe() -> Result<(File, File), Error> {
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).while_doing("making a pipe")?;
    Ok((reader.into(), writer.into()))
}
