//! Reads one server of ringfence's own format.

use std::collections::BTreeMap;

use super::fields::{Fields, template_of, variables_file};
use super::{secret_source, with_defaults};
use crate::diagnostic::Findings;
use crate::document::{Entry, Node};
use crate::keys::SERVER;
use crate::model::{NO_GIT_DIRECTORY, names_a_secret};
use crate::shell_words;
use crate::{
    ExecutionContext, FencePolicy, Lifecycle, NetworkMode, Piece, Secrets, Server, ServerLimits, Start,
    Storage, Template, ToolRules, Transport,
};

const PUT_ELSEWHERE: &str =
    "put it into the environment of ringfence or into a file (`secrets`), and write ${NAME}";

pub(super) fn read(entry: &Entry, secrets: &mut Secrets, findings: &mut Findings<'_>) -> Server {
    let fields = Fields::new(&entry.value, SERVER);
    let context = fields.choice("executionContext").map(|context| match context {
        "local" => ExecutionContext::Local,
        _ => ExecutionContext::Remote,
    });
    let server = Server {
        name: entry.key.clone(),
        origin: findings.origin(entry.place),
        transport: transport(entry, &fields, secrets, findings),
        context: ExecutionContext::Remote,
        overridable: fields.flag("overridable").unwrap_or(true),
        disabled: disabled(&fields, findings),
        environment: environment(&fields, findings),
        variables_file: fields.get("envFile").and_then(|node| variables_file(node, findings)),
        working_directory: working_directory(&fields, findings),
        allowed_directories: fields.templates("allowedDirectories"),
        lifecycle: match fields.choice("lifecycle") {
            Some("workspace") => Lifecycle::Workspace,
            Some("shared") => Lifecycle::Shared,
            Some("call") => Lifecycle::Call,
            _ => Lifecycle::Session,
        },
        storage: match fields.choice("storage") {
            Some("persistent" | "pvc") => Storage::Persistent,
            _ => Storage::None,
        },
        start: if fields.choice("start") == Some("eager") { Start::Eager } else { Start::Lazy },
        allows_install_scripts: fields.flag("allowInstallScripts"),
        fence: fence(&fields, findings),
        limits: limits(&fields, findings),
        tools: tools(&fields),
    };
    check_overridable(&server, &fields, findings);
    check_storage(&server, entry, findings);
    with_defaults(server, context)
}

fn transport(
    entry: &Entry,
    fields: &Fields<'_>,
    secrets: &mut Secrets,
    findings: &mut Findings<'_>,
) -> Transport {
    if let (Some(_), Some(url)) = (fields.get("command"), fields.get("url")) {
        findings.error_with_hint(
            url.place,
            format!("`{}` has both `command` and `url`", entry.key),
            "a server is run or reached, not both",
        );
    }
    let headers = headers(entry, fields, secrets, findings);
    if let Some(url) = fields.template("url") {
        check_url(fields, findings);
        return Transport::Url { url, headers };
    }
    for name in ["headers", "bearerToken"] {
        if let (Some(node), None) = (fields.get(name), fields.get("url")) {
            findings.error(node.place, format!("`{name}` means something only beside `url`"));
        }
    }
    let mut words = command(fields, findings).into_iter();
    match words.next() {
        Some(program) => of_words(program, words.collect()),
        None if entry.key == "filesystem" && fields.get("command").is_none() => {
            Transport::BuiltIn { arguments: fields.templates("args").unwrap_or_default() }
        }
        None => Transport::Unnamed,
    }
}

/// `ringfence workspace …` is this program, wherever it is installed.
pub(super) fn of_words(program: Template, mut arguments: Vec<Template>) -> Transport {
    let is = |template: &Template, word: &str| matches!(template.0.as_slice(), [Piece::Text(text)] if text == word);
    if is(&program, "ringfence") && arguments.first().is_some_and(|first| is(first, "workspace")) {
        arguments.remove(0);
        return Transport::BuiltIn { arguments };
    }
    Transport::Command { program, arguments }
}

fn command(fields: &Fields<'_>, findings: &mut Findings<'_>) -> Vec<Template> {
    let Some(node) = fields.get("command") else { return Vec::new() };
    let arguments = fields.templates("args");
    let mut words: Vec<Template> = match (node.text(), &arguments) {
        (Some(text), Some(_)) => Template::parse(text).into_iter().collect(),
        (Some(text), None) => words_of(node, text, findings),
        (None, _) => node.list().unwrap_or_default().iter().filter_map(template_of).collect(),
    };
    let is_empty = |node: &Node| node.text().is_some_and(|text| text.trim().is_empty());
    if is_empty(node) || node.list().is_some_and(|words| words.first().is_none_or(is_empty)) {
        findings.error_with_hint(node.place, "`command` names no program", "name one, or remove the key");
        return Vec::new();
    }
    words.extend(arguments.into_iter().flatten());
    words
}

/// Splits a command written as one text. A placeholder with spaces in it cannot be split.
fn words_of(node: &Node, text: &str, findings: &mut Findings<'_>) -> Vec<Template> {
    let words = shell_words::split(text);
    let templates = words.and_then(|words| words.iter().map(|word| Template::parse(word).ok()).collect());
    if templates.is_none() && Template::parse(text).is_ok() {
        findings.error_with_hint(
            node.place,
            "`command` has a quote or a placeholder that is not closed where its word ends",
            "write the words as a list: [program, \"argument with spaces\"]",
        );
    }
    templates.unwrap_or_default()
}

fn check_url(fields: &Fields<'_>, findings: &mut Findings<'_>) {
    let Some(node) = fields.get("url") else { return };
    let text = node.text().unwrap_or_default();
    let is_variable = text.starts_with("${");
    if !is_variable && !text.starts_with("http://") && !text.starts_with("https://") {
        findings.error(node.place, "`url` must begin with https:// or http://");
    }
    if let Some(args) = fields.get("args") {
        findings.error(args.place, "`args` means something only beside `command`");
    }
}

fn headers(
    entry: &Entry,
    fields: &Fields<'_>,
    secrets: &mut Secrets,
    findings: &mut Findings<'_>,
) -> BTreeMap<String, Template> {
    let mut headers = BTreeMap::new();
    for header in fields.entries("headers") {
        let Some(template) = template_of(&header.value) else { continue };
        if header.value.text().is_some_and(|text| text.contains(|c: char| c.is_control() && c != '\t')) {
            findings.error(header.value.place, format!("`{}` has a line break in it", header.key));
        }
        if names_a_secret(&header.key) && template.is_literal() {
            let message = format!("`{}` is a secret that every reader of this file sees", header.key);
            findings.warning(header.value.place, message, PUT_ELSEWHERE);
        }
        headers.insert(header.key.clone(), template);
    }
    if let Some(token) = bearer_token(&entry.key, fields, secrets, findings) {
        if let Some(name) = headers.keys().find(|name| name.eq_ignore_ascii_case("authorization")) {
            let place = fields.get("bearerToken").map_or(entry.place, |node| node.place);
            findings.error(place, format!("both `bearerToken` and the header `{name}`"));
        }
        headers.insert("Authorization".to_owned(), token);
    }
    headers
}

/// The whole value of `Authorization`. A token in a file or variable becomes a secret of all principals, under a name that
/// no template can spell.
fn bearer_token(
    server: &str,
    fields: &Fields<'_>,
    secrets: &mut Secrets,
    findings: &mut Findings<'_>,
) -> Option<Template> {
    let node = fields.get("bearerToken")?;
    let mut pieces = vec![Piece::Text("Bearer ".to_owned())];
    if node.map().is_some() {
        let name = format!("bearerToken of {server}");
        secrets.everybody.insert(name.clone(), secret_source(node, findings)?);
        pieces.push(Piece::Variable(name));
    } else {
        let token = template_of(node)?;
        if token.is_literal() {
            let message = "`bearerToken` is a secret that every reader of this file sees";
            findings.warning(node.place, message, PUT_ELSEWHERE);
        }
        pieces.extend(token.0);
    }
    Some(Template(pieces))
}

fn disabled(fields: &Fields<'_>, findings: &mut Findings<'_>) -> Option<String> {
    let (enabled, disabled) = (fields.flag("enabled"), fields.flag("disabled"));
    if let (Some(node), true) = (fields.get("disabled"), enabled.is_some() && enabled == disabled) {
        findings.error(node.place, "`enabled` and `disabled` contradict each other");
    }
    (enabled == Some(false) || disabled == Some(true)).then(|| "switched off in the configuration".to_owned())
}

fn environment(fields: &Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Template> {
    let mut environment = BTreeMap::new();
    for variable in fields.entries("env") {
        let Some(template) = template_of(&variable.value) else { continue };
        if names_a_secret(&variable.key) && template.is_literal() && !template.0.is_empty() {
            let message = format!("`{}` is a secret that every reader of this file sees", variable.key);
            findings.warning(variable.value.place, message, PUT_ELSEWHERE);
        }
        environment.insert(variable.key.clone(), template);
    }
    environment
}

fn working_directory(fields: &Fields<'_>, findings: &mut Findings<'_>) -> Option<Template> {
    if let (Some(_), Some(second)) = (fields.get("workingDirectory"), fields.get("cwd")) {
        findings.error(second.place, "both `workingDirectory` and `cwd`, which mean the same");
    }
    fields.template("workingDirectory").or_else(|| fields.template("cwd"))
}

fn fence(fields: &Fields<'_>, findings: &mut Findings<'_>) -> FencePolicy {
    let Some(fence) = fields.object("fence") else { return FencePolicy::default() };
    let network = fence.choice("network").map(|network| match network {
        "none" => NetworkMode::None,
        "localhost" => NetworkMode::Localhost,
        "http" => NetworkMode::Http,
        _ => NetworkMode::All,
    });
    if let (Some(hosts), false) = (fence.get("allowHosts"), network == Some(NetworkMode::Http)) {
        findings.error_with_hint(
            hosts.place,
            "`allowHosts` means something only with `network: http`",
            "add it, or leave the hosts out",
        );
    }
    let policy = FencePolicy {
        network,
        allow_hosts: fence.texts("allowHosts"),
        allow_metadata: fence.texts("allowMetadata"),
        unix_sockets: fence.flag("unixSockets").unwrap_or(false),
        ssh_agent: fence.flag("sshAgent").unwrap_or(false),
        git_directories: fence.paths_or_word("gitDirectories", NO_GIT_DIRECTORY, findings),
        read: fence.paths("read", findings),
        write: fence.paths("write", findings),
        deny_read: fence.paths("denyRead", findings),
        read_only: fence.flag("readOnly"),
        memory_bytes: fence.bytes("memory"),
        processes: fence.count("processes"),
        unfenced: fence.flag("unfenced").unwrap_or(false),
    };
    let unfenced = FencePolicy { unfenced: true, ..FencePolicy::default() };
    if let (Some(node), true) = (fence.get("unfenced"), policy.unfenced && policy != unfenced) {
        findings.error(node.place, "`unfenced` contradicts the other rules of this fence");
    }
    policy
}

fn limits(fields: &Fields<'_>, findings: &mut Findings<'_>) -> ServerLimits {
    let limits = ServerLimits {
        timeout: fields.seconds("timeout"),
        max_timeout: fields.seconds("maxTimeout"),
        start_timeout: fields.seconds("startTimeout"),
    };
    if let (Some(timeout), Some(longest), Some(node)) =
        (limits.timeout, limits.max_timeout, fields.get("maxTimeout"))
        && longest < timeout
    {
        findings.error(node.place, "`maxTimeout` is shorter than `timeout`");
    }
    limits
}

fn tools(fields: &Fields<'_>) -> ToolRules {
    let Some(tools) = fields.object("tools") else { return ToolRules::default() };
    let aliases = tools.entries("aliases").iter();
    ToolRules {
        allow: tools.texts("allow"),
        deny: tools.texts("deny"),
        aliases: aliases
            .filter_map(|alias| Some((alias.key.clone(), alias.value.text()?.to_owned())))
            .collect(),
    }
}

fn check_overridable(server: &Server, fields: &Fields<'_>, findings: &mut Findings<'_>) {
    if let (Some(node), Some(true), true) =
        (fields.get("overridable"), fields.flag("overridable"), server.has_secrets())
    {
        findings.error_with_hint(
            node.place,
            format!(
                "`{}` cannot be overridable: it has secrets, which would leave this machine",
                server.name
            ),
            "leave `overridable` out, or the variables and tokens",
        );
    }
}

fn check_storage(server: &Server, entry: &Entry, findings: &mut Findings<'_>) {
    if server.storage == Storage::None && server.mentions_storage() {
        findings.error_with_hint(
            entry.place,
            format!("`{}` uses {{storage}} but has none", server.name),
            "add `storage: persistent`",
        );
    }
}
