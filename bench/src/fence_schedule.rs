//! The order of a run of the fence's benchmark: each round starts the command once in every variant, in
//! another order each time, because what one variant leaves to the kernel to clear up falls on the next.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::command_line::CommandLine;
use crate::failure::{Failure, WhileDoing};
use crate::fence_launch::{FenceHost, Launched, Streams};
use crate::fence_results::FenceResults;
use crate::fence_variants::{FenceFigure, FenceMeasurement, FenceVariant};
use crate::other_load::read_other_load_percent;
use crate::process_table::{ProcessTable, memory_kib};
use crate::programs::Programs;

/// Nothing but the launch is to be measured.
const SHORT_COMMAND: &str = "/bin/true";
/// Dropped: caches fill, and the launcher tries what it tries once.
const WARM_UP_ROUNDS: usize = 3;
/// Readings of the other load over the whole run.
const LOAD_READINGS: usize = 10;
const OPENINGS: u32 = 20_000;
const FENCES_AT_ONCE: usize = 8;
/// Bubblewrap does not say when the command runs: look so often, a millisecond apart.
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

/// What a run of it yields.
#[derive(Debug)]
pub(crate) struct FenceRun {
    pub(crate) results: FenceResults,
    pub(crate) host: String,
}

impl FenceSchedule {
    pub(crate) fn prepare(command_line: &CommandLine, programs: &Programs) -> Result<Self, Failure> {
        let host = FenceHost::prepare(programs)?;
        let opened = host.scope().join("opened");
        std::fs::write(&opened, "").while_doing("writing in the scope")?;
        let mut schedule = Self {
            host,
            bench: programs.bench.clone(),
            opened,
            variants: command_line.fence_variants(),
            measurements: command_line.fence_measurements(),
            rounds: command_line.rounds() as usize,
            results: FenceResults::default(),
        };
        for variant in schedule.variants.clone() {
            if let Err(failure) = schedule.host.plan(variant, &programs.bench) {
                eprintln!("{}: {failure}", variant.name());
                schedule.results.note(variant, None, failure.to_string());
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

    /// Once every variant; `record_as` is none for the warm-up.
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
                        self.results.record(variant, figure, number, value);
                    }
                }
                (Ok(_), None) => {}
                (Err(failure), _) => {
                    eprintln!("{}, {}: {failure}", variant.name(), measurement.name());
                    self.results.note(variant, Some(measurement), failure.to_string());
                }
            }
        }
    }

    fn measure(&self, variant: FenceVariant, measurement: FenceMeasurement) -> Result<Figures, Failure> {
        match measurement {
            FenceMeasurement::Launch => self.measure_launch(variant),
            FenceMeasurement::OpenClose => self.measure_open_close(variant),
            FenceMeasurement::Supervisor => self.measure_supervisor(variant),
        }
    }

    fn measure_launch(&self, variant: FenceVariant) -> Result<Figures, Failure> {
        let command = self.host.command(Path::new(SHORT_COMMAND), &[]);
        let began = Instant::now();
        self.host.launch(variant, &command, Streams::default())?.wait()?;
        Ok(vec![(FenceFigure::Launch, began.elapsed().as_secs_f64() * 1e6)])
    }

    fn measure_open_close(&self, variant: FenceVariant) -> Result<Figures, Failure> {
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

    fn measure_supervisor(&self, variant: FenceVariant) -> Result<Figures, Failure> {
        let (alone, alone_dirty) = self.supervisor_memory(variant, 1)?;
        let (each, each_dirty) = self.supervisor_memory(variant, FENCES_AT_ONCE)?;
        Ok(vec![
            (FenceFigure::SupervisorAlone, alone),
            (FenceFigure::SupervisorAloneDirty, alone_dirty),
            (FenceFigure::SupervisorAmongOthers, each),
            (FenceFigure::SupervisorAmongOthersDirty, each_dirty),
        ])
    }

    /// The mean of so many supervisors that wait at the same time: PSS, and what of it is private and dirty.
    fn supervisor_memory(&self, variant: FenceVariant, count: usize) -> Result<(f64, f64), Failure> {
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
                    .ok_or_else(|| Failure::new("the supervisor's memory can only be read by root"))?;
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

/// The processes that do nothing but wait for the command.
fn supervisor_processes(
    variant: FenceVariant,
    launched: &Launched,
    bench: &Path,
) -> Result<Vec<u32>, Failure> {
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
    Err(Failure::new("the command did not start"))
}

fn pipe() -> Result<(File, File), Failure> {
    let (reader, writer) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).while_doing("making a pipe")?;
    Ok((reader.into(), writer.into()))
}

/// The items in the order of that number; all orders come equally often.
pub(crate) fn permutation<T: Copy>(items: &[T], number: usize) -> Vec<T> {
    let mut left = items.to_vec();
    let mut number = number;
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        ordered.push(left.remove(number % left.len()));
        number /= left.len() + 1;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_order_comes_once_in_a_cycle() {
        let orders: BTreeSet<Vec<char>> =
            (0..24).map(|number| permutation(&['a', 'b', 'c', 'd'], number)).collect();
        assert_eq!(orders.len(), 24);
        assert_eq!(permutation(&['a', 'b'], 2), ['a', 'b']);
        assert!(permutation::<char>(&[], 5).is_empty());
    }
}
