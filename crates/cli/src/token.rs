//! `ringfence token`: makes a token for a caller of `serve --auth-token-file`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use gateway::TokenFile;
use uuid::Uuid;

use crate::access_options::AccessFailure;
use crate::error::Failure;

const EXAMPLES: &str = "\
Examples:
  ringfence token alice --file tokens
      adds alice to the file and prints her token, once; the file holds only a hash of it
  ringfence token alice
      prints the token on stdout, and on stderr the line for a file that lies elsewhere

Running gateways take a changed file up by themselves. To revoke a token, remove its line.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArguments {
    /// Who the token is for: letters, digits, `.`, `_` and `-`.
    name: String,
    /// The file of --auth-token-file. It is made if it is not there, readable for you alone.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(arguments: &TokenArguments) -> Result<(), Failure> {
    let token = random_token();
    if let Some(path) = &arguments.file {
        TokenFile::at(path).add(&arguments.name, &token).map_err(AccessFailure::Token)?;
    } else {
        let line = gateway::hashed_line(&arguments.name, &token).map_err(AccessFailure::Token)?;
        eprintln!("ringfence: the line for the file of --auth-token-file:\n{line}");
    }
    Ok(writeln!(std::io::stdout(), "{token}")?)
}

/// 244 random bits, which nobody guesses.
fn random_token() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
