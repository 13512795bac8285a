//! The entry that `ringfence register` writes: an address, or a command that the client starts, always in a form in
//! which a session gets the directory of its project.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use fence::HostEnvironment;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::RegisterArguments;
use crate::clients::{Client, CommandStyle, UrlKeys, WorkspaceSource};
use crate::config_file_error::ConfigFileError;
use crate::config_path::default_path;
use crate::discovery;

/// Where `ringfence serve` listens by default.
const DEFAULT_URL: &str = "http://127.0.0.1:3000/mcp";

/// Names a session's directory to a gateway.
const WORKSPACE_HEADER: &str = "Ringfence-Workspace";

pub(super) type Fields = Vec<(String, Value)>;

/// A header, as `NAME: VALUE` on the command line.
#[derive(Clone, Debug)]
pub(super) struct Header {
    name: String,
    value: String,
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
        let (name, value) = (name.trim(), value.trim());
        let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(format!("{name:?} cannot be the name of a header"));
        }
        if value.is_empty() || value.contains(char::is_control) {
            return Err(format!("{name} has no value that can be sent"));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// How the client reaches ringfence.
enum Way {
    Address(Address),
    /// Starts `ringfence stdio`.
    Stdio,
    /// Starts `ringfence connect` with this URL.
    Connect(Url),
}

/// A URL of a gateway, and how it was found.
struct Address {
    url: Url,
    /// Whether a gateway is known to listen there.
    is_running: bool,
}

/// The entry, and what the user should know about it.
pub(super) struct Entry {
    pub(super) fields: Fields,
    /// Lines to print once it is written.
    pub(super) notes: Vec<String>,
}

pub(super) fn entry(arguments: &RegisterArguments) -> Result<Entry, ConfigFileError> {
    let client = arguments.client;
    let scope = arguments.scope.as_deref().map(vetted).transpose()?;
    match way(arguments)? {
        Way::Address(address) => {
            let keys = client.url_keys().ok_or(ConfigFileError::OnlyStdio(client.name()))?;
            at_address(arguments, &address, keys, scope.as_deref())
        }
        Way::Stdio => {
            let mut words = vec!["stdio".to_owned()];
            if let Some(configuration) = configuration(arguments.config.as_deref())? {
                words.extend(["--config".to_owned(), configuration.display().to_string()]);
            }
            started(client, words, scope.as_deref())
        }
        Way::Connect(url) => {
            let mut words = vec!["connect".to_owned(), url.to_string()];
            for (option, file) in [("--token-file", &arguments.token_file), ("--ca", &arguments.ca)] {
                if let Some(file) = file {
                    words.extend([option.to_owned(), absolute_path(file)?.display().to_string()]);
                }
            }
            started(client, words, scope.as_deref())
        }
    }
}

/// Takes the way that the user asked for, or else the one on which this client's sessions get their directory.
fn way(arguments: &RegisterArguments) -> Result<Way, ConfigFileError> {
    let client = arguments.client;
    if let Some(url) = &arguments.connect {
        return Ok(Way::Connect(parsed(url)?));
    }
    let asks_for_address =
        arguments.url.is_some() || !arguments.header.is_empty() || arguments.token_file.is_some();
    let is_told_by_roots = client.workspace_source() == WorkspaceSource::Roots;
    if arguments.stdio || !(asks_for_address || is_told_by_roots) {
        return Ok(Way::Stdio);
    }
    if client.url_keys().is_none() {
        return Err(ConfigFileError::OnlyStdio(client.name()));
    }
    let Some(url) = &arguments.url else { return running_gateway().map(Way::Address) };
    let mut url = parsed(url)?;
    if url.path() == "/" {
        url.set_path("/mcp");
    }
    Ok(Way::Address(Address { url, is_running: true }))
}

fn parsed(text: &str) -> Result<Url, ConfigFileError> {
    let not_a_url = || ConfigFileError::NotAUrl(text.to_owned());
    let url = Url::parse(text).map_err(|_| not_a_url())?;
    let is_address = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if is_address { Ok(url) } else { Err(not_a_url()) }
}

/// The gateway that this user runs, or the default address if none runs.
fn running_gateway() -> Result<Address, ConfigFileError> {
    let host_environment = HostEnvironment::of_this_process().map_err(ConfigFileError::Host)?;
    let running = discovery::running(host_environment.outside());
    let urls: Vec<String> = running.into_iter().map(|gateway| format!("{}/mcp", gateway.url)).collect();
    let is_running = !urls.is_empty();
    let url = match urls.as_slice() {
        [] => DEFAULT_URL.to_owned(),
        [only] => only.clone(),
        several if several.iter().any(|url| url == DEFAULT_URL) => DEFAULT_URL.to_owned(),
        several => return Err(ConfigFileError::SeveralGateways(several.join(", "))),
    };
    let mut url = parsed(&url)?;
    // A gateway that listens on all addresses is reached at this one.
    if matches!(url.host_str(), Some("0.0.0.0" | "[::]")) {
        let _ = url.set_host(Some("127.0.0.1"));
    }
    Ok(Address { url, is_running })
}

fn at_address(
    arguments: &RegisterArguments,
    address: &Address,
    keys: UrlKeys,
    scope: Option<&Path>,
) -> Result<Entry, ConfigFileError> {
    let client = arguments.client;
    let names_workspace = address.url.path().starts_with("/mcp/w/");
    let has_roots = client.workspace_source() == WorkspaceSource::Roots;
    if scope.is_none() && !names_workspace && !has_roots {
        return Err(ConfigFileError::NoScopeAtUrl(client.name()));
    }
    let mut headers = Map::new();
    if let Some(scope) = scope {
        headers.insert(WORKSPACE_HEADER.to_owned(), json!(scope));
    }
    if let Some(file) = &arguments.token_file {
        let token = config::read_token(file).map_err(ConfigFileError::Token)?;
        headers.insert("Authorization".to_owned(), json!(format!("Bearer {token}")));
    }
    for Header { name, value } in &arguments.header {
        headers.insert(name.clone(), json!(value));
    }
    let mut fields = kind(client, |(reached, _)| reached);
    fields.push((keys.url.to_owned(), json!(address.url.as_str())));
    if !headers.is_empty() {
        fields.push((keys.headers.to_owned(), headers.into()));
    }
    let mut notes = Vec::new();
    if !address.is_running {
        notes.push("no gateway of this user is running: start one with `ringfence serve`".to_owned());
    }
    if arguments.token_file.is_some() {
        notes.push("the file now holds the token; anyone who can read the file can use it".to_owned());
    }
    Ok(Entry { fields, notes })
}

/// An entry with which the client starts ringfence itself.
fn started(client: Client, mut words: Vec<String>, scope: Option<&Path>) -> Result<Entry, ConfigFileError> {
    match scope {
        Some(scope) => words.extend(["--scope".to_owned(), scope.display().to_string()]),
        None if client.workspace_source() == WorkspaceSource::Nothing => {
            return Err(ConfigFileError::NoScope(client.name()));
        }
        None => {}
    }
    let program = std::env::current_exe().map_err(ConfigFileError::NoExecutable)?;
    let mut fields = kind(client, |(_, started)| started);
    match client.command_style() {
        CommandStyle::Split => {
            fields.push(("command".to_owned(), json!(program)));
            fields.push(("args".to_owned(), json!(words)));
        }
        CommandStyle::List => {
            let words: Vec<Value> =
                std::iter::once(json!(program)).chain(words.into_iter().map(Value::from)).collect();
            fields.push(("command".to_owned(), words.into()));
        }
    }
    Ok(Entry { fields, notes: Vec::new() })
}

fn kind(client: Client, choose: fn((&'static str, &'static str)) -> &'static str) -> Fields {
    client.kinds().map(|kinds| ("type".to_owned(), json!(choose(kinds)))).into_iter().collect()
}

/// Checks that sessions could work in the directory, and returns its real path.
fn vetted(directory: &Path) -> Result<PathBuf, ConfigFileError> {
    let host_environment = HostEnvironment::of_this_process().map_err(ConfigFileError::Host)?;
    let directory = absolute_path(directory)?;
    let vetted = host_environment.vet_named(&directory).map_err(ConfigFileError::Scope)?;
    Ok(vetted.path().to_owned())
}

/// The configuration for `ringfence stdio`: clients start their servers in any directory, so its path is absolute.
fn configuration(named: Option<&Path>) -> Result<Option<PathBuf>, ConfigFileError> {
    match named {
        Some(path) => absolute_path(path).map(Some),
        None => Ok(default_path().filter(|path| path.exists())),
    }
}

fn absolute_path(path: &Path) -> Result<PathBuf, ConfigFileError> {
    std::path::absolute(path).map_err(|error| ConfigFileError::Unreadable { path: path.to_owned(), error })
}
