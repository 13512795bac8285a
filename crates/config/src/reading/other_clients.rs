//! Reads the files of other clients: those with `mcpServers` (Claude Code, Claude Desktop, Cursor, Windsurf, Junie,
//! Gemini CLI, Qwen Code), VS Code, Codex, opencode, Zed. Keys that only they use are ignored. A setting that cannot
//! work here disables its server, with the reason.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::fields::variables_file;
use super::server::of_words;
use super::{Format, check_number, with_defaults};
use crate::check::duration_of;
use crate::diagnostic::Findings;
use crate::document::{Entry, Node};
use crate::keys::{Named, SERVER};
use crate::{
    Configuration, ExecutionContext, FencePolicy, Lifecycle, Piece, Server, ServerLimits, Start, Storage,
    Template, TemplateError, ToolRules, Transport,
};

/// Keys of a server that VS Code has as well.
const ALSO_THEIRS: &[&str] =
    &["command", "args", "url", "headers", "env", "envFile", "cwd", "disabled", "enabled"];
/// Keys of a server that only VS Code has.
const ONLY_THEIRS: &[&str] = &["type", "dev", "gallery", "version", "sandbox", "sandboxEnabled"];

pub(super) fn is_only_ours(key: &str) -> bool {
    SERVER.iter().any(|known| known.name == key) && !ALSO_THEIRS.contains(&key)
}

pub(super) fn is_only_theirs(key: &str) -> bool {
    ONLY_THEIRS.contains(&key)
}

pub(super) fn read(root: &Node, format: Format, findings: &mut Findings<'_>) -> Configuration {
    let servers = match format {
        Format::McpServers | Format::Gemini => root.get("mcpServers"),
        Format::OpenCode => root.get("mcp"),
        Format::Zed => root.get("context_servers"),
        Format::VsCode => root.get("mcp").unwrap_or(root).get("servers"),
        Format::Codex | Format::Ringfence => root.get("mcp_servers"),
    };
    let Some(servers) = servers.filter(|servers| !servers.is_nothing()) else {
        return Configuration::default();
    };
    let Some(entries) = servers.map() else {
        findings.error(servers.place, format!("the servers must be a map, not {}", servers.described()));
        return Configuration::default();
    };
    check_number(entries, findings);
    let mut taken = HashSet::new();
    let mut configuration = Configuration::default();
    for entry in entries {
        let name = name_here(entry, findings);
        if !taken.insert(name.clone()) {
            findings.error(entry.place, format!("a second server would be called `{name}` here"));
        }
        configuration.servers.push(server(entry, name, format, findings));
    }
    configuration
}

/// The name of a server of another client, which allows any name, adapted to our rule.
fn name_here(entry: &Entry, findings: &mut Findings<'_>) -> String {
    if Named::Server.allows(&entry.key) {
        return entry.key.clone();
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = entry.key.chars().map(|c| if is_allowed(c) { c } else { '-' }).take(32).collect();
    let name = match name.trim_matches('-') {
        "" => "server".to_owned(),
        name => name.to_owned(),
    };
    findings.warning(entry.place, format!("`{}` is called `{name}` here", entry.key), Named::Server.hint());
    name
}

fn server(entry: &Entry, name: String, format: Format, findings: &mut Findings<'_>) -> Server {
    let mut theirs = Theirs { entry, format, findings, disabled: None };
    let transport = theirs.transport();
    let environment = theirs.environment();
    let working_directory = theirs.text("cwd").and_then(|text| theirs.template(&text));
    let (limits, tools) = (theirs.limits(), theirs.tools());
    if theirs.get("disabled").and_then(Node::flag) == Some(true)
        || theirs.get("enabled").and_then(Node::flag) == Some(false)
    {
        theirs.disable("switched off in the configuration");
    }
    let variables_file = theirs.get("envFile").and_then(|node| variables_file(node, theirs.findings));
    let disabled = theirs.disabled;
    let server = Server {
        name,
        origin: findings.origin(entry.place),
        transport,
        context: ExecutionContext::Remote,
        overridable: true,
        disabled,
        environment,
        variables_file,
        working_directory,
        allowed_directories: None,
        lifecycle: Lifecycle::default(),
        storage: Storage::default(),
        start: Start::default(),
        allows_install_scripts: None,
        fence: FencePolicy::default(),
        limits,
        tools,
    };
    with_defaults(server, None)
}

/// An entry of another client's file.
struct Theirs<'a, 'f, 'p> {
    entry: &'a Entry,
    format: Format,
    findings: &'f mut Findings<'p>,
    /// The first reason to disable the server.
    disabled: Option<String>,
}

impl<'a> Theirs<'a, '_, '_> {
    fn get(&self, key: &str) -> Option<&'a Node> {
        self.entry.value.get(key).filter(|node| !node.is_nothing())
    }

    fn disable(&mut self, reason: impl Into<String>) {
        self.disabled.get_or_insert(reason.into());
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let node = self.get(key)?;
        let text = node.text().map(str::to_owned);
        if text.is_none() {
            self.findings.error(node.place, format!("`{key}` must be text, not {}", node.described()));
        }
        text
    }

    /// A text that is not a template disables the server: its own client may understand it.
    fn template(&mut self, text: &str) -> Option<Template> {
        let text = match self.format {
            Format::Gemini => Cow::from(with_braces(text)),
            Format::OpenCode if text.contains("{file:") => {
                self.disable("`{file:…}` is not read here: name the file under `secrets`");
                return None;
            }
            Format::OpenCode => Cow::from(text.replace("{env:", "${")),
            _ => Cow::from(text),
        };
        Template::parse(&text).map_err(|error: TemplateError| self.disable(error.to_string())).ok()
    }

    fn templates(&mut self, key: &str) -> Vec<Template> {
        self.texts(key).iter().filter_map(|text| self.template(text)).collect()
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        let Some(node) = self.get(key) else { return Vec::new() };
        let texts: Option<Vec<_>> =
            node.list().and_then(|items| items.iter().map(|item| item.text().map(str::to_owned)).collect());
        if texts.is_none() {
            self.findings.error(node.place, format!("`{key}` must be a list of texts"));
        }
        texts.unwrap_or_default()
    }

    fn templates_by_name(&mut self, key: &str) -> BTreeMap<String, Template> {
        let Some(node) = self.get(key) else { return BTreeMap::new() };
        let Some(entries) = node.map() else {
            self.findings.error(node.place, format!("`{key}` must be a map, not {}", node.described()));
            return BTreeMap::new();
        };
        let mut templates = BTreeMap::new();
        for entry in entries {
            let Some(text) = entry.value.text() else { continue };
            if let Some(template) = self.template(text) {
                templates.insert(entry.key.clone(), template);
            }
        }
        templates
    }

    fn transport(&mut self) -> Transport {
        if self.entry.value.map().is_none() {
            let node = &self.entry.value;
            self.findings.error(node.place, format!("a server must be a map, not {}", node.described()));
            return Transport::Unnamed;
        }
        let kind = self.text("type").or_else(|| self.text("transport"));
        if kind.as_deref() == Some("sse") {
            self.disable(
                "the old HTTP+SSE transport is not supported: ask the server's makers for Streamable HTTP",
            );
        }
        // `serverUrl` and `httpUrl` are other spellings of `url`.
        let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|key| self.text(key));
        match (self.command(), url) {
            (Some(_), Some(_)) => {
                let message = format!("`{}` has both `command` and `url`", self.entry.key);
                self.findings.error(self.entry.place, message);
                Transport::Unnamed
            }
            (Some((program, arguments)), None) => of_words(program, arguments),
            (None, Some(url)) => {
                Transport::Url { url: self.template(&url).unwrap_or_default(), headers: self.headers() }
            }
            (None, None) => {
                self.disable("nothing to run is named: add command or url");
                Transport::Unnamed
            }
        }
    }

    /// The program and its arguments.
    fn command(&mut self) -> Option<(Template, Vec<Template>)> {
        if self.format == Format::OpenCode {
            let mut words = self.templates("command").into_iter();
            return words.next().map(|program| (program, words.collect()));
        }
        let command = self.text("command")?;
        let program = self.template(&command).unwrap_or_default();
        Some((program, self.templates("args")))
    }

    fn headers(&mut self) -> BTreeMap<String, Template> {
        let mut headers = self.templates_by_name("headers");
        headers.extend(self.templates_by_name("http_headers"));
        for (header, name) in self.templates_by_name("env_http_headers") {
            headers.insert(header, Template(vec![Piece::Variable(name.to_string())]));
        }
        if let Some(name) = self.text("bearer_token_env_var") {
            let token = vec![Piece::Text("Bearer ".to_owned()), Piece::Variable(name)];
            headers.insert("Authorization".to_owned(), Template(token));
        }
        headers
    }

    fn environment(&mut self) -> BTreeMap<String, Template> {
        let mut environment = self.templates_by_name("env");
        environment.extend(self.templates_by_name("environment"));
        for name in self.texts("env_vars") {
            environment.insert(name.clone(), Template(vec![Piece::Variable(name)]));
        }
        environment
    }

    fn limits(&self) -> ServerLimits {
        let seconds = |key| -> Option<Duration> { self.get(key)?.number().and_then(duration_of) };
        let milliseconds = self.get("timeout").and_then(|node| duration_of(node.number()? / 1000.0));
        let (timeout, start_timeout) = match self.format {
            // For each call.
            Format::Gemini => (milliseconds, None),
            // Until the tools are listed.
            Format::OpenCode => (None, milliseconds),
            _ => (seconds("tool_timeout_sec"), seconds("startup_timeout_sec")),
        };
        ServerLimits { timeout, max_timeout: None, start_timeout }
    }

    fn tools(&mut self) -> ToolRules {
        let mut named = |keys: &[&str]| keys.iter().flat_map(|key| self.texts(key)).collect();
        ToolRules {
            allow: named(&["enabled_tools", "includeTools"]),
            deny: named(&["disabled_tools", "excludeTools", "disabledTools"]),
            aliases: BTreeMap::new(),
        }
    }
}

/// `${NAME}` for every `$NAME`.
fn with_braces(text: &str) -> String {
    let mut parts = text.split('$');
    let mut braced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = part.split_at(part.find(|c| !is_of_a_name(c)).unwrap_or(part.len()));
        if name.starts_with(|c: char| !c.is_ascii_digit()) {
            braced.extend(["${", name, "}", rest]);
        } else {
            braced.extend(["$", part]);
        }
    }
    braced
}
