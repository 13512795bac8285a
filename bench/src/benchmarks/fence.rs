//! The benchmark of the fence: the time to start a command in it, and its cost while the command runs.

pub(crate) mod fenced_commands;
pub(crate) mod launch;
mod report;
mod results;
mod schedule;
mod variants;

use std::time::Instant;

use self::report::{FenceCovered, json_report, markdown_report};
use self::schedule::FenceSchedule;
use self::variants::{FenceMeasurement, FenceVariant};
use crate::command_line::CommandLine;
use crate::error::Error;
use crate::programs;
use crate::report::{RunDescription, fail_on, write_json};

pub(crate) fn run(command_line: &CommandLine) -> Result<(), Error> {
    check_names(command_line)?;
    let (variants, measurements) = (chosen_variants(command_line), chosen_measurements(command_line));
    let mut programs = programs::build_and_locate()?;
    programs.before = command_line.before.as_deref().map(std::path::absolute).transpose()?;
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rounds = command_line.rounds() as usize;
    // Fences end with this process, so an interruption leaves nothing behind.
    let run =
        FenceSchedule::prepare(&programs, variants.clone(), measurements.clone(), rounds)?.run(&runtime);
    let (host, results) = (run.host, run.results);
    let covered =
        FenceCovered { run: RunDescription::since(started, command_line), host, variants, measurements };
    println!("{}", markdown_report(&covered, &results));
    let file = command_line.json_file(&programs, "fence-results.json");
    write_json(&file, &json_report(&covered, &results))?;
    fail_on(results.own_failures().map(|note| format!("{}: {}", note.variant.name(), note.reason)))
}

fn check_names(command_line: &CommandLine) -> Result<(), Error> {
    let variants = FenceVariant::ALL.into_iter().map(FenceVariant::name);
    command_line.check_names(variants.chain(FenceMeasurement::ALL.into_iter().map(FenceMeasurement::name)))
}

/// Always includes the unfenced variant: the others are compared with it.
fn chosen_variants(command_line: &CommandLine) -> Vec<FenceVariant> {
    let chosen = command_line.chosen(&FenceVariant::ALL, FenceVariant::name);
    let is_measured = |variant: &FenceVariant| match variant {
        FenceVariant::Unfenced => true,
        // An earlier build is compared whatever `--only` names.
        _ if variant.is_for_before() => command_line.before.is_some(),
        _ => chosen.contains(variant),
    };
    FenceVariant::ALL.into_iter().filter(is_measured).collect()
}

fn chosen_measurements(command_line: &CommandLine) -> Vec<FenceMeasurement> {
    command_line.chosen(&FenceMeasurement::ALL, FenceMeasurement::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::parse;

    #[test]
    fn the_fence_has_names_of_its_own() {
        let line = parse(&["--fence", "--only", "tier-a,launch"]);
        check_names(&line).unwrap();
        assert_eq!(chosen_variants(&line), [FenceVariant::Unfenced, FenceVariant::TierA]);
        assert_eq!(chosen_measurements(&line), [FenceMeasurement::Launch]);
        check_names(&parse(&["--fence", "--only", "latency"])).unwrap_err();
    }

    #[test]
    fn an_earlier_build_is_measured_beside_this_one() {
        assert_eq!(chosen_variants(&parse(&["--fence"])).len(), 6);
        let line = parse(&["--fence", "--before", "/old/ringfence", "--only", "bubblewrap"]);
        let variants =
            [FenceVariant::Unfenced, FenceVariant::Bubblewrap, FenceVariant::Run, FenceVariant::RunBefore];
        assert_eq!(chosen_variants(&line), variants);
    }
}
