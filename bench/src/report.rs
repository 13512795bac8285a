//! The parts that the reports of all benchmarks share.

pub(crate) mod bounds;
pub(crate) mod json;
pub(crate) mod markdown;

use std::path::Path;
use std::time::Instant;

use crate::command_line::CommandLine;
use crate::error::{Error, WhileDoing};
use crate::machine::Machine;

/// What was run, on which machine, and for how long.
#[derive(Debug)]
pub(crate) struct RunDescription {
    pub(crate) command_line: String,
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) elapsed_seconds: u64,
}

impl RunDescription {
    /// Describes a run that ends now.
    pub(crate) fn since(started: Instant, command_line: &CommandLine) -> Self {
        Self {
            command_line: invocation(),
            machine: Machine::read(),
            rounds: command_line.rounds(),
            elapsed_seconds: started.elapsed().as_secs(),
        }
    }
}

fn invocation() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = "cargo run --release -p ringfence-bench";
    if arguments.is_empty() { command.to_owned() } else { format!("{command} -- {}", arguments.join(" ")) }
}

pub(crate) fn write_json(file: &Path, report: &serde_json::Value) -> Result<(), Error> {
    let report = serde_json::to_string_pretty(report)?;
    std::fs::write(file, report + "\n").while_doing(&format!("writing {}", file.display()))?;
    eprintln!("written to {}", file.display());
    Ok(())
}

/// Fails the run if any of our own programs gave a wrong answer or none; `failed` describes each case.
pub(crate) fn fail_on(failed: impl Iterator<Item = String>) -> Result<(), Error> {
    let failed: Vec<String> = failed.collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::new(failed.join("\n"))) }
}
