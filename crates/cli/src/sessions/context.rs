//! What is said about sessions, for `ringfence sessions`: changes of it as a gateway reads them, and lines for people.

use serde_json::{Value, json};

use crate::operator_client::text;

/// Which sessions are to be listed, as the query of a URL.
pub(super) fn query(search: Option<&str>, labels: &[String]) -> String {
    let search = search.map(|search| format!("search={}", encoded(search)));
    let labels = labels.iter().map(|label| format!("label={}", encoded(label)));
    let parts: Vec<String> = search.into_iter().chain(labels).collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// A value as it may stand in a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

pub(super) fn label_change(labels: &[String], remove: &[String], name: Option<&str>) -> Value {
    let mut change = json!({ "labels": {} });
    for label in labels {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        change["labels"][key] = value.into();
    }
    for key in remove {
        change["labels"][key] = Value::Null;
    }
    if let Some(name) = name {
        change["name"] = name.into();
    }
    change
}

/// The name of a session, with its labels behind it.
pub(super) fn name_and_labels(session: &Value) -> String {
    let name = session["name"].as_str().map(|_| format!("{:?}", text(&session["name"])));
    name.into_iter().chain(labels(session)).collect::<Vec<_>>().join(" ")
}

fn labels(session: &Value) -> impl Iterator<Item = String> {
    let label = |(key, value): (&String, &Value)| match value.as_str() {
        Some(value) if !value.is_empty() => text(&format!("{key}={value}").into()),
        _ => text(&key.as_str().into()),
    };
    session["labels"].as_object().into_iter().flatten().map(label)
}

/// What is said about a session, in lines.
pub(super) fn context_lines(said: &Value) -> Vec<String> {
    let mut lines = vec![
        format!("name        {}", text(&said["name"])),
        format!(
            "labels      {}",
            Some(labels(said).collect::<Vec<_>>().join(" "))
                .filter(|it| !it.is_empty())
                .unwrap_or("-".to_owned())
        ),
    ];
    for note in said["notes"].as_array().into_iter().flatten() {
        let words = note["text"].as_str().unwrap_or_default();
        let words: Vec<String> = words.lines().map(|line| text(&line.into())).collect();
        let (at, by) = (text(&note["at"]), text(&note["by"]));
        lines.push(format!("note {:<6} {} ({by}, {at})", note["id"], words.join("\n            ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_encoded_and_empty_without_wishes() {
        assert_eq!(query(None, &[]), "");
        let labels = ["ticket=AB-1".to_owned(), "a&b".to_owned()];
        assert_eq!(
            query(Some("a \u{e4}?"), &labels),
            "?search=a%20%C3%A4%3F&label=ticket%3DAB-1&label=a%26b"
        );
    }

    #[test]
    fn what_is_said_cannot_control_the_terminal() {
        let note = json!({"id": 3, "at": "now", "by": "agent", "text": "one\ntwo\u{1b}[2J"});
        let said = json!({"name": "a\u{7}", "labels": {"k": "\u{9b}v", "word": ""}, "notes": [note]});
        let lines = context_lines(&said).join("\n");
        assert!(!lines.chars().any(|c| c.is_control() && c != '\n'), "{lines:?}");
        for part in ["name        a", "word", "note 3", "one\n            two"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!name_and_labels(&said).chars().any(char::is_control));
    }

    #[test]
    fn labels_are_set_and_removed_by_key() {
        let change = label_change(&["a=b=c".to_owned(), "urgent".to_owned()], &["old".to_owned()], Some(""));
        assert_eq!(change, json!({"labels": {"a": "b=c", "urgent": "", "old": null}, "name": ""}));
    }
}
