//! `session_info`: describes the session: its directories, confinement, limits and tools.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::contents::MAX_TEXT_BYTES;
use super::listing::uri;

use wire::method;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind};
use super::session_argument::SESSION;
use super::session_context;
use super::tool::{Effect, Pace, Tool};
use crate::state::Restored;

pub(super) const TOOL: Tool = Tool {
    name: "session_info",
    title: "About this session",
    about: "Tells where this session works, what confines it, its limits, and which tools the operator offers. Use it when something is refused.",
    effect: Effect::Reads,
    // It asks the gateway.
    pace: Pace::Long,
    takes: &[SESSION],
    gives: &[
        Field::optional("session", Kind::Text, "The handle of the session, as in the gateway's logs."),
        Field::optional("instance", Kind::Text, "The client window."),
        Field::optional(
            "workspace",
            Kind::Texts,
            "The directories of the session; relative paths start at the first.",
        ),
        Field::optional("workspace_uris", Kind::Texts, "The same as URIs."),
        Field::optional(
            "workspace_source",
            Kind::Text,
            "Who named the directories: `roots` or `workspace` for the client, `default` for the gateway.",
        ),
        Field::optional("read_only", Kind::Flag, "Nothing can be written."),
        Field::optional(
            "confinement",
            Kind::Object,
            "What the kernel enforces around this session, in short, if it runs in a fence.",
        ),
        Field::optional("limits", Kind::Object, "Limits of the tools."),
        Field::optional("tools", Kind::Texts, "The tools that are offered."),
        Field::optional("shell", Kind::Text, "The shell that runs commands."),
        Field::optional(
            "context",
            Kind::Object,
            "What is said about the session, as session_context shows it: name, labels, how many notes; since when it exists.",
        ),
        Field::optional(
            "copy",
            Kind::Text,
            "The session workspace, if this is a copy of the project that the user reviews.",
        ),
        Field::optional("other_copies", Kind::Texts, "Other session workspaces of the project."),
        Field::optional(
            "restored",
            Kind::Object,
            "If earlier server processes had the session: how many, and what is known from them.",
        ),
    ],
    run,
};

#[expect(clippy::unnecessary_wraps, reason = "the form of all tools")]
fn run(call: &Call<'_>, _: &Arguments) -> Result<Answer, ToolError> {
    let context = call.context;
    let roots: Vec<String> = context.workspace.roots().map(|root| root.display().to_string()).collect();
    let tools = &context.offered_tools;
    let identity = &context.identity;
    let confinement = identity.confinement.as_ref();
    // Without a gateway, or with one that has much to do, it is left out.
    let said = session_context::ask(call, &json!({})).ok();
    let others = other_copies(call);
    let data = json!({
        "session": identity.session,
        "instance": identity.instance,
        "workspace": roots,
        "workspace_uris": context.workspace.roots().map(uri).collect::<Vec<_>>(),
        "workspace_source": identity.scope_source,
        "read_only": context.is_read_only,
        "confinement": confinement.map(in_short),
        "limits": context.limits(MAX_TEXT_BYTES),
        "tools": tools,
        "shell": context.operations.shell().map(|path| path.display().to_string()),
        "context": said.as_ref().map(said_as_data),
        "copy": identity.copy,
        "other_copies": (!others.is_empty()).then_some(&others),
        "restored": restored_as_data(context.restored),
    });
    let fence = confinement.map_or_else(
        || "none: this server was not started by a gateway with fences".to_owned(),
        |confinement| confinement["summary"].as_str().unwrap_or("in force").to_owned(),
    );
    let access = if context.is_read_only { "read only" } else { "read and write" };
    let origin = match identity.scope_source.as_deref() {
        Some("default") => "; the gateway's default, because the client named no directory",
        _ => "",
    };
    let mut text = format!(
        "session: {}\nworkspace: {} ({access}{origin})\nfence: {fence}\ntools: {}",
        identity.session.as_deref().unwrap_or("not known"),
        roots.join(", "),
        tools.join(", ")
    );
    if let Some(said) = &said {
        text.push('\n');
        text.push_str(&session_context::summary(said));
    }
    if let Some(copy) = &identity.copy {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\nthis is `{copy}`, a copy of the project: the user reviews it and takes the changes over"
        );
    }
    if !others.is_empty() {
        let _ = write!(text, "\nother copies of the project, each at /mcp/w/NAME: {}", others.join(", "));
    }
    text.push_str(&restored_in_words(context.restored));
    Ok(Answer::new(text, &without_nulls(data)))
}

/// The other session workspaces of the project. None if the gateway does not tell.
fn other_copies(call: &Call<'_>) -> Vec<String> {
    if call.context.identity.session.is_none() {
        return Vec::new();
    }
    let told = call.ask_gateway(method::SESSION_WORKSPACE, &json!({})).unwrap_or_default();
    let others = told["others"].as_array().into_iter().flatten();
    others.filter_map(|other| other["name"].as_str().map(str::to_owned)).collect()
}

fn said_as_data(said: &Value) -> Value {
    json!({
        "name": said["name"],
        "labels": said["labels"],
        "notes": said["notes"].as_array().map_or(0, Vec::len),
        "created": said["created"],
        "restarts": said["restarts"],
    })
}

fn restored_as_data(restored: Restored) -> Option<Value> {
    let Restored { servers, files, operations, lost } = restored;
    (servers > 0).then(|| {
        json!({ "servers": servers, "changed_files": files, "operations": operations, "lost_operations": lost })
    })
}

fn restored_in_words(restored: Restored) -> String {
    let Restored { servers, files, operations, lost } = restored;
    if servers == 0 {
        return String::new();
    }
    format!(
        "\nrestored: server process {} of this session; known from before: {files} changed files, {operations} \
         commands, of which {lost} are lost",
        servers + 1
    )
}

/// The report has a line for every protection, which is more than a model needs.
fn in_short(confinement: &Value) -> Value {
    json!({ "tier": confinement["tier"], "network": confinement["network"], "summary": confinement["summary"] })
}

fn without_nulls(mut data: Value) -> Value {
    if let Some(fields) = data.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    data
}
