//! `ringfence register`: adds ringfence to the configuration of a client, or removes it.

mod undo;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use config::client_file;
use serde_json::{Value, json};

use crate::clients::Client;
use crate::config_file_error::ConfigFileError;
use crate::config_path::default_path;
use crate::output::print;
use crate::text_file;

/// Where `ringfence serve` listens by default.
const DEFAULT_URL: &str = "http://127.0.0.1:3000/mcp";

const EXAMPLES: &str = "\
Examples:
  ringfence register --client vscode --dry-run
  ringfence register --client claude-code
  ringfence register --client codex --url http://127.0.0.1:8080/mcp
  ringfence register --client claude-desktop
      this client can only start programs, so it starts `ringfence stdio`
  ringfence register --client cursor --undo
      removes the entry and leaves the rest of the file as it is

Exit codes: 0 done, 1 the file could not be changed, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RegisterArguments {
    /// Change the configuration of this client.
    #[arg(long, value_enum)]
    client: Client,
    /// Connect to ringfence at this URL instead of `http://127.0.0.1:3000/mcp`.
    #[arg(long, conflicts_with = "stdio")]
    url: Option<String>,
    /// Use this name for the entry.
    #[arg(long, default_value = "ringfence")]
    name: String,
    /// Let the client start `ringfence stdio` instead of connecting.
    #[arg(long)]
    stdio: bool,
    /// Start `ringfence stdio` with this configuration. By default, the operator's own if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change this file instead of the client's usual one.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Print the change as a diff, without writing it.
    #[arg(long)]
    dry_run: bool,
    /// Remove the entry.
    #[arg(long, conflicts_with_all = ["url", "stdio", "config"])]
    undo: bool,
}

pub(crate) fn run(arguments: &RegisterArguments) -> Result<ExitCode, ConfigFileError> {
    let target = Target::of(arguments)?;
    if arguments.undo {
        undo::run(&target, arguments.dry_run)?;
    } else {
        register(&target, arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The entry to add or remove, and its file.
struct Target<'a> {
    client: Client,
    name: &'a str,
    path: PathBuf,
    /// A copy of the file before the first registration.
    backup: PathBuf,
}

type Fields = Vec<(String, Value)>;

impl<'a> Target<'a> {
    fn of(arguments: &'a RegisterArguments) -> Result<Self, ConfigFileError> {
        let client = arguments.client;
        let path = arguments.file.clone().or_else(|| client.file());
        let path = path.ok_or(ConfigFileError::NoClientPlace(client.name()))?;
        let mut backup = path.clone().into_os_string();
        backup.push(".before-ringfence");
        Ok(Self { client, name: &arguments.name, path, backup: backup.into() })
    }

    fn entry(&self, text: &str) -> Result<Option<Fields>, ConfigFileError> {
        let found = client_file::entry(text, self.client.syntax(), self.client.section(), self.name);
        found.map_err(|error| self.failed(error))
    }

    fn with(&self, text: &str, fields: Fields) -> Result<String, ConfigFileError> {
        let (syntax, section) = (self.client.syntax(), self.client.section());
        client_file::with_entry(text, syntax, section, self.name, fields).map_err(|error| self.failed(error))
    }

    fn without(&self, text: &str) -> Result<String, ConfigFileError> {
        let (syntax, section) = (self.client.syntax(), self.client.section());
        client_file::without_entry(text, syntax, section, self.name).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: client_file::ClientFileError) -> ConfigFileError {
        ConfigFileError::Client { path: self.path.clone(), error }
    }
}

fn register(target: &Target<'_>, arguments: &RegisterArguments) -> Result<(), ConfigFileError> {
    let (client, path) = (target.client.name(), target.path.display());
    let before = text_file::read(&target.path)?;
    let text = before.as_deref().unwrap_or_default();
    let old = target.entry(text)?;
    let fields = fields(arguments)?;
    if old.as_ref() == Some(&fields) {
        print(&format!("{client} has `{}` already: {path}\n", target.name));
        return Ok(());
    }
    let mut after = target.with(text, fields)?;
    if before.is_none() && !after.ends_with('\n') {
        after.push('\n');
    }
    if arguments.dry_run {
        print(&text_file::diff(&target.path, text, &after));
        return Ok(());
    }
    // A second registration keeps the backup of the first.
    if before.is_some() && !(old.is_some() && target.backup.exists()) {
        text_file::write_like(&target.backup, text, &target.path)?;
    }
    text_file::write(&target.path, &after)?;
    print(&format!("{client} now has `{}`: {path}\n", target.name));
    print("to take it out again: the same with --undo\n");
    Ok(())
}

fn fields(arguments: &RegisterArguments) -> Result<Fields, ConfigFileError> {
    let client = arguments.client;
    let field = |key: &str, value: Value| (key.to_owned(), value);
    let starts = arguments.stdio || client.only_starts();
    if client.only_starts() && arguments.url.is_some() {
        return Err(ConfigFileError::OnlyStdio(client.name()));
    }
    let kind =
        client.kinds().map(|(reached, started)| field("type", json!(if starts { started } else { reached })));
    if !starts {
        let url = arguments.url.as_deref().unwrap_or(DEFAULT_URL);
        return Ok(kind.into_iter().chain([field("url", json!(url))]).collect());
    }
    let program = std::env::current_exe().map_err(ConfigFileError::NoExecutable)?;
    let mut words = vec!["stdio".to_owned()];
    if let Some(configuration) = configuration(arguments.config.as_deref())? {
        words.extend(["--config".to_owned(), configuration.display().to_string()]);
    }
    let command = [field("command", json!(program)), field("args", json!(words))];
    Ok(kind.into_iter().chain(command).collect())
}

/// Returns an absolute path: clients start their servers in any directory.
fn configuration(named: Option<&Path>) -> Result<Option<PathBuf>, ConfigFileError> {
    match named {
        Some(path) => std::path::absolute(path)
            .map(Some)
            .map_err(|error| ConfigFileError::Unreadable { path: path.to_owned(), error }),
        None => Ok(default_path().filter(|path| path.exists())),
    }
}
