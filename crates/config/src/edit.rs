//! Adds or replaces one server in a configuration file and leaves everything else as it is, comments included.
//!
//! Text goes in, text comes out. The result is read again and compared: only the one server may differ.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::diagnostic::Findings;
use crate::document::{self, Kind, Node, Place, Syntax, kind_of_plain};
use crate::keys::Named;
use crate::{ConfigError, Configuration, ExecutionContext, Format, Server, Template, Transport, client_file};

/// A server as it is written to a file: its keys in order.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEntry {
    pub name: String,
    pub fields: Vec<(&'static str, Value)>,
}

#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error(transparent)]
    Invalid(ConfigError),
    #[error("{path} is the file of another client")]
    NotOurs { path: String },
    #[error("there is a server `{0}` already")]
    Exists(String),
    #[error("`{0}` cannot be the name of a server")]
    BadName(String),
    /// The file is written in a style that the editor does not understand.
    #[error("the file cannot be changed without touching something else in it")]
    ByHand { entry: String },
}

impl EditError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid(_) => None,
            Self::NotOurs { .. } => {
                Some("name another with --config, and import this one into it".to_owned())
            }
            Self::Exists(_) => Some("--replace overwrites it".to_owned()),
            Self::BadName(_) => Some(Named::Server.hint().to_owned()),
            Self::ByHand { entry } => Some(format!("add this to it by hand:\n{entry}")),
        }
    }
}

impl ServerEntry {
    /// Converts a server of another file.
    pub fn of(server: &Server) -> Self {
        let text = |template: &Template| Value::from(template.to_string());
        let map = |templates: &std::collections::BTreeMap<String, Template>| -> Value {
            templates.iter().map(|(name, template)| (name.clone(), text(template))).collect()
        };
        let mut fields: Vec<(&'static str, Value)> = Vec::new();
        match &server.transport {
            Transport::BuiltIn { arguments } => {
                let words = ["ringfence", "workspace"].map(Value::from).into_iter();
                fields.push(("command", words.chain(arguments.iter().map(text)).collect()));
            }
            Transport::Command { program, arguments } => {
                fields.push(("command", std::iter::once(program).chain(arguments).map(text).collect()));
            }
            Transport::Url { url, headers } => {
                fields.push(("url", text(url)));
                fields.push(("headers", map(headers)));
            }
            Transport::Unnamed => {}
        }
        fields.push(("env", map(&server.environment)));
        let variables_file = server.variables_file.as_ref().and_then(|file| std::path::absolute(file).ok());
        fields.extend(variables_file.map(|file| ("envFile", Value::from(file.to_string_lossy()))));
        fields.extend(server.working_directory.as_ref().map(|directory| ("cwd", text(directory))));
        let seconds = |duration: std::time::Duration| Value::from(duration.as_secs_f64());
        fields.extend(server.limits.timeout.map(|timeout| ("timeout", seconds(timeout))));
        fields.extend(server.limits.start_timeout.map(|timeout| ("startTimeout", seconds(timeout))));
        let (allow, deny) = (&server.tools.allow, &server.tools.deny);
        if !(allow.is_empty() && deny.is_empty()) {
            fields.push(("tools", serde_json::json!({"allow": allow, "deny": deny})));
        }
        fields.retain(|(_, value)| value.as_object().is_none_or(|map| !map.is_empty()));
        Self { name: server.name.clone(), fields }
    }

    pub fn set_context(&mut self, context: ExecutionContext) {
        self.fields.push(("executionContext", Value::from(context.as_str())));
    }

    /// The entry in YAML block style.
    fn in_yaml(&self, indent: usize, step: usize) -> String {
        let mut text = format!("{:indent$}{}:\n", "", self.name);
        let (inner, innermost) = (indent + step, indent + 2 * step);
        for (key, value) in &self.fields {
            match value {
                Value::Object(entries) => {
                    let _ = writeln!(text, "{:inner$}{key}:", "");
                    for (key, value) in entries {
                        let _ = writeln!(text, "{:innermost$}{}: {}", "", scalar(key), flow(value));
                    }
                }
                value => {
                    let _ = writeln!(text, "{:inner$}{key}: {}", "", flow(value));
                }
            }
        }
        text
    }

    /// The entry in YAML flow style, for a map in braces.
    fn in_flow(&self) -> String {
        let fields = self.fields.iter().map(|(key, value)| format!("{key}: {}", flow(value)));
        format!("{}: {{{}}}", self.name, fields.collect::<Vec<_>>().join(", "))
    }
}

/// Returns the text of the file with the server added. An empty text is a new file.
pub fn add_server(
    text: &str,
    path: &Path,
    entry: &ServerEntry,
    may_replace: bool,
) -> Result<String, EditError> {
    if !Named::Server.allows(&entry.name) {
        return Err(EditError::BadName(entry.name.clone()));
    }
    let before = Configuration::parse(text, path).map_err(EditError::Invalid)?;
    if before.format != Format::Ringfence {
        return Err(EditError::NotOurs { path: path.display().to_string() });
    }
    let exists = before.configuration.servers.iter().any(|server| server.name == entry.name);
    if exists && !may_replace {
        return Err(EditError::Exists(entry.name.clone()));
    }
    let by_hand = || EditError::ByHand { entry: entry.in_yaml(2, 2).trim_end().to_owned() };
    let new = match Syntax::of(path, text) {
        Syntax::Json => {
            let fields = entry.fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            client_file::with_ordered_json(text, &["servers"], &entry.name, fields).map_err(|_| by_hand())?
        }
        Syntax::Yaml => in_yaml(text, entry).ok_or_else(by_hand)?,
        Syntax::Toml => return Err(by_hand()),
    };
    // Reports the errors of the entry itself.
    Configuration::parse(&new, path).map_err(EditError::Invalid)?;
    if is_the_only_change(text, &new, path, &entry.name) { Ok(new) } else { Err(by_hand()) }
}

/// Compares both texts without the one server.
fn is_the_only_change(before: &str, after: &str, path: &Path, name: &str) -> bool {
    let rest = |text: &str| {
        let mut root = document::read(text, Syntax::of(path, text), &mut Findings::new(path));
        if let Some(document::Value::Map(entries)) = root.as_mut().map(|root| &mut root.value) {
            for servers in entries.iter_mut().filter(|entry| entry.key == "servers") {
                if let document::Value::Map(servers) = &mut servers.value.value {
                    servers.retain(|server| server.key != name);
                }
            }
            // An empty `servers` is the same as none.
            let is_empty = |node: &Node| node.is_nothing() || node.map().is_some_and(<[_]>::is_empty);
            entries.retain(|entry| !(entry.key == "servers" && is_empty(&entry.value)));
        }
        root.filter(|root| root.map().is_none_or(|entries| !entries.is_empty()))
    };
    match (rest(before), rest(after)) {
        (Some(before), Some(after)) => before.says_the_same_as(&after),
        (None, None) => true,
        _ => false,
    }
}

/// Returns the new text, or `None` if the file is written in a style that this does not understand.
fn in_yaml(text: &str, entry: &ServerEntry) -> Option<String> {
    let is_crlf = text.contains("\r\n");
    let text = text.replace("\r\n", "\n");
    let nowhere = Path::new("");
    let root = document::read(&text, Syntax::Yaml, &mut Findings::new(nowhere));
    let servers = root.as_ref().and_then(|root| root.map()?.iter().find(|entry| entry.key == "servers"));
    let new = match servers {
        None => {
            let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            format!("{text}{separator}servers:\n{}", entry.in_yaml(2, 2))
        }
        Some(servers) if servers.value.is_nothing() => {
            let at = offset(&text, Place { line: servers.place.line + 1, column: 1 });
            let separator = if text[..at].ends_with('\n') { "" } else { "\n" };
            let indent = servers.place.column + 1;
            format!("{}{separator}{}{}", &text[..at], entry.in_yaml(indent, 2), &text[at..])
        }
        Some(servers) if text[offset(&text, servers.value.place)..].starts_with('{') => {
            in_flow_map(&text, &servers.value, entry)?
        }
        Some(servers) => in_block(&text, servers, entry)?,
    };
    Some(if is_crlf { new.replace('\n', "\r\n") } else { new })
}

/// `servers: {…}`.
fn in_flow_map(text: &str, servers: &Node, entry: &ServerEntry) -> Option<String> {
    let servers_entries = servers.map()?;
    if let Some(old) = servers_entries.iter().find(|old| old.key == entry.name) {
        let (start, end) = (offset(text, old.place), offset(text, old.value.end));
        return Some(format!("{}{}{}", text.get(..start)?, entry.in_flow(), text.get(end..)?));
    }
    let end = offset(text, servers.end).checked_sub(1)?;
    let before = text.get(..end)?.trim_end();
    let separator = if servers_entries.is_empty() || before.ends_with(',') { "" } else { "," };
    let blank = if servers_entries.is_empty() { "" } else { " " };
    Some(format!("{before}{separator}{blank}{}{}", entry.in_flow(), &text[before.len()..]))
}

/// `servers:` with a line, or several, for each.
fn in_block(text: &str, servers: &document::Entry, entry: &ServerEntry) -> Option<String> {
    let entries = servers.value.map()?;
    let indent = servers.value.place.column - 1;
    let step = indent.checked_sub(servers.place.column - 1)?.max(2);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let first = servers.value.place.line - 1;
    let is_inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= indent;
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    // Comments after the last server that are indented like one belong to the block.
    let length = lines.get(first..)?.iter().take_while(|line| is_inside(line)).count();
    let last_of =
        |range: &[&str]| range.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |at| at + 1);
    let block_end = first + last_of(lines.get(first..first + length)?);
    let range = match entries.iter().position(|old| old.key == entry.name) {
        None => block_end..block_end,
        Some(at) => {
            let start = entries[at].place.line - 1;
            let next = entries.get(at + 1).map_or(block_end, |next| next.place.line - 1);
            // Comments before the next server belong to that one.
            start..start + lines.get(start..next)?.iter().rposition(is_content)? + 1
        }
    };
    let before: String = lines.get(..range.start)?.concat();
    let separator = if before.ends_with('\n') { "" } else { "\n" };
    Some(format!("{before}{separator}{}{}", entry.in_yaml(indent, step), lines.get(range.end..)?.concat()))
}

/// The byte offset of a place.
fn offset(text: &str, place: Place) -> usize {
    let start: usize = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
    let line = &text[start..];
    start + line.char_indices().nth(place.column - 1).map_or(line.len(), |(at, _)| at)
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A text without quotes where that is safe everywhere, else in JSON quotes, which YAML understands.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '=');
    let begins_well =
        text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    let is_document_mark = text.starts_with("---");
    if begins_well && !is_document_mark && text.chars().all(is_plain) && kind_of_plain(text) == Kind::Text {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}
