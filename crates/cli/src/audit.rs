//! `ringfence audit`: verifies an audit log, shows its records, and makes a key for one.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::audit::{self, AuditHash, AuditLine, KeyMismatch, Verified, VerifyError};
use clap::{Args, Subcommand};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;

use crate::audit_options::read_key;
use crate::error::Error;
use crate::output::print;
use crate::token::random_secret;

const VERIFY_EXAMPLES: &str = "\
Examples:
  ringfence audit verify audit.jsonl
      checks audit.jsonl and the rotated files before it, audit.jsonl.1 and so on
  ringfence audit verify audit.jsonl --expect-last 5e1f…
      also checks that the log ends in this line: keep the hash that verify prints in another place
  ringfence audit verify audit.jsonl --key audit.key
      checks a log that was written with --audit-key, and that it was written with this key

Verify finds lines that were changed, removed, inserted or moved. That the whole log was written anew is found only \
with --key or --expect-last; that the newest lines were cut off, only with --expect-last. It reports missing oldest \
files without failing, because rotation removes them, too.

Exit codes: 0 intact, 1 broken, 2 bad arguments or not readable";

const SHOW_EXAMPLES: &str = "\
Examples:
  ringfence audit show audit.jsonl --last 20
  ringfence audit show audit.jsonl --session s-1a2b3c4d
  ringfence audit show audit.jsonl --event tool_called --json

Show does not check the lines: ringfence audit verify does.

Exit codes: 0 shown, 1 a line is not a record, 2 bad arguments or not readable";

const KEY_EXAMPLES: &str = "\
Examples:
  ringfence audit key audit.key
      makes a random key in a new file that only you can read
  ringfence serve --audit-log audit.jsonl --audit-key audit.key
      writes a log with it; ringfence audit verify audit.jsonl --key audit.key checks the log

Keep a copy of the key in another place. It is needed to check the log, and is enough to write it anew.";

/// The log was changed.
const BROKEN: u8 = 1;
/// The log cannot be checked.
const UNREADABLE: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check that nothing in a log was changed.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArguments),
    /// Print a log, one readable line for each record.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArguments),
    /// Make a key for `serve --audit-key`.
    #[command(after_help = KEY_EXAMPLES)]
    Key(KeyArguments),
}

#[derive(Debug, Args)]
struct VerifyArguments {
    /// The log.
    file: PathBuf,
    /// The hash that the last line must have.
    #[arg(long, value_name = "HASH")]
    expect_last: Option<AuditHash>,
    /// The file with the key of the log.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArguments {
    /// The log.
    file: PathBuf,
    /// Only records of this session.
    #[arg(long, value_name = "HANDLE")]
    session: Option<String>,
    /// Only records of this event.
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// Only the last N of them.
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Print the lines as they are in the log.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct KeyArguments {
    /// The file to make.
    file: PathBuf,
}

pub(crate) fn run(arguments: &AuditArguments) -> Result<ExitCode, Error> {
    match &arguments.action {
        Action::Verify(arguments) => verify(arguments),
        Action::Show(arguments) => Ok(show(arguments)),
        Action::Key(arguments) => make_key(&arguments.file),
    }
}

/// Writes a random key to a new file. An existing one is never replaced: logs may depend on it.
fn make_key(path: &Path) -> Result<ExitCode, Error> {
    let key = random_secret();
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{key}\n").as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| Error::NewKey { path: path.to_owned(), error })?;
    print(&format!("{}: made the key {}\n", path.display(), read_key(path)?.id()));
    Ok(ExitCode::SUCCESS)
}

fn verify(arguments: &VerifyArguments) -> Result<ExitCode, Error> {
    let key = arguments.key.as_deref().map(read_key).transpose()?;
    let result = audit::verify(&arguments.file, key.as_ref(), arguments.expect_last);
    if arguments.json {
        print(&format!("{:#}\n", as_json(&result)));
    }
    match result {
        Ok(verified) => {
            if !arguments.json {
                print(&as_text(&arguments.file, &verified));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Ok(failed(&error)),
    }
}

fn failed(error: &VerifyError) -> ExitCode {
    eprintln!("error: {error}");
    if let VerifyError::Key { mismatch: KeyMismatch::KeyNeeded { .. }, .. } = error {
        eprintln!("hint: give the file with the key: --key FILE");
    }
    ExitCode::from(if error.is_unreadable() { UNREADABLE } else { BROKEN })
}

fn as_json(result: &Result<Verified, VerifyError>) -> serde_json::Value {
    match result {
        Ok(verified) => json!({
            "intact": true,
            "files": verified.files,
            "records": verified.records,
            "first_seq": verified.first_seq,
            "last_seq": verified.last_seq,
            "last_hash": verified.last_hash,
            "lost": verified.lost,
            "starts_at_beginning": verified.starts_at_beginning,
        }),
        // A log that cannot be read may be intact or not.
        Err(error) => {
            let intact = if error.is_unreadable() { None } else { Some(false) };
            let (file, line) = match error {
                VerifyError::Broken { file, line, .. } => (Some(file), Some(line)),
                VerifyError::Unreadable { file, .. }
                | VerifyError::MissingFile { file }
                | VerifyError::Key { file, .. } => (Some(file), None),
                VerifyError::OtherEnd { .. } => (None, None),
            };
            json!({"intact": intact, "fault": error.to_string(), "file": file, "line": line})
        }
    }
}

fn as_text(file: &Path, verified: &Verified) -> String {
    let mut text = format!(
        "{}: intact\n  {} in {}",
        file.display(),
        counted(verified.records, "record"),
        counted(verified.files as u64, "file")
    );
    if let (Some(first), Some(last)) = (verified.first_seq, verified.last_seq) {
        let _ = write!(text, ", numbers {first} to {last}");
    }
    let _ = writeln!(text, "\n  last hash {}", verified.last_hash);
    if let Some(first) = verified.first_seq.filter(|_| !verified.starts_at_beginning) {
        let _ = writeln!(text, "  does not start at the beginning: records before {first} were removed");
    }
    if verified.lost > 0 {
        let _ = writeln!(
            text,
            "  the gateway lost {} because it could not write fast enough or not at all",
            counted(verified.lost, "more record")
        );
    }
    text
}

fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn show(arguments: &ShowArguments) -> ExitCode {
    match chosen(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn chosen(arguments: &ShowArguments) -> Result<(), VerifyError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut last = VecDeque::new();
    // Records before an error are shown, too.
    let mut outcome = Ok(());
    for line in audit::read(&arguments.file)? {
        let shown = match line.and_then(|line| arguments.choose(&line)) {
            Ok(shown) => shown,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        };
        let Some(shown) = shown else { continue };
        match arguments.last {
            None if writeln!(out, "{shown}").is_err() => return Ok(()),
            None => {}
            Some(most) => {
                last.push_back(shown);
                if last.len() > most {
                    last.pop_front();
                }
            }
        }
    }
    let _ = last.iter().try_for_each(|shown| writeln!(out, "{shown}")).and_then(|()| out.flush());
    outcome
}

impl ShowArguments {
    /// Returns the text to show for a line, if the options choose it.
    fn choose(&self, line: &AuditLine) -> Result<Option<String>, VerifyError> {
        let broken = || VerifyError::Broken {
            file: line.file.clone(),
            line: line.number,
            error: audit::LineError::NotARecord,
        };
        let text = std::str::from_utf8(&line.text).map_err(|_| broken())?;
        let record: Record<'_> = serde_json::from_str(text).map_err(|_| broken())?;
        let is = |name, wanted: Option<&String>| {
            wanted.is_none_or(|wanted| record.text(name).is_some_and(|found| found == *wanted))
        };
        let is_chosen = is("session", self.session.as_ref()) && is("event", self.event.as_ref());
        Ok(is_chosen.then(|| if self.json { text.to_owned() } else { record.readable() }))
    }
}

/// The fields of a record, in the order of the line.
struct Record<'a>(Vec<(String, &'a RawValue)>);

impl Record<'_> {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| *value)
    }

    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// `time number event session name=value …`
    fn readable(&self) -> String {
        let number = self.get("seq").map_or("?", RawValue::get);
        let known = |name| self.text(name).unwrap_or_else(|| "-".to_owned());
        let mut line =
            format!("{} {number:>6} {:<15} {:<10}", known("time"), known("event"), known("session"));
        let shown_before = ["seq", "time", "event", "session", "previous", "hash"];
        for (name, value) in self.0.iter().filter(|(name, _)| !shown_before.contains(&name.as_str())) {
            let _ = write!(line, " {name}={}", plain(value));
        }
        harmless(&line)
    }
}

/// Formats a word without quotes, and everything else as JSON.
fn plain(value: &RawValue) -> String {
    let is_word = |text: &String| {
        !text.is_empty()
            && !text.contains(|letter: char| letter.is_whitespace() || "\"=[]{}".contains(letter))
    };
    serde_json::from_str(value.get()).ok().filter(is_word).unwrap_or_else(|| value.get().to_owned())
}

/// Replaces control characters: clients choose some of the texts, and must not control the terminal.
fn harmless(line: &str) -> String {
    line.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

impl<'de> Deserialize<'de> for Record<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Record<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Record(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_readable_line() {
        let record = "{\"seq\":7,\"time\":\"T\",\"event\":\"tool_called\",\"session\":\"s-1\",\"tool\":\"read\",\
             \"milliseconds\":1.5,\"arguments\":{\"a\": \"\u{9b}31m\"},\"reason\":\"two words\",\"previous\":\"0\",\
             \"hash\":\"1\"}";
        let record: Record<'_> = serde_json::from_str(record).unwrap();
        assert_eq!(
            record.readable(),
            "T      7 tool_called     s-1        tool=read milliseconds=1.5 arguments={\"a\": \"\u{fffd}31m\"} \
             reason=\"two words\""
        );
    }
}
