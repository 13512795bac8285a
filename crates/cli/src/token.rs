//! `ringfence token`: makes and revokes tokens of callers of `serve --auth-token-file`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use gateway::{NewToken, TokenFile};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::access_options::AccessError;
use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  ringfence token create alice --file tokens
      adds alice to the file and prints her token, once; the file holds only a hash of it
  ringfence token create ci --expires 30d --note \"nightly build\" --file tokens
      the same for 30 days, with a note for the operator
  ringfence token create alice
      prints the token on stdout, and on stderr the line for a file elsewhere
  ringfence token revoke alice --file tokens
      removes alice from the file; running gateways end her sessions within seconds

Running gateways notice when the file changes, and end the sessions of callers whose tokens expire.
`ringfence token NAME` means the same as `ringfence token create NAME`.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    command: Option<TokenCommand>,
    #[command(flatten)]
    create: Option<CreateArguments>,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token and print it.
    Create(CreateArguments),
    /// Remove a token, so that running gateways end what its caller has open.
    Revoke(RevokeArguments),
}

#[derive(Debug, Args)]
struct CreateArguments {
    /// The caller's name: letters, digits, `.`, `_` and `-`.
    name: String,
    /// Add the token to this file of --auth-token-file. A new file is readable only for you.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Refuse the token after this many hours, days or weeks (12h, 30d, 4w), after this date (2030-12-31, UTC), or from
    /// this time on (2030-12-31T18:00:00Z). By default it does not expire.
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<Timestamp>,
    /// Write this behind the token, as a reminder for the operator.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Debug, Args)]
struct RevokeArguments {
    /// The caller's name, or at least the first 8 digits of the token's hash.
    #[arg(value_name = "NAME|PREFIX")]
    what: String,
    /// The file of --auth-token-file.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(arguments: &TokenArguments) -> Result<(), Error> {
    match (&arguments.command, &arguments.create) {
        (Some(TokenCommand::Revoke(revoke)), _) => self::revoke(revoke),
        (Some(TokenCommand::Create(create)), _) | (None, Some(create)) => self::create(create),
        (None, None) => Err(Error::NothingToDo),
    }
}

fn create(arguments: &CreateArguments) -> Result<(), Error> {
    let token = random_secret();
    let new = NewToken {
        name: &arguments.name,
        token: &token,
        expires: arguments.expires,
        note: arguments.note.as_deref(),
    };
    if let Some(path) = &arguments.file {
        TokenFile::at(path).add(&new).map_err(AccessError::Token)?;
    } else {
        let line = new.hashed_line().map_err(AccessError::Token)?;
        eprintln!("ringfence: the line for the file of --auth-token-file:\n{line}");
    }
    Ok(writeln!(std::io::stdout(), "{token}")?)
}

fn revoke(arguments: &RevokeArguments) -> Result<(), Error> {
    let name = TokenFile::at(&arguments.file).revoke(&arguments.what).map_err(AccessError::Token)?;
    Ok(writeln!(std::io::stdout(), "revoked the token of {name}")?)
}

/// A time from now, a date or a time.
fn expiry(text: &str) -> Result<Timestamp, String> {
    let span = text.split_at_checked(text.len().saturating_sub(1)).and_then(|(number, unit)| {
        let hours = match unit {
            "h" => 1,
            "d" => 24,
            "w" => 7 * 24,
            _ => return None,
        };
        let hours = number.parse::<u32>().ok()?.checked_mul(hours).filter(|hours| *hours > 0)?;
        Timestamp::now().checked_add(SignedDuration::from_hours(hours.into())).ok()
    });
    let expires = span.or_else(|| config::parse_expiry(text));
    match expires {
        // Whole seconds are enough, and easier to read in the file.
        Some(expires) => Timestamp::from_second(expires.as_second()).map_err(|error| error.to_string()),
        None => Err("write a time such as 12h, 30d, 4w, 2030-12-31 or 2030-12-31T18:00:00Z".to_owned()),
    }
}

/// 244 random bits.
pub(crate) fn random_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_span_a_date_or_a_time() {
        let hours =
            |text: &str| (expiry(text).unwrap().as_second() - Timestamp::now().as_second() + 60) / 3600;
        assert_eq!((hours("12h"), hours("30d"), hours("2w")), (12, 720, 336));
        assert_eq!(expiry("2030-12-31").unwrap().to_string(), "2031-01-01T00:00:00Z");
        for bad in ["", "d", "0d", "-1d", "30", "30m", "soon", "99999999999d", "é"] {
            assert!(expiry(bad).is_err(), "{bad}");
        }
    }
}
