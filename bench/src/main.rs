//! The benchmark of ringfence: the same load on direct stdio, a bare axum server, ringfence and its peers.
//!
//! `cargo run --release -p ringfence-bench [-- --peers]` builds what it measures, prints Markdown tables and
//! writes JSON; with `--fence` it measures the fence instead, with `--workspace` the built-in server, with `--servers` several servers behind one endpoint. A missed bound is reported and is no failure; a wrong or missing answer is one.

mod bare_axum_server;
mod command_line;
mod failure;
mod fence_costs;
mod fence_launch;
mod fence_report;
mod fence_results;
mod fence_schedule;
mod fence_variants;
mod http_connection;
mod http_response_head;
mod http_session;
mod legs;
mod machine;
mod many_servers;
mod many_tools_server;
mod mcp_messages;
mod mcp_session;
mod measure_calls;
mod measure_sessions;
mod measurement_names;
mod one_core;
mod other_load;
mod package_start;
mod peers;
mod plain_file_server;
mod process_table;
mod programs;
mod reach;
mod receive_buffer;
mod report_json;
mod report_markdown;
mod results;
mod run_schedule;
mod running_leg;
mod same_bytes_server;
mod serve_fence;
mod slice_plan;
mod source_tree;
mod started_processes;
mod static_program;
mod statistics;
mod stdio_session;
mod stdio_worker;
mod tool_lanes;
mod workspace_creation;
mod workspace_files;
mod workspace_grep;
mod workspace_legs;
mod workspace_memory;
mod workspace_overhead;
mod workspace_peer;
mod workspace_report;
mod workspace_results;
mod workspace_schedule;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::command_line::{CommandLine, OwnProcess};
use crate::failure::{Failure, WhileDoing};
use crate::fence_report::FenceDescription;
use crate::fence_schedule::FenceSchedule;
use crate::machine::Machine;
use crate::report_markdown::RunDescription;
use crate::run_schedule::RunSchedule;
use crate::workspace_report::WorkspaceDescription;
use crate::workspace_schedule::WorkspaceSchedule;

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let outcome = match &command_line.own_process {
        Some(OwnProcess::BareAxumServer) => bare_axum_server::run(),
        Some(OwnProcess::FenceOpenClose { file, count }) => fence_costs::run_open_close(file, *count),
        Some(OwnProcess::FenceWait) => fence_costs::run_wait(),
        Some(OwnProcess::PlainFileServer { root }) => plain_file_server::run(root),
        Some(OwnProcess::ManyToolsServer { tools }) => many_tools_server::run(*tools),
        Some(OwnProcess::SameBytesServer { file }) => same_bytes_server::run(file),
        None if command_line.servers => run_servers_benchmark(&command_line),
        None if command_line.workspace => run_workspace_benchmark(&command_line),
        None if command_line.fence => run_fence_benchmark(&command_line),
        None if command_line.packages => run_package_benchmark(&command_line),
        None => run_benchmark(&command_line),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ringfence-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_benchmark(command_line: &CommandLine) -> Result<(), Failure> {
    command_line.check_names()?;
    let programs = programs::build_and_locate()?;
    started_processes::prepare_this_process()?;
    let started = Instant::now();
    // One thread: the load shares the cores with what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(until_interrupted(RunSchedule::new(command_line, &programs).run()));
    started_processes::kill_adopted_orphans();
    let results = outcome?;
    let description = RunDescription {
        command_line: described_command_line(),
        machine: Machine::read(),
        legs: command_line.legs(),
        measurements: command_line.measurements(),
        rounds: command_line.rounds(),
        elapsed_seconds: started.elapsed().as_secs(),
    };
    println!("{}", report_markdown::markdown_report(&description, &results));
    let file = command_line.json.clone().unwrap_or_else(|| programs.work_directory.join("results.json"));
    write_json(&file, &report_json::json_report(&description, &results))?;
    fail_on(
        &results
            .own_failures()
            .map(|note| format!("{}: {}", note.leg.name(), note.reason))
            .collect::<Vec<_>>(),
    )
}

fn run_fence_benchmark(command_line: &CommandLine) -> Result<(), Failure> {
    command_line.check_names()?;
    let programs = programs::build_and_locate()?;
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Fences end with this process, so an interruption needs no care.
    let run = FenceSchedule::prepare(command_line, &programs)?.run(&runtime);
    let description = FenceDescription {
        command_line: described_command_line(),
        machine: Machine::read(),
        host: run.host,
        variants: command_line.fence_variants(),
        measurements: command_line.fence_measurements(),
        rounds: command_line.rounds(),
        elapsed_seconds: started.elapsed().as_secs(),
    };
    let results = run.results;
    println!("{}", fence_report::markdown_report(&description, &results));
    let file = command_line.json.clone();
    let file = file.unwrap_or_else(|| programs.work_directory.join("fence-results.json"));
    write_json(&file, &fence_report::json_report(&description, &results))?;
    fail_on(
        &results
            .own_failures()
            .map(|note| format!("{}: {}", note.variant.name(), note.reason))
            .collect::<Vec<_>>(),
    )
}

fn run_package_benchmark(command_line: &CommandLine) -> Result<(), Failure> {
    let programs = programs::build_and_locate()?;
    started_processes::prepare_this_process()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let starts = runtime.block_on(package_start::measure(&programs, command_line.rounds()));
    started_processes::kill_adopted_orphans();
    let starts = starts?;
    println!("{}", starts.markdown(&Machine::read(), command_line.rounds()));
    let file = command_line.json.clone();
    let file = file.unwrap_or_else(|| programs.work_directory.join("package-results.json"));
    write_json(&file, &starts.json())
}

fn run_servers_benchmark(command_line: &CommandLine) -> Result<(), Failure> {
    let programs = programs::build_and_locate()?;
    started_processes::prepare_this_process()?;
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(many_servers::measure(&programs, command_line.rounds()));
    started_processes::kill_adopted_orphans();
    let measured = measured?;
    let seconds = started.elapsed().as_secs();
    println!(
        "{}",
        measured.markdown(&described_command_line(), &Machine::read(), command_line.rounds(), seconds)
    );
    let file = command_line.json.clone();
    let file = file.unwrap_or_else(|| programs.work_directory.join("servers-results.json"));
    write_json(&file, &measured.json())
}

fn run_workspace_benchmark(command_line: &CommandLine) -> Result<(), Failure> {
    command_line.check_names()?;
    let mut programs = programs::build_and_locate()?;
    if let Some(scopes) = &command_line.scopes {
        programs.scopes = scopes.join("ringfence-bench-scopes");
    }
    started_processes::prepare_this_process()?;
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let schedule = WorkspaceSchedule::new(command_line, &programs);
    let outcome = runtime.block_on(until_interrupted(schedule.run()));
    started_processes::kill_adopted_orphans();
    let results = outcome?;
    let description = WorkspaceDescription {
        command_line: described_command_line(),
        machine: Machine::read(),
        measurements: command_line.workspace_measurements(),
        rounds: command_line.rounds(),
        elapsed_seconds: started.elapsed().as_secs(),
    };
    println!("{}", workspace_report::markdown_report(&description, &results));
    let file = command_line.json.clone();
    let file = file.unwrap_or_else(|| programs.work_directory.join("workspace-results.json"));
    write_json(&file, &workspace_report::json_report(&description, &results))?;
    fail_on(
        &results
            .own_failures()
            .map(|note| format!("{}: {}", note.measurement.name(), note.reason))
            .collect::<Vec<_>>(),
    )
}

/// Dropping the schedule kills every process it started.
async fn until_interrupted<T>(run: impl Future<Output = T>) -> Result<T, Failure> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        results = run => Ok(results),
        _ = tokio::signal::ctrl_c() => Err(Failure::new("interrupted")),
        _ = terminated.recv() => Err(Failure::new("terminated")),
    }
}

fn described_command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = "cargo run --release -p ringfence-bench";
    if arguments.is_empty() { command.to_owned() } else { format!("{command} -- {}", arguments.join(" ")) }
}

fn write_json(file: &Path, report: &serde_json::Value) -> Result<(), Failure> {
    let report = serde_json::to_string_pretty(report)?;
    std::fs::write(file, report + "\n").while_doing(&format!("writing {}", file.display()))?;
    eprintln!("written to {}", file.display());
    Ok(())
}

fn fail_on(failed: &[String]) -> Result<(), Failure> {
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(failed.join("\n"))) }
}
