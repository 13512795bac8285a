//! `ringfence add`: one more server in the operator's file, with everything else left as it stands.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use config::ExecutionContext;
use config::edit::{self, EditError, ServerEntry};
use serde_json::{Map, Value};

use crate::config_command::print;
use crate::config_failure::ConfigFailure;
use crate::config_path::chosen_path;
use crate::text_file;

const EXAMPLES: &str = "\
Examples:
  ringfence add time -- uvx mcp-server-time
  ringfence add brave-search --env BRAVE_API_KEY -- npx -y @brave/brave-search-mcp-server
      the key stays in the environment of ringfence: the file says ${BRAVE_API_KEY}
  ringfence add files --local -- ringfence workspace
  ringfence add docs --url https://mcp.example.com/mcp

{workingDirectory}, {storage} and ${NAME} in a command are filled in for each session.

Exit codes: 0 added, 1 not added, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AddArguments {
    /// The server's name: letters, digits, `-` and `_`.
    name: String,
    /// An MCP endpoint to use instead of a command.
    #[arg(long, conflicts_with_all = ["command", "env"], required_unless_present = "command")]
    url: Option<String>,
    /// A variable for the server (repeatable). Without a value: ringfence's own, looked up when it is needed.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    #[command(flatten)]
    placement: Placement,
    /// Write a server of this name anew.
    #[arg(long)]
    replace: bool,
    /// The file to write into.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what would change, as a diff.
    #[arg(long)]
    dry_run: bool,
    /// The command that starts the server.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where the server runs, if that is said.
#[derive(Debug, Args)]
struct Placement {
    /// Run it on the client's machine.
    #[arg(long, conflicts_with = "remote")]
    local: bool,
    /// Run it on the gateway's machine.
    #[arg(long)]
    remote: bool,
}

pub(crate) fn run(arguments: &AddArguments) -> Result<ExitCode, ConfigFailure> {
    let path = chosen_path(arguments.config.as_ref())?;
    let before = text_file::read(&path)?.unwrap_or_default();
    let entry = entry(arguments)?;
    let after =
        edit::add_server(&before, &path, &entry, arguments.replace).map_err(|error| failed(&path, error))?;
    if arguments.dry_run {
        print(&text_file::diff(&path, &before, &after));
        return Ok(ExitCode::SUCCESS);
    }
    text_file::write(&path, &after)?;
    print(&format!("added `{}` to {}\n", entry.name, path.display()));
    Ok(ExitCode::SUCCESS)
}

/// Diagnostics name the file themselves.
pub(crate) fn failed(path: &Path, error: EditError) -> ConfigFailure {
    match error {
        EditError::Invalid(error) => ConfigFailure::Read(error),
        error => ConfigFailure::Edit { path: path.to_owned(), error },
    }
}

fn entry(arguments: &AddArguments) -> Result<ServerEntry, ConfigFailure> {
    let mut entry = ServerEntry { name: arguments.name.clone(), fields: Vec::new() };
    match &arguments.url {
        Some(url) => entry.fields.push(("url", Value::from(url.as_str()))),
        None => entry.fields.push(("command", Value::from(arguments.command.clone()))),
    }
    let mut variables = Map::new();
    for variable in &arguments.env {
        let (name, value) = match variable.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (variable.as_str(), format!("${{{variable}}}")),
        };
        if name.is_empty() {
            return Err(ConfigFailure::BadVariable(variable.clone()));
        }
        variables.insert(name.to_owned(), Value::from(value));
    }
    if !variables.is_empty() {
        entry.fields.push(("env", Value::Object(variables)));
    }
    if arguments.placement.local {
        entry.set_context(ExecutionContext::Local);
    } else if arguments.placement.remote {
        entry.set_context(ExecutionContext::Remote);
    }
    Ok(entry)
}
