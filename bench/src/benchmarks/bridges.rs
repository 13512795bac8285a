//! The default benchmark: the same load on direct stdio, a bare axum server, ringfence and other bridges.

mod calls;
mod measurements;
mod reach;
mod report;
mod results;
mod schedule;
mod sessions;
mod slice_plan;

use std::time::Instant;

use self::measurements::Measurement;
use self::report::{Covered, json_report, markdown_report};
use self::schedule::RunSchedule;
use self::slice_plan::SlicePlan;
use crate::command_line::CommandLine;
use crate::error::Error;
use crate::legs::Leg;
use crate::machine::started_processes;
use crate::programs;
use crate::report::{RunDescription, fail_on, write_json};

pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    check_names(command_line)?;
    let (legs, measurements) = (chosen_legs(command_line), chosen_measurements(command_line));
    let plan = if command_line.quick { SlicePlan::QUICK } else { SlicePlan::FULL };
    let mut programs = programs::build_and_locate()?;
    programs.before = command_line.before.as_deref().map(std::path::absolute).transpose()?;
    let started = Instant::now();
    let rounds = command_line.rounds() as usize;
    let schedule = RunSchedule::new(&programs, legs.clone(), measurements.clone(), plan, rounds);
    let results = started_processes::run_and_kill_orphans(schedule.run())?;
    let covered = Covered { run: RunDescription::since(started, command_line), legs, measurements };
    println!("{}", markdown_report(&covered, &results));
    let file = command_line.json_file(&programs, "results.json");
    write_json(&file, &json_report(&covered, &results))?;
    fail_on(results.own_failures().map(|note| format!("{}: {}", note.leg.name(), note.reason)))
}

fn check_names(command_line: &CommandLine) -> Result<(), Error> {
    let legs = Leg::ALL.into_iter().map(Leg::name);
    command_line.check_names(legs.chain(Measurement::ALL.into_iter().map(Measurement::group)))
}

/// The legs to measure. A peer that `--only` names is measured without `--peers` too.
fn chosen_legs(command_line: &CommandLine) -> Vec<Leg> {
    let mut legs = command_line.chosen(&Leg::ALL, Leg::name);
    legs.retain(|leg| !leg.is_before() || command_line.before.is_some());
    if !command_line.peers {
        legs.retain(|leg| !leg.is_peer() || command_line.names(leg.name()));
    }
    legs
}

fn chosen_measurements(command_line: &CommandLine) -> Vec<Measurement> {
    command_line.chosen(&Measurement::ALL, Measurement::group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::parse;

    #[test]
    fn only_takes_legs_and_measurements() {
        let line = parse(&["--only", "supergateway,latency"]);
        check_names(&line).unwrap();
        assert_eq!(chosen_legs(&line), [Leg::Supergateway]);
        assert_eq!(chosen_measurements(&line), [Measurement::Latency]);
        check_names(&parse(&["--only", "nonsense"])).unwrap_err();
        check_names(&parse(&["--only", "launch"])).unwrap_err();
    }

    #[test]
    fn peers_are_off_until_asked_for() {
        assert_eq!(chosen_legs(&parse(&[])).len(), 5);
        assert_eq!(chosen_legs(&parse(&["--peers"])).len(), 8);
        assert_eq!(chosen_legs(&parse(&["--before", "/old/ringfence"])).len(), 8);
        assert_eq!(parse(&["--quick"]).rounds(), 2);
    }
}
