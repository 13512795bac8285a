//! Checks the rules of the tree that neither the compiler nor clippy knows, and prints each violation with its
//! place and a hint. `scripts/lint` runs it.
//!
//! `ringfence-tidy [DIRECTORY]` checks the tree below DIRECTORY, the working directory by default. The exit code
//! is 1 if there are violations.

use std::path::PathBuf;
use std::process::ExitCode;

mod files;
mod rules;
mod violation;
mod workspace;

use files::Files;
use workspace::Workspace;

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let files = match Files::read(&root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("error: {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    let workspace = Workspace::parse(files);
    let report = rules::check(&workspace);
    for violation in &report.violations {
        println!("{violation}");
    }
    println!("{}", report.summary(&workspace));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
