//! `ringfence import`: the servers that other clients have, taken over into the operator's file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use config::client_file;
use config::edit::{self, EditError, ServerEntry};
use config::{ConfigError, Configuration, Server, Template, Transport};

use crate::add::failed;
use crate::clients::Client;
use crate::config_command::print;
use crate::config_failure::ConfigFailure;
use crate::config_path::chosen_path;
use crate::text_file;

const EXAMPLES: &str = "\
Examples:
  ringfence import --dry-run
      what would be taken over from every client that is found here
  ringfence import --from cursor
  ringfence import project/.vscode/mcp.json

Servers that are there already stay as they are. The other client's file is not changed.

Exit codes: 0 done, 1 a file could not be read or written, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArguments {
    /// Files of other clients.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Clients whose own files are read (repeatable, or separated by commas). Without any file or client: all.
    #[arg(long, value_enum, value_name = "CLIENT", value_delimiter = ',')]
    from: Vec<Client>,
    /// The file to write into.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what would change, as a diff.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<ExitCode, ConfigFailure> {
    let path = chosen_path(arguments.config.as_ref())?;
    let before = text_file::read(&path)?.unwrap_or_default();
    Configuration::parse(&before, &path).map_err(ConfigFailure::Read)?;
    let mut after = before.clone();
    let mut told = String::new();
    for file in files(arguments)? {
        let read = Configuration::read(&file).map_err(ConfigFailure::Read)?;
        for server in &read.configuration.servers {
            let outcome = take_over(server, &mut after, &path)?;
            let _ = writeln!(told, "{outcome} ({})", file.display());
        }
    }
    if arguments.dry_run {
        eprint!("{told}");
        print(&text_file::diff(&path, &before, &after));
        return Ok(ExitCode::SUCCESS);
    }
    if after != before {
        text_file::write(&path, &after)?;
    }
    if told.is_empty() {
        "no servers of other clients were found\n".clone_into(&mut told);
    }
    print(&told);
    tell_of_warnings(&after, &path);
    Ok(ExitCode::SUCCESS)
}

/// What was named must be there. Of all clients, those count that are.
fn files(arguments: &ImportArguments) -> Result<Vec<PathBuf>, ConfigFailure> {
    let mut files = arguments.files.clone();
    for client in &arguments.from {
        files.push(client.file().ok_or(ConfigFailure::NoClientPlace(client.name()))?);
    }
    if files.is_empty() {
        let of_clients = Client::value_variants().iter().filter_map(|client| Some((*client, client.file()?)));
        // A file without servers is none of interest, and may be about anything.
        let with_servers = of_clients.filter(|(client, file)| has_servers(*client, file));
        files.extend(with_servers.map(|(_, file)| file));
    }
    Ok(files)
}

/// What cannot be read is of interest: its user is told.
fn has_servers(client: Client, file: &Path) -> bool {
    let Ok(Some(text)) = text_file::read(file) else { return file.exists() };
    client_file::has_section(&text, client.syntax(), client.section()).unwrap_or(true)
}

/// Adds the server to the text, and says what became of it.
fn take_over(server: &Server, text: &mut String, path: &Path) -> Result<String, ConfigFailure> {
    let name = &server.name;
    if is_ringfence(server) {
        return Ok(format!("skipped `{name}`: it is ringfence itself"));
    }
    if let Some(reason) = &server.disabled {
        return Ok(format!("skipped `{name}`: {reason}"));
    }
    match edit::add_server(text, path, &ServerEntry::of(server), false) {
        Ok(new) => {
            *text = new;
            Ok(format!("added `{name}`"))
        }
        // The file was right before, so it is this server that cannot be written as ours.
        Err(EditError::Invalid(ConfigError::Invalid(found))) => {
            let reason = found.first().map(|first| first.message.clone()).unwrap_or_default();
            Ok(format!("skipped `{name}`: {reason}"))
        }
        Err(EditError::Exists(_)) => Ok(format!("kept `{name}`: it is there already")),
        Err(error) => Err(failed(path, error)),
    }
}

/// What `ringfence register` wrote: it would lead back to itself.
fn is_ringfence(server: &Server) -> bool {
    let is_ours = |program: &Template| Path::new(&program.to_string()).ends_with("ringfence");
    match &server.transport {
        Transport::Command { program, arguments } => {
            is_ours(program) && arguments.first().is_some_and(|first| *first != Template::from("workspace"))
        }
        Transport::Url { .. } => server.name == "ringfence",
        Transport::BuiltIn { .. } | Transport::Unnamed => false,
    }
}

fn tell_of_warnings(text: &str, path: &Path) {
    let warnings = Configuration::parse(text, path).map(|read| read.warnings.len()).unwrap_or_default();
    if warnings > 0 {
        print("some values deserve a second look: ringfence config check\n");
    }
}
