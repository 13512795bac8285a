//! Reads a file into a [`Configuration`]: finds out which client's format it has, and reads its servers.

mod fields;
mod other_clients;
mod rights;
mod server;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::check::check;
use crate::diagnostic::{ConfigError, Diagnostic, Findings, nearest};
use crate::document::{self, Entry, Node, Place, Syntax};
use crate::keys::{FILE, HOLDER, PRINCIPAL, SECRET_SOURCE, Shape};
use crate::{Configuration, ExecutionContext, LocalExecution, NameMode, SecretSource, Server, Transport};

use fields::Fields;

/// Far longer than any hand-written configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;
const TOO_LONG: &str = "the file is longer than 1 MiB";
const MAX_SERVERS: usize = 256;

/// A configuration with the warnings about its file.
#[derive(Debug)]
pub struct Read {
    pub configuration: Configuration,
    pub warnings: Vec<Diagnostic>,
    pub format: Format,
}

/// Which client's format a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own: `servers`, with every key known.
    Ringfence,
    /// `mcpServers`: Claude Code, Claude Desktop, Cursor, Windsurf, Junie and many others.
    McpServers,
    /// `mcpServers` of Gemini CLI and Qwen Code, with `$NAME` for variables.
    Gemini,
    /// `servers` in `mcp.json`, or `mcp.servers` in the settings.
    VsCode,
    /// `[mcp_servers.NAME]`.
    Codex,
    /// `mcp`, with all words of a command in `command`.
    OpenCode,
    /// `context_servers`.
    Zed,
}

impl Configuration {
    /// Reads a configuration file: our own, or one of another client.
    pub fn read(path: &Path) -> Result<Read, ConfigError> {
        let failed = |source| ConfigError::Io { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        let mut findings = Findings::new(path);
        match std::str::from_utf8(&bytes) {
            _ if bytes.len() as u64 > MAX_FILE_BYTES => findings.error(Place::START, TOO_LONG),
            Ok(text) => return Self::parse(text, path),
            Err(error) => {
                let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
                findings.error(Place { line, column: 1 }, "this line is not UTF-8");
            }
        }
        Err(findings.into_error())
    }

    /// Reads a text that is, or will be, in the file `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Read, ConfigError> {
        let mut findings = Findings::new(path);
        let mut configuration = Self::default();
        let mut format = Format::Ringfence;
        if text.len() as u64 > MAX_FILE_BYTES {
            findings.error(Place::START, TOO_LONG);
        } else if let Some(root) = document::read(text, Syntax::of(path, text), &mut findings) {
            format = format_of(&root, path, Syntax::of(path, text));
            configuration = match format {
                Format::Ringfence => read_own(&root, &mut findings),
                format => other_clients::read(&root, format, &mut findings),
            };
        }
        let warnings = findings.finish()?;
        configuration.hide_secret_files();
        Ok(Read { configuration, warnings, format })
    }
}

/// Recognises the format by the keys. Both ringfence and VS Code have `servers`; a file with keys that only VS Code
/// has, and none that only ringfence has, is VS Code's. The files of Gemini CLI and Qwen Code have the keys of many
/// others, but always lie in the same directory, of the user or of a project.
fn format_of(root: &Node, path: &Path, syntax: Syntax) -> Format {
    if root.get("mcpServers").is_some() {
        let directory = path.parent().and_then(Path::file_name);
        let is_gemini = directory.is_some_and(|name| name == ".gemini" || name == ".qwen");
        return if is_gemini { Format::Gemini } else { Format::McpServers };
    }
    if let Some(mcp) = root.get("mcp") {
        let is_server = |entry: &Entry| entry.value.get("type").is_some();
        if mcp.map().unwrap_or_default().iter().any(is_server) {
            return Format::OpenCode;
        }
        if mcp.get("servers").is_some() {
            return Format::VsCode;
        }
    }
    if root.get("context_servers").is_some() {
        return Format::Zed;
    }
    if root.get("mcp_servers").is_some() || syntax == Syntax::Toml {
        return Format::Codex;
    }
    let servers = root.get("servers").and_then(Node::map).unwrap_or_default();
    let keys = || servers.iter().flat_map(|server| server.value.map().unwrap_or_default());
    let has_only_ours = root.map().unwrap_or_default().iter().any(|entry| {
        entry.key != "servers" && entry.key != "$schema" && FILE.iter().any(|key| key.name == entry.key)
    }) || keys().any(|entry| other_clients::is_only_ours(&entry.key));
    let has_theirs =
        root.get("inputs").is_some() || keys().any(|entry| other_clients::is_only_theirs(&entry.key));
    if syntax == Syntax::Json && has_theirs && !has_only_ours { Format::VsCode } else { Format::Ringfence }
}

fn read_own(root: &Node, findings: &mut Findings<'_>) -> Configuration {
    let entries = root.map().unwrap_or_default();
    let is_near = |entry: &Entry| nearest(&entry.key, FILE.iter().map(|key| key.name)).is_some();
    if !entries.is_empty() && !entries.iter().any(is_near) {
        findings.error_with_hint(
            root.place,
            "there are no servers in this file",
            "it should have the key `servers`, or be a file of another client with `mcpServers`",
        );
        return Configuration::default();
    }
    check(root, &Shape::Object(FILE), "the file", findings);
    let file = Fields::new(root, FILE);
    let mut configuration = Configuration {
        names: file.choice("names").map_or(NameMode::Prefix, |choice| match choice {
            "conflict" => NameMode::Conflict,
            "none" => NameMode::None,
            _ => NameMode::Prefix,
        }),
        local_execution: file.choice("localExecution").map_or(
            LocalExecution::Automatic,
            |choice| match choice {
                "here" => LocalExecution::Here,
                "attachment" => LocalExecution::Attachment,
                _ => LocalExecution::Automatic,
            },
        ),
        ..Configuration::default()
    };
    configuration.secrets.everybody = secrets(&file, findings);
    for holder in file.entries("principals") {
        let secrets = secrets(&Fields::new(&holder.value, PRINCIPAL), findings);
        configuration.secrets.principals.insert(holder.key.clone(), secrets);
    }
    for holder in file.entries("workspaces") {
        let secrets = secrets(&Fields::new(&holder.value, HOLDER), findings);
        // `/srv/shop/` is `/srv/shop`.
        let directory: PathBuf = Path::new(&holder.key).components().collect();
        configuration.secrets.workspaces.insert(directory, secrets);
    }
    configuration.principals = rights::read(&file, findings);
    for entry in file.entries("servers") {
        let server = server::read(entry, &mut configuration.secrets, findings);
        configuration.servers.push(server);
    }
    check_number(file.entries("servers"), findings);
    check_aliases(file.entries("servers"), findings);
    configuration
}

fn check_number(servers: &[Entry], findings: &mut Findings<'_>) {
    if let Some(surplus) = servers.get(MAX_SERVERS) {
        findings.error(surplus.place, format!("more than {MAX_SERVERS} servers"));
    }
}

/// Checks that each alias names one tool.
fn check_aliases(servers: &[Entry], findings: &mut Findings<'_>) {
    let mut first: HashMap<&str, Place> = HashMap::new();
    let aliases = servers.iter().filter_map(|server| server.value.get("tools")?.get("aliases")?.map());
    for alias in aliases.flatten() {
        let Some(name) = alias.value.text() else { continue };
        if let Some(before) = first.get(name) {
            let line = before.line;
            findings
                .error(alias.value.place, format!("two tools are called `{name}`; the other in line {line}"));
        } else {
            first.insert(name, alias.value.place);
        }
    }
}

fn secrets(holder: &Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, SecretSource> {
    let sources = holder.entries("secrets").iter();
    sources.filter_map(|entry| Some((entry.key.clone(), secret_source(&entry.value, findings)?))).collect()
}

fn secret_source(node: &Node, findings: &mut Findings<'_>) -> Option<SecretSource> {
    let source = Fields::new(node, SECRET_SOURCE);
    match (source.text("env"), source.path("file", findings)) {
        (Some(name), None) => Some(SecretSource::Environment(name.to_owned())),
        (None, Some(path)) => Some(SecretSource::File(path)),
        // A secret written here in place of its source is reported by the check of types.
        (None, None) if node.map().is_none_or(|entries| !entries.is_empty()) => None,
        _ => {
            findings.error(node.place, "a secret has either `env` or `file`");
            None
        }
    }
}

/// Fills in the defaults that depend on other properties.
fn with_defaults(mut server: Server, context: Option<ExecutionContext>) -> Server {
    let is_local = matches!(server.transport, Transport::BuiltIn { .. })
        || matches!(server.name.as_str(), "filesystem" | "git" | "editor-integration");
    let default = if is_local { ExecutionContext::Local } else { ExecutionContext::Remote };
    server.context = context.unwrap_or(default);
    server.overridable = server.overridable && !server.has_secrets();
    // A local one may be on the client's machine.
    let has_nothing = matches!(server.transport, Transport::Unnamed);
    if has_nothing && server.context == ExecutionContext::Remote && server.disabled.is_none() {
        server.disabled = Some("nothing to run is named: add command or url".to_owned());
    }
    server
}
