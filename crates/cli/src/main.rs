//! The binary `ringfence`: reads the command line, joins the parts, prints errors with a hint.

mod access_options;
mod add;
mod arguments;
mod assembly;
mod audit;
mod clients;
mod config_command;
mod config_failure;
mod config_path;
mod configuration_file;
mod configured;
mod connect;
mod discovery;
mod environment;
mod error;
mod fenced;
mod import;
mod logging;
mod packages;
mod program;
mod register;
mod scope_options;
mod serve;
mod sessions;
mod signals;
mod stdio;
mod text_file;
mod token;
mod workspace_options;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Task};
use crate::error::Failure;

fn main() -> ExitCode {
    fence::run_if_launcher();
    // A worker is started for every session: it need not know all the other commands.
    let outcome = match workspace_options::arguments_of_worker() {
        Some(arguments) => workspace_options::run(arguments).map(|()| ExitCode::SUCCESS),
        None => run(Arguments::parse()),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        failure.exit_code()
    })
}

fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.into_task()? {
        Task::Serve(serve) => serve::run(*serve)?,
        Task::Stdio(stdio) => stdio::run(*stdio)?,
        Task::Connect(connect) => connect::run(*connect)?,
        Task::Workspace(arguments) => workspace_options::run(*arguments)?,
        Task::Run(arguments) => return Ok(told(fenced::run(&arguments))),
        Task::SandboxedShell(arguments) => return Ok(told(fenced::run_shell(&arguments))),
        Task::Doctor(arguments) => return Ok(told(fenced::run_doctor(&arguments))),
        Task::Sessions(arguments) => return sessions::run(&arguments),
        Task::Token(arguments) => token::run(&arguments)?,
        Task::Cache(arguments) => return Ok(packages::run_cache(&arguments)?),
        Task::Config(arguments) => return Ok(config_command::run(&arguments)?),
        Task::Add(arguments) => return Ok(add::run(&arguments)?),
        Task::Import(arguments) => return Ok(import::run(&arguments)?),
        Task::Register(arguments) => return Ok(register::run(&arguments)?),
        Task::Audit(arguments) => return Ok(audit::run(&arguments)),
        Task::Completions(shell) => {
            clap_complete::generate(shell, &mut Arguments::command(), "ringfence", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A fence that was refused speaks for itself, because the command's own words are on the same stderr.
fn told(result: Result<ExitCode, fenced::FenceFailure>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        eprintln!("ringfence: {failure}");
        failure.exit_code()
    })
}
