//! `ringfence config`: checks a configuration file, and prints its place, schema and documentation.

mod server_check;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use config::{ConfigError, Configuration, Diagnostic, Read, Server, Transport};
use serde_json::{Value, json};

use self::server_check::{Trials, missing_program, start_all};
use crate::config_file_error::ConfigFileError;
use crate::config_path::chosen_path;
use crate::error::Error;
use crate::output::print;

const EXAMPLES: &str = "\
Examples:
  ringfence config check
      checks the operator's own file, at the path that `ringfence config path` prints
  ringfence config check --start
      starts each server once, and says what it offers or why it does not start
  ringfence config check .vscode/mcp.json
      shows how ringfence reads the file of another client
  ringfence config schema > ringfence.schema.json

Exit codes: 0 valid, 1 invalid, missing or a server did not start, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check a configuration file, and print all errors with line and column, and servers whose program does not exist.
    Check {
        /// The file to check. By default, the operator's own.
        file: Option<PathBuf>,
        /// Start each server once, in a fence around nothing, and print how many tools it offers or why it does not
        /// start. Installs packages of `npx` and `uvx`.
        #[arg(long)]
        start: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a JSON Schema of configuration files.
    Schema,
    /// Print the documentation of configuration files.
    Reference,
    /// Print the path of the operator's file, whether it exists or not.
    Path,
}

pub(crate) fn run(arguments: &ConfigArguments) -> Result<ExitCode, Error> {
    match &arguments.action {
        Action::Check { file, start, json } => return check(&chosen_path(file.as_ref())?, *start, *json),
        Action::Schema => print(&format!("{:#}\n", config::schema())),
        Action::Reference => print(&config::reference()),
        Action::Path => print(&format!("{}\n", chosen_path(None)?.display())),
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path, starts: bool, as_json: bool) -> Result<ExitCode, Error> {
    let read = match Configuration::read(path) {
        Err(ConfigError::Invalid(errors)) => Err(errors),
        Err(error) => return Err(ConfigFileError::Read(error).into()),
        Ok(read) => Ok(read),
    };
    let trials = if starts && read.is_ok() { start_all(path)? } else { Trials::new() };
    let text = if as_json {
        format!("{:#}\n", in_json(path, &read, &trials))
    } else {
        in_text(path, &read, &trials)
    };
    print(&text);
    let is_well = read.is_ok() && trials.values().all(Result::is_ok);
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_text(path: &Path, read: &Result<Read, Vec<Diagnostic>>, trials: &Trials) -> String {
    let counted =
        |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let mut text = String::new();
    match read {
        Err(errors) => {
            for error in errors {
                let _ = writeln!(text, "{error}");
            }
            let _ = writeln!(text, "{}", counted(errors.len(), "error"));
        }
        Ok(read) => {
            for warning in &read.warnings {
                let Diagnostic { origin, column, message, hint } = warning;
                let _ = writeln!(text, "{}:{}:{column}: warning: {message}", path.display(), origin.line);
                let _ = hint.as_ref().map(|hint| writeln!(text, "hint: {hint}"));
            }
            let servers = &read.configuration.servers;
            let _ = writeln!(text, "{}: {}", path.display(), counted(servers.len(), "server"));
            let width = servers.iter().map(|server| server.name.len()).max().unwrap_or(0);
            for server in servers {
                let state = state(server, read, trials);
                let _ = writeln!(text, "  {:width$}  {:6}  {state}", server.name, server.context.as_str());
            }
        }
    }
    text
}

/// Describes a server and what it lacks, without any value of a variable.
fn state(server: &Server, read: &Read, trials: &Trials) -> String {
    if let Some(reason) = &server.disabled {
        return format!("disabled: {reason}");
    }
    let mut parts = vec![kind(server).to_owned()];
    let missing = missing(server, read);
    if !missing.is_empty() {
        parts.push(format!("not set here: {}", missing.join(", ")));
    }
    match trials.get(&server.name) {
        None => parts.extend(missing_program(server)),
        Some(Ok(tools)) => parts.push(format!("starts, and offers {tools} tools")),
        Some(Err(reason)) => parts.push(reason.clone()),
    }
    parts.join("; ")
}

fn kind(server: &Server) -> &'static str {
    match server.transport {
        Transport::BuiltIn { .. } => "built in",
        Transport::Command { .. } => "command",
        Transport::Url { .. } => "url",
        Transport::Unnamed => "named by the client's machine",
    }
}

/// Variables that neither the file nor this process sets, for a user without secrets of their own.
fn missing<'a>(server: &'a Server, read: &Read) -> Vec<&'a str> {
    let secrets = &read.configuration.secrets;
    let mut missing: Vec<_> = server
        .needed_variables()
        .filter(|name| secrets.find(name, "anonymous", None, |_| true).is_none())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

fn in_json(path: &Path, read: &Result<Read, Vec<Diagnostic>>, trials: &Trials) -> Value {
    let listed = |diagnostics: &[Diagnostic]| -> Value {
        let one = |found: &Diagnostic| {
            json!({
                "line": found.origin.line, "column": found.column, "message": found.message, "hint": found.hint,
            })
        };
        diagnostics.iter().map(one).collect()
    };
    let file = path.display().to_string();
    match read {
        Err(errors) => {
            json!({"file": file, "ok": false, "errors": listed(errors), "warnings": [], "servers": []})
        }
        Ok(read) => {
            let servers: Vec<_> = read
                .configuration
                .servers
                .iter()
                .map(|server| {
                    json!({
                        "name": server.name,
                        "line": server.origin.line,
                        "kind": kind(server),
                        "executionContext": server.context.as_str(),
                        "overridable": server.overridable,
                        "enabled": server.disabled.is_none(),
                        "reason": server.disabled,
                        "missing": missing(server, read),
                        "missingProgram": missing_program(server),
                        "tools": trials.get(&server.name).and_then(|tried| tried.as_ref().ok()),
                        "startError": trials.get(&server.name).and_then(|tried| tried.as_ref().err()),
                    })
                })
                .collect();
            json!({"file": file, "ok": true, "errors": [], "warnings": listed(&read.warnings), "servers": servers})
        }
    }
}
