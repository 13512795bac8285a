//! `session_context`: what is said about the session, which the gateway keeps: name, labels and notes.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use wire::method;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "session_context",
    title: "Name and notes",
    about: "Shows or sets name, labels and notes of this session, which outlive restarts.",
    effect: Effect::Describes,
    pace: Pace::Long,
    takes: &[
        Field::optional("name", Kind::Text, "Empty to remove it."),
        Field::optional("labels", Kind::Texts, "`key=value` or `key`; `-key` removes."),
        Field::optional("note", Kind::Text, "One to add."),
    ],
    gives: &[
        Field::optional("name", Kind::Text, "The name, if it has one."),
        Field::optional(
            "labels",
            Kind::Object,
            "The labels by key; those without a value have an empty one.",
        ),
        Field::optional(
            "notes",
            Kind::Objects(&[]),
            "Each has id, at, by (agent, client, operator) and text.",
        ),
        Field::optional("agents", Kind::Objects(&[]), "Clients that have used the session: name and since."),
        Field::optional("created", Kind::Text, "When the session was opened."),
        Field::optional("last_used", Kind::Text, "When it was last used."),
        Field::optional("restarts", Kind::COUNT, "How many gateways had it before."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let said = ask(call, &change(arguments))?;
    let mut data = said.clone();
    if let Some(last_used) = data.as_object_mut().and_then(|data| data.remove("lastUsed")) {
        data["last_used"] = last_used;
    }
    Ok(Answer::new(in_words(&said), &data))
}

/// What the gateway knows of the session, after this change.
pub(super) fn ask(call: &Call<'_>, change: &Value) -> Result<Value, ToolError> {
    if call.context.identity.session.is_none() {
        let message = "this server does not work for one session of a gateway, so it has no name or notes";
        return Err(ToolError::new("no_session", message));
    }
    call.ask_gateway(method::SESSION_CONTEXT, change)
}

fn change(arguments: &Arguments) -> Value {
    let mut change = Map::new();
    for (argument, field) in [("name", "name"), ("note", "note")] {
        if let Some(text) = arguments.given_text(argument) {
            change.insert(field.to_owned(), text.into());
        }
    }
    let labels: Map<String, Value> = arguments.texts("labels").iter().map(|label| label_of(label)).collect();
    if !labels.is_empty() {
        change.insert("labels".to_owned(), labels.into());
    }
    change.into()
}

/// A label and its value; `null` to remove it.
fn label_of(text: &str) -> (String, Value) {
    match (text.strip_prefix('-'), text.split_once('=')) {
        (Some(key), _) => (key.to_owned(), Value::Null),
        (None, Some((key, value))) => (key.to_owned(), value.into()),
        (None, None) => (text.to_owned(), "".into()),
    }
}

fn in_words(said: &Value) -> String {
    let mut text = summary(said);
    for note in said["notes"].as_array().into_iter().flatten() {
        let [at, by, words] = ["at", "by", "text"].map(|field| note[field].as_str().unwrap_or_default());
        let _ = write!(text, "\nnote {} ({by}, {at}): {words}", note["id"]);
    }
    text
}

/// Everything but the notes.
pub(super) fn summary(said: &Value) -> String {
    let labels: Vec<String> = said["labels"].as_object().into_iter().flatten().map(label).collect();
    let agents: Vec<&str> =
        said["agents"].as_array().into_iter().flatten().filter_map(|agent| agent["name"].as_str()).collect();
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    format!(
        "name: {}\nlabels: {}\nnotes: {}\nused by: {}\nsince: {} ({} restarts of the gateway)",
        said["name"].as_str().unwrap_or("none"),
        or_none(labels.join(", ")),
        said["notes"].as_array().map_or(0, Vec::len),
        or_none(agents.join(", ")),
        said["created"].as_str().unwrap_or("not known"),
        said["restarts"],
    )
}

fn label((key, value): (&String, &Value)) -> String {
    match value.as_str() {
        Some(value) if !value.is_empty() => format!("{key}={value}"),
        _ => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_spelled_as_on_a_command_line() {
        let given = json!({"labels": ["a=b=c", "urgent", "-old", "k="], "name": "", "note": "n"});
        let arguments = Arguments::read(TOOL.takes, given).unwrap();
        let expected =
            json!({"labels": {"a": "b=c", "urgent": "", "old": null, "k": ""}, "name": "", "note": "n"});
        assert_eq!(change(&arguments), expected);
        assert_eq!(change(&Arguments::read(TOOL.takes, json!({})).unwrap()), json!({}));
    }

    #[test]
    fn everything_is_told_in_words() {
        let note = json!({"id": 4, "at": "2026-01-01T00:00:00Z", "by": "agent", "text": "goes on"});
        let said = json!({"labels": {"a": "b", "c": ""}, "notes": [note], "restarts": 2});
        let text = in_words(&said);
        for part in ["name: none", "labels: a=b, c", "note 4 (agent, 2026", "goes on", "2 restarts"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
