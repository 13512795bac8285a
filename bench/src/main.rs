//! The benchmark of ringfence: the same load on direct stdio, a bare axum server, ringfence and its peers.
//!
//! `cargo run --release -p ringfence-bench [-- --peers]` builds the programs, prints Markdown tables and writes
//! JSON. `--fence`, `--workspace`, `--packages`, `--servers`, `--day`, `--durable`, `--tokens` and `--workspaces` each run another benchmark. A
//! missed bound is reported; only a wrong or missing answer makes the run fail.

mod benchmarks;
mod command_line;
mod error;
mod legs;
mod machine;
mod mcp_client;
mod programs;
mod reference_servers;
mod report;
mod samples;
mod statistics;

use std::process::ExitCode;

use clap::Parser;

use crate::benchmarks::fence::fenced_commands;
use crate::benchmarks::{
    bridges, day, durable, fence as fence_benchmark, packages, servers, tokens,
    workspace as workspace_benchmark, workspaces,
};
use crate::command_line::{CommandLine, OwnProcess};
use crate::reference_servers::{bare_axum, many_tools, plain_files, same_bytes};

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let outcome = match &command_line.own_process {
        Some(OwnProcess::BareAxumServer) => bare_axum::run(),
        Some(OwnProcess::FenceOpenClose { file, count }) => fenced_commands::run_open_close(file, *count),
        Some(OwnProcess::FenceWait) => fenced_commands::run_wait(),
        Some(OwnProcess::PlainFileServer { root }) => plain_files::run(root),
        Some(OwnProcess::ManyToolsServer { tools }) => many_tools::run(*tools),
        Some(OwnProcess::SameBytesServer { file }) => same_bytes::run(file),
        None if command_line.durable => durable::run(&command_line),
        None if command_line.day => day::run(&command_line),
        None if command_line.tokens => tokens::run(&command_line),
        None if command_line.servers => servers::run(&command_line),
        None if command_line.workspaces => workspaces::run(&command_line),
        None if command_line.workspace => workspace_benchmark::run(&command_line),
        None if command_line.fence => fence_benchmark::run(&command_line),
        None if command_line.packages => packages::run(&command_line),
        None => bridges::run(&command_line),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringfence-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
