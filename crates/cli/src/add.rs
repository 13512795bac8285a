//! `ringfence add`: adds a server to the operator's file and leaves the rest of the file as it is.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use config::ExecutionContext;
use config::edit::{self, EditError, ServerEntry};
use serde_json::{Map, Value};

use crate::config_file_error::ConfigFileError;
use crate::config_path::chosen_path;
use crate::output::print;
use crate::presets;
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
    /// Use the MCP endpoint at this URL instead of a command.
    #[arg(long, conflicts_with_all = ["command", "env"], required_unless_present = "command")]
    url: Option<String>,
    /// Set a variable for the server (repeatable). Without a value, ringfence's own variable is used at each start.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    #[command(flatten)]
    placement: Placement,
    /// Write the command alone, without what ringfence knows of this server.
    #[arg(long)]
    no_preset: bool,
    /// Replace a server of the same name.
    #[arg(long)]
    replace: bool,
    /// Change this file instead of the operator's own.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the change as a diff, without writing it.
    #[arg(long)]
    dry_run: bool,
    /// The command that starts the server.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct Placement {
    /// Run the server on the client's machine.
    #[arg(long, conflicts_with = "remote")]
    local: bool,
    /// Run the server on the gateway's machine.
    #[arg(long)]
    remote: bool,
}

pub(crate) fn run(arguments: &AddArguments) -> Result<ExitCode, ConfigFileError> {
    let path = chosen_path(arguments.config.as_ref())?;
    let before = text_file::read(&path)?.unwrap_or_default();
    let mut entry = entry(arguments)?;
    let preset =
        presets::of_command(arguments.command.iter().map(String::as_str)).filter(|_| !arguments.no_preset);
    if let Some(preset) = preset {
        preset.apply(&mut entry);
    }
    let after =
        edit::add_server(&before, &path, &entry, arguments.replace).map_err(|error| failed(&path, error))?;
    if arguments.dry_run {
        print(&text_file::diff(&path, &before, &after));
        return Ok(ExitCode::SUCCESS);
    }
    text_file::write(&path, &after)?;
    print(&format!("added `{}` to {}\n", entry.name, path.display()));
    for reason in preset.into_iter().flat_map(|preset| preset.reasons) {
        print(&format!("  {reason}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the path to errors that do not name the file themselves.
pub(crate) fn failed(path: &Path, error: EditError) -> ConfigFileError {
    match error {
        EditError::Invalid(error) => ConfigFileError::Read(error),
        error => ConfigFileError::Edit { path: path.to_owned(), error },
    }
}

fn entry(arguments: &AddArguments) -> Result<ServerEntry, ConfigFileError> {
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
            return Err(ConfigFileError::BadVariable(variable.clone()));
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
