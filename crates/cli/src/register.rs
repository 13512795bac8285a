//! `ringfence register`: adds ringfence to the configuration of a client, or removes it.

mod change;
mod entry;
mod undo;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use config::client_file;

use self::change::{Change, ClientFile, own_tools_off};
use self::entry::{Entry, Header, entry};
use crate::clients::{Client, Setting};
use crate::config_file_error::ConfigFileError;
use crate::output::print;
use crate::text_file;

const EXAMPLES: &str = "\
Examples:
  ringfence register --client vscode --dry-run
  ringfence register --client claude-code --exclusive
      also switches off the client's own shell and file tools, which no fence holds
  ringfence register --client codex
      this client names no directory to a server at a URL, so it starts `ringfence stdio` in its project
  ringfence register --client claude-desktop --scope ~/Documents/notes
      this client has no project, so the entry names the directory
  ringfence register --client cursor --connect https://gateway.example.org --token-file ~/.config/ringfence/token
      file tools on this machine, everything else on the gateway
  ringfence register --client cursor --undo
      removes the entry and leaves the rest of the file as it is

Exit codes: 0 done, 1 the file could not be changed, 2 bad arguments";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "switches of the command line are independent of each other"
)]
pub(crate) struct RegisterArguments {
    /// Change the configuration of this client.
    #[arg(long, value_enum)]
    client: Client,
    /// Connect to ringfence at this URL. By default, at that of the gateway which this user runs, or else
    /// `http://127.0.0.1:3000/mcp`.
    #[arg(long, conflicts_with_all = ["stdio", "connect"])]
    url: Option<String>,
    /// Let the client start `ringfence stdio` instead of connecting. The default for clients that would not tell a
    /// server at a URL which directory they work in.
    #[arg(long, conflicts_with = "connect")]
    stdio: bool,
    /// Let the client start `ringfence connect` with this URL of a gateway.
    #[arg(long, value_name = "URL")]
    connect: Option<String>,
    /// Work in this directory: required for clients that have no project.
    #[arg(long, visible_alias = "sandbox-scope", value_name = "DIR")]
    scope: Option<PathBuf>,
    /// Send this header to the URL (repeatable).
    #[arg(long, value_name = "NAME: VALUE", conflicts_with_all = ["stdio", "connect"])]
    header: Vec<Header>,
    /// Send the token in this file, which no other user may read (mode 600). It is copied into the client's
    /// configuration, except with --connect.
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    token_file: Option<PathBuf>,
    /// Trust the certificates in this file, too, with --connect.
    #[arg(long, value_name = "FILE", requires = "connect")]
    ca: Option<PathBuf>,
    /// Switch off the client's own shell and file tools, which stay outside of the fence.
    #[arg(long)]
    exclusive: bool,
    /// Use this name for the entry.
    #[arg(long, default_value = "ringfence")]
    name: String,
    /// Start `ringfence stdio` with this configuration. By default, the operator's own if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change this file instead of the client's usual one.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Print the change as a diff, without writing it.
    #[arg(long)]
    dry_run: bool,
    /// Remove the entry, and switch the client's own tools on again if --exclusive switched them off.
    #[arg(
        long,
        conflicts_with_all = [
            "url", "stdio", "connect", "scope", "header", "token_file", "ca", "config", "exclusive"
        ]
    )]
    undo: bool,
}

impl RegisterArguments {
    /// An entry for a server at a URL.
    pub(crate) fn for_url(client: Client, name: &str, url: String) -> Self {
        Self {
            client,
            url: Some(url),
            stdio: false,
            connect: None,
            scope: None,
            header: Vec::new(),
            token_file: None,
            ca: None,
            exclusive: false,
            name: name.to_owned(),
            config: None,
            file: None,
            dry_run: false,
            undo: false,
        }
    }
}

pub(crate) fn run(arguments: &RegisterArguments) -> Result<ExitCode, ConfigFileError> {
    let registration = Registration::of(arguments)?;
    if arguments.undo {
        undo::run(&registration, arguments.dry_run)?;
    } else {
        register(&registration, arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is added or removed, and where.
struct Registration<'a> {
    client: Client,
    name: &'a str,
    /// The file with the client's servers.
    file: ClientFile,
}

impl<'a> Registration<'a> {
    fn of(arguments: &'a RegisterArguments) -> Result<Self, ConfigFileError> {
        let client = arguments.client;
        let path = arguments.file.clone().or_else(|| client.file());
        let path = path.ok_or(ConfigFileError::NoClientPlace(client.name()))?;
        Ok(Self { client, name: &arguments.name, file: ClientFile::new(client, path) })
    }

    /// The entry that the text has under this name.
    fn entry_in(&self, text: &str) -> Result<Option<Change<'a>>, ConfigFileError> {
        let section = self.client.section();
        let found = client_file::entry(text, self.file.syntax, section, self.name);
        let found = found.map_err(|error| self.file.failed(error))?;
        Ok(found.map(|fields| Change::Entry { section, name: self.name, fields }))
    }

    /// The settings that switch off the client's own tools, with their file if it is another.
    fn own_tools(&self) -> Option<(Option<ClientFile>, &'static [Setting])> {
        let own = self.client.own_tools()?;
        Some((own.file().map(|path| ClientFile::new(self.client, path)), own.settings))
    }
}

fn register(registration: &Registration<'_>, arguments: &RegisterArguments) -> Result<(), ConfigFileError> {
    let (client, file) = (registration.client, &registration.file);
    let own_tools = registration.own_tools();
    if arguments.exclusive && own_tools.is_none() {
        return Err(ConfigFileError::NotExclusive(client.name()));
    }
    let Entry { fields, notes } = entry(arguments)?;
    let is_first = registration.entry_in(&file.read()?.unwrap_or_default())?.is_none();
    let mut changes = vec![Change::Entry { section: client.section(), name: registration.name, fields }];
    let own_tools = own_tools.filter(|_| arguments.exclusive);
    if let Some((None, settings)) = &own_tools {
        changes.extend(own_tools_off(settings));
    }
    let mut outcomes = vec![save(file, &changes, is_first, arguments.dry_run)?];
    if let Some((Some(file), settings)) = &own_tools {
        outcomes.push(save(file, &own_tools_off(settings), true, arguments.dry_run)?);
    }
    let (client, name, path) = (client.name(), registration.name, file.path.display());
    if arguments.dry_run {
        return Ok(());
    }
    if outcomes.iter().all(|outcome| *outcome == Outcome::Unchanged) {
        print(&format!("{client} has `{name}` already: {path}\n"));
        return Ok(());
    }
    print(&format!("{client} now has `{name}`: {path}\n"));
    for note in notes {
        print(&format!("{note}\n"));
    }
    print(&about_own_tools(registration, arguments.exclusive));
    print("to take it out again: the same with --undo\n");
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Unchanged,
    Changed,
}

/// Makes the changes in the file, or prints them. Keeps a copy of the file if nothing of ours `is_first` was in it.
fn save(
    file: &ClientFile,
    changes: &[Change<'_>],
    is_first: bool,
    is_dry: bool,
) -> Result<Outcome, ConfigFileError> {
    let before = file.read()?;
    let text = before.as_deref().unwrap_or_default();
    if file.has_all(changes, text)? {
        return Ok(Outcome::Unchanged);
    }
    let mut after = file.apply(changes, text)?;
    if before.is_none() && !after.ends_with('\n') {
        after.push('\n');
    }
    if is_dry {
        print(&text_file::diff(&file.path, text, &after));
        return Ok(Outcome::Changed);
    }
    // A second registration keeps the backup of the first.
    if before.is_some() && (is_first || !file.backup.exists()) {
        text_file::write_like(&file.backup, text, &file.path)?;
    }
    text_file::write(&file.path, &after)?;
    Ok(Outcome::Changed)
}

/// What the user has to know about the tools that the client itself has.
fn about_own_tools(registration: &Registration<'_>, is_exclusive: bool) -> String {
    let client = registration.client.name();
    match registration.own_tools() {
        Some((file, _)) if is_exclusive => {
            let path = file.as_ref().map_or(&registration.file.path, |file| &file.path).display();
            format!("its own shell and file tools are off: {path}\n")
        }
        Some(_) => format!(
            "{client}'s own shell and file tools stay outside of the fence; --exclusive switches them off\n"
        ),
        None => format!(
            "{client}'s own shell and file tools stay outside of the fence, if it has any: switch them off in its \
             settings, or refuse them when it asks\n"
        ),
    }
}
