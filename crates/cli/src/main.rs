//! The binary `ringfence`: reads the command line, joins the parts, prints errors with a hint.

mod arguments;
mod environment;
mod error;
mod logging;
mod program;
mod serve;
mod signals;
mod stdio;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Task};
use crate::error::Failure;

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.into_task()? {
        Task::Serve(serve) => serve::run(*serve),
        Task::Stdio(stdio) => stdio::run(*stdio),
        Task::Completions(shell) => {
            clap_complete::generate(shell, &mut Arguments::command(), "ringfence", &mut std::io::stdout());
            Ok(())
        }
    }
}
