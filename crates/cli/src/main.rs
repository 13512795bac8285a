//! The binary `ringfence`: reads the command line, joins the parts, prints errors with a hint.

mod access_options;
mod add;
mod arguments;
mod audit;
mod audit_options;
mod cache_command;
mod clients;
mod command_line_help;
mod config_command;
mod config_file_error;
mod config_path;
mod connect;
mod discovery;
mod environment;
mod error;
mod fenced;
mod guarded_host;
mod http_options;
mod import;
mod listening;
mod logging;
mod operator_client;
mod operator_socket;
mod output;
mod own_program;
mod presets;
mod program;
mod register;
mod scope_options;
mod seconds;
mod serve;
mod server_options;
mod servers;
mod service_manager;
mod session_command;
mod sessions;
mod signals;
mod start_check;
mod state_options;
mod stdio;
mod text_file;
mod token;
mod upgrade;
mod upgrade_command;
mod workspace_options;

use std::process::ExitCode;

use crate::arguments::{Arguments, Command};
use crate::error::Error;
use crate::start_check::StartCheck;

fn main() -> ExitCode {
    fence::run_if_launcher();
    // Every session starts a worker, so a worker does not load the parser of all the other commands.
    let outcome = match workspace_options::arguments_of_worker() {
        Some(arguments) => workspace_options::run(arguments).map(|()| ExitCode::SUCCESS),
        None => match start_check::requested() {
            Some(check) => check_start(&check),
            None => run(command_line_help::parse()),
        },
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        error.exit_code()
    })
}

/// Tells a running gateway whether this program could take over.
fn check_start(check: &StartCheck) -> Result<ExitCode, Error> {
    let Command::Serve(arguments) = command_line_help::parse_words(&check.words).into_command()? else {
        return Err(Error::NothingToDo);
    };
    serve::check(*arguments, &check.addresses)?;
    start_check::confirm()?;
    Ok(ExitCode::SUCCESS)
}

fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    match arguments.into_command()? {
        Command::Serve(arguments) => serve::run(&arguments)?,
        Command::Stdio(options) => stdio::run(&options)?,
        Command::Connect(arguments) => connect::run(*arguments)?,
        Command::Workspace(arguments) => workspace_options::run(*arguments)?,
        Command::Run(arguments) => return Ok(exit_of_fence(fenced::run(&arguments))),
        Command::SandboxedShell(arguments) => return Ok(exit_of_fence(fenced::run_shell(&arguments))),
        Command::Doctor(arguments) => return Ok(exit_of_fence(fenced::run_doctor(&arguments))),
        Command::Session(arguments) => return session_command::run(*arguments),
        Command::Sessions(arguments) => return sessions::run(&arguments),
        Command::Upgrade(arguments) => return upgrade_command::run(&arguments),
        Command::Token(arguments) => token::run(&arguments)?,
        Command::Cache(arguments) => return cache_command::run(&arguments),
        Command::Config(arguments) => return config_command::run(&arguments),
        Command::Add(arguments) => return Ok(add::run(&arguments)?),
        Command::Import(arguments) => return Ok(import::run(&arguments)?),
        Command::Register(arguments) => return Ok(register::run(&arguments)?),
        Command::Audit(arguments) => return audit::run(&arguments),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut command_line_help::with_help_all(),
                "ringfence",
                &mut std::io::stdout(),
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints why a command did not run, marked as ringfence's words: the command writes to the same stderr.
fn exit_of_fence(result: Result<ExitCode, fenced::FencedCommandError>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("ringfence: {error}");
        error.exit_code()
    })
}
