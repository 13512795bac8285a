//! The benchmark of the built-in server: the cost of its tools, and of the same work by other servers.

mod creation;
pub(super) mod files;
mod grep;
mod legs;
mod memory;
mod overhead;
mod peer;
mod report;
mod results;
mod schedule;
mod serve_fence;
mod source_tree;
mod static_program;
mod stdio_worker;
mod tool_lanes;

use std::time::Instant;

use self::legs::WorkspaceMeasurement;
use self::report::{WorkspaceCovered, json_report, markdown_report};
use self::schedule::WorkspaceSchedule;
use crate::command_line::CommandLine;
use crate::error::Error;
use crate::machine::started_processes;
use crate::programs;
use crate::report::{RunDescription, fail_on, write_json};

pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    check_names(command_line)?;
    let measurements = chosen_measurements(command_line);
    let mut programs = programs::build_and_locate()?;
    if let Some(scopes) = &command_line.scopes {
        programs.scopes = scopes.join("ringfence-bench-scopes");
    }
    let started = Instant::now();
    let schedule = WorkspaceSchedule::new(&programs, measurements.clone(), command_line.rounds() as usize);
    let results = started_processes::run_and_kill_orphans(schedule.run())?;
    let covered = WorkspaceCovered { run: RunDescription::since(started, command_line), measurements };
    println!("{}", markdown_report(&covered, &results));
    let file = command_line.json_file(&programs, "workspace-results.json");
    write_json(&file, &json_report(&covered, &results))?;
    fail_on(results.own_failures().map(|note| format!("{}: {}", note.measurement.name(), note.reason)))
}

fn check_names(command_line: &CommandLine) -> Result<(), Error> {
    command_line.check_names(WorkspaceMeasurement::ALL.into_iter().map(WorkspaceMeasurement::name))
}

fn chosen_measurements(command_line: &CommandLine) -> Vec<WorkspaceMeasurement> {
    command_line.chosen(&WorkspaceMeasurement::ALL, WorkspaceMeasurement::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::parse;

    #[test]
    fn the_built_in_server_has_names_of_its_own() {
        let line = parse(&["--workspace", "--only", "grep,idle"]);
        check_names(&line).unwrap();
        let chosen = [WorkspaceMeasurement::Grep, WorkspaceMeasurement::Memory];
        assert_eq!(chosen_measurements(&line), chosen);
        check_names(&parse(&["--workspace", "--only", "latency"])).unwrap_err();
        assert_eq!(chosen_measurements(&parse(&["--workspace"])).len(), 5);
    }
}
