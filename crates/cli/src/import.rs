//! `ringfence import`: copies servers from the files of other clients into the operator's file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use config::client_file;
use config::edit::{self, EditError, ServerEntry};
use config::{ConfigError, Configuration, Server, Template, Transport};

use crate::add::failed;
use crate::clients::Client;
use crate::config_file_error::ConfigFileError;
use crate::config_path::chosen_path;
use crate::output::print;
use crate::text_file;

const EXAMPLES: &str = "\
Examples:
  ringfence import --dry-run
      shows the servers that would be copied from all clients on this machine
  ringfence import --from cursor
  ringfence import project/.vscode/mcp.json

Servers that the operator's file already has are kept. The files of other clients are not changed.

Exit codes: 0 done, 1 a file could not be read or written, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArguments {
    /// Import from these files.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Import from the files of these clients (repeatable, or separated by commas). Without any file or client, from
    /// all clients.
    #[arg(long, value_enum, value_name = "CLIENT", value_delimiter = ',')]
    from: Vec<Client>,
    /// Change this file instead of the operator's own.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the change as a diff, without writing it.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &ImportArguments) -> Result<ExitCode, ConfigFileError> {
    let path = chosen_path(arguments.config.as_ref())?;
    let before = text_file::read(&path)?.unwrap_or_default();
    Configuration::parse(&before, &path).map_err(ConfigFileError::Read)?;
    let mut after = before.clone();
    let mut report = String::new();
    for file in files(arguments)? {
        let read = Configuration::read(&file).map_err(ConfigFileError::Read)?;
        for server in &read.configuration.servers {
            let outcome = take_over(server, &mut after, &path)?;
            let _ = writeln!(report, "{outcome} ({})", file.display());
        }
    }
    if arguments.dry_run {
        eprint!("{report}");
        print(&text_file::diff(&path, &before, &after));
        return Ok(ExitCode::SUCCESS);
    }
    if after != before {
        text_file::write(&path, &after)?;
    }
    if report.is_empty() {
        "no servers of other clients were found\n".clone_into(&mut report);
    }
    print(&report);
    mention_warnings(&after, &path);
    Ok(ExitCode::SUCCESS)
}

/// The files to read. Those that the user named must exist; otherwise, those that clients on this machine have.
fn files(arguments: &ImportArguments) -> Result<Vec<PathBuf>, ConfigFileError> {
    let mut files = arguments.files.clone();
    for client in &arguments.from {
        files.push(client.file().ok_or(ConfigFileError::NoClientPlace(client.name()))?);
    }
    if files.is_empty() {
        let of_clients = Client::value_variants().iter();
        let of_clients = of_clients.filter_map(|client| Some((*client, client.file()?)));
        // Skip files without servers, which may hold anything.
        let with_servers = of_clients.filter(|(client, file)| has_servers(*client, file));
        files.extend(with_servers.map(|(_, file)| file));
    }
    Ok(files)
}

/// Returns true for a file that cannot be read, too, so that the user hears of it.
fn has_servers(client: Client, file: &Path) -> bool {
    let Ok(Some(text)) = text_file::read(file) else { return file.exists() };
    client_file::has_section(&text, client.syntax(), client.section()).unwrap_or(true)
}

/// Adds the server to the text, and returns a line about the outcome.
fn take_over(server: &Server, text: &mut String, path: &Path) -> Result<String, ConfigFileError> {
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
        // The file was valid before, so the error is in this server.
        Err(EditError::Invalid(ConfigError::Invalid(found))) => {
            let reason = found.first().map(|first| first.message.clone()).unwrap_or_default();
            Ok(format!("skipped `{name}`: {reason}"))
        }
        Err(EditError::Exists(_)) => Ok(format!("kept `{name}`: it is there already")),
        Err(error) => Err(failed(path, error)),
    }
}

/// Whether `ringfence register` wrote the entry. Importing it would make ringfence its own server.
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

fn mention_warnings(text: &str, path: &Path) {
    let warnings = Configuration::parse(text, path).map(|read| read.warnings.len()).unwrap_or_default();
    if warnings > 0 {
        print("some values deserve a second look: ringfence config check\n");
    }
}
