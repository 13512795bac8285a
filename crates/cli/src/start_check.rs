//! Whether another program can take the place of a running gateway: it is started with the same arguments and a word in
//! front, upon which it reads them and its configuration, tries a fence, opens nothing else, and says what it is.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use gateway::UpgradeRefusal;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::error::Error;
use crate::output::print_line;

/// The word before the arguments. A program that does not know it fails, and is not taken.
const WORD: &str = "check-start";

/// How long a program may take. Reading is quick, and trying a fence takes well below a second.
const CHECK_WITHIN: Duration = Duration::from_secs(20);

/// The end of what it says of its failure that is kept.
const LONGEST_REASON: usize = 2000;

/// The most that is read of its output.
const MOST_OUTPUT: u64 = 64 * 1024;

/// What a program that could take over says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fit {
    pub(crate) version: String,
    /// The newest version of the store that it reads.
    pub(crate) store_schema: i64,
}

/// Asks a program. It gets the arguments and the environment of this process.
pub(crate) async fn ask(program: &Path, addresses: &[SocketAddr]) -> Result<Fit, UpgradeRefusal> {
    let unfit = |reason: String| UpgradeRefusal::Unfit(format!("{}: {reason}", program.display()));
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut words: Vec<OsString> = vec![WORD.into(), all.join(",").into()];
    words.extend(std::env::args_os().skip(1));
    // The service manager hears of this process alone.
    let is_about_this = |name: &OsString| {
        ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"].iter().any(|variable| name == variable)
    };
    let environment = std::env::vars_os().filter(|(name, _)| !is_about_this(name));
    let started = fence::spawn_unfenced(program.as_os_str(), &words, environment, None);
    let (mut child, pipes) = started.map_err(|error| unfit(format!("cannot be started: {error}")))?;
    drop(pipes.stdin);
    let (output, errors) = (Receiver::from_owned_fd(pipes.stdout), Receiver::from_owned_fd(pipes.stderr));
    let read = tokio::time::timeout(CHECK_WITHIN, async { tokio::join!(text_of(output), text_of(errors)) });
    let read = read.await;
    // It has said all, or too little in its time.
    let _ = child.start_kill();
    let _ = child.wait().await;
    let Ok((output, errors)) = read else {
        return Err(unfit(format!("does not say within {} s whether it can start", CHECK_WITHIN.as_secs())));
    };
    serde_json::from_str(&output).map_err(|_| unfit(reason_in(&errors)))
}

async fn text_of(pipe: std::io::Result<Receiver>) -> String {
    let mut bytes = Vec::new();
    if let Ok(pipe) = pipe {
        // What cannot be read counts as not said.
        let _ = pipe.take(MOST_OUTPUT).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn reason_in(errors: &str) -> String {
    let errors = errors.trim();
    if errors.is_empty() {
        return "did not say that it can start".to_owned();
    }
    let begin = errors.char_indices().rev().nth(LONGEST_REASON).map_or(0, |(place, _)| place);
    format!("cannot start: {}", &errors[begin..])
}

/// What another program asks of this one.
pub(crate) struct StartCheck {
    /// Where the gateway listens.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The command line of the gateway.
    pub(crate) words: Vec<OsString>,
}

/// `None` if this process was started for something else.
pub(crate) fn requested() -> Option<StartCheck> {
    let mut words = std::env::args_os();
    let own = words.next()?;
    if words.next()? != WORD {
        return None;
    }
    let addresses = words.next()?;
    let addresses = addresses.to_str()?.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(StartCheck { addresses, words: std::iter::once(own).chain(words).collect() })
}

/// Says that this program could start.
pub(crate) fn confirm() -> Result<(), Error> {
    let fit = Fit { version: env!("CARGO_PKG_VERSION").to_owned(), store_schema: store::SCHEMA_VERSION };
    print_line(&serde_json::to_string(&fit).map_err(std::io::Error::from)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_keeps_its_end() {
        assert_eq!(reason_in(" \n"), "did not say that it can start");
        assert_eq!(reason_in("error: no\n"), "cannot start: error: no");
        let long = format!("{}é: the end", "é".repeat(LONGEST_REASON));
        let reason = reason_in(&long);
        assert!(reason.ends_with("é: the end") && reason.chars().count() < LONGEST_REASON + 20, "{reason}");
    }
}
