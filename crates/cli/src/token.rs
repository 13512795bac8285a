//! `ringfence token`: makes a token for a caller of `serve --auth-token-file`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use gateway::TokenFile;
use uuid::Uuid;

use crate::access_options::AccessError;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  ringfence token alice --file tokens
      adds alice to the file and prints her token, once; the file holds only a hash of it
  ringfence token alice
      prints the token on stdout, and on stderr the line for a file elsewhere

Running gateways notice when the file changes. To revoke a token, remove its line.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArguments {
    /// The caller's name: letters, digits, `.`, `_` and `-`.
    name: String,
    /// Add the token to this file of --auth-token-file. A new file is readable only for you.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(arguments: &TokenArguments) -> Result<(), Error> {
    let token = random_secret();
    if let Some(path) = &arguments.file {
        TokenFile::at(path).add(&arguments.name, &token).map_err(AccessError::Token)?;
    } else {
        let line = gateway::hashed_line(&arguments.name, &token).map_err(AccessError::Token)?;
        eprintln!("ringfence: the line for the file of --auth-token-file:\n{line}");
    }
    Ok(writeln!(std::io::stdout(), "{token}")?)
}

/// 244 random bits.
pub(crate) fn random_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
