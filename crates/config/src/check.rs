//! Checks a document against the tables of keys: unknown keys, wrong types and values out of range.

use std::time::Duration;

use crate::Template;
use crate::diagnostic::{Findings, nearest};
use crate::document::{Entry, Kind, Node, Value};
use crate::expiry::parse_expiry;
use crate::keys::{Key, Named, Shape, TOOL_NAME};

const YEAR: f64 = 366.0 * 24.0 * 3600.0;

/// Finds everything that is wrong with a node by itself. An empty value is always allowed: `env:` alone means the same
/// as leaving it out.
pub(crate) fn check(node: &Node, shape: &Shape, name: &str, findings: &mut Findings<'_>) {
    if node.is_nothing() {
        return;
    }
    match (shape, &node.value) {
        (Shape::Either(shapes), _) => match shapes.iter().find(|shape| is_kind(node, shape)) {
            Some(shape) => check(node, shape, name, findings),
            None => wrong_kind(node, shape, name, findings),
        },
        _ if !is_kind(node, shape) => wrong_kind(node, shape, name, findings),
        (Shape::List(shape), Value::List(items)) => {
            for item in items {
                if item.is_nothing() {
                    findings.error(item.place, format!("`{name}` has an empty item"));
                }
                check(item, shape, name, findings);
            }
        }
        (Shape::Object(keys), Value::Map(entries)) => check_object(entries, keys, findings),
        (Shape::Map(named, shape), Value::Map(entries)) => check_map(entries, *named, shape, findings),
        (_, Value::Scalar(_, text)) => check_scalar(node, text, shape, name, findings),
        _ => {}
    }
}

/// A type in words, as it is used in messages and in the reference.
pub(crate) fn in_words(shape: &Shape) -> String {
    match shape {
        Shape::Text | Shape::ToolName => "text".to_owned(),
        Shape::Template => "template".to_owned(),
        Shape::Path => "path".to_owned(),
        Shape::Flag => "true or false".to_owned(),
        Shape::Seconds => "number of seconds".to_owned(),
        Shape::Count => "whole number from 1".to_owned(),
        Shape::Size => "size such as 512M or 2G".to_owned(),
        Shape::Moment => "date or time".to_owned(),
        Shape::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Shape::List(Shape::Template) => "list of templates".to_owned(),
        Shape::List(Shape::Path) => "list of paths".to_owned(),
        Shape::List(_) => "list of texts".to_owned(),
        Shape::Map(named, shape) => format!("map: {} → {}", named.in_words(), in_words(shape)),
        Shape::Object(keys) if keys.len() <= 2 => {
            format!(
                "map of {}",
                keys.iter().map(|key| format!("`{}`", key.name)).collect::<Vec<_>>().join(", ")
            )
        }
        Shape::Object(_) => "map".to_owned(),
        Shape::Either(shapes) => shapes.iter().map(in_words).collect::<Vec<_>>().join(" or "),
    }
}

/// `2G` in bytes.
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let factor = match unit.trim_end_matches("IB").trim_end_matches('B') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1_u64 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

pub(crate) fn duration_of(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (!duration.is_zero() && seconds <= YEAR).then_some(duration)
}

/// Returns true if the node is of this kind of value; its content is checked later.
fn is_kind(node: &Node, shape: &Shape) -> bool {
    match (shape, &node.value) {
        (Shape::List(_), Value::List(_)) | (Shape::Map(..) | Shape::Object(_), Value::Map(_)) => true,
        (Shape::List(_) | Shape::Map(..) | Shape::Object(_), _) => false,
        (Shape::Either(shapes), _) => shapes.iter().any(|shape| is_kind(node, shape)),
        (Shape::Flag, Value::Scalar(kind, _)) => *kind == Kind::Flag,
        (Shape::Seconds | Shape::Count, Value::Scalar(kind, _)) => *kind == Kind::Number,
        // `3000` and `true` count as text where text is expected: ports in arguments, switches in variables.
        (_, Value::Scalar(kind, _)) => *kind != Kind::Nothing,
        _ => false,
    }
}

fn wrong_kind(node: &Node, shape: &Shape, name: &str, findings: &mut Findings<'_>) {
    let message = format!("`{name}` must be {}, not {}", with_article(shape), node.described());
    match (shape, node.text()) {
        (Shape::Flag, Some("yes" | "on" | "Yes" | "On")) => {
            findings.error_with_hint(node.place, message, "write true");
        }
        (Shape::Flag, Some("no" | "off" | "No" | "Off")) => {
            findings.error_with_hint(node.place, message, "write false");
        }
        (Shape::List(_), Some(_)) => {
            findings.error_with_hint(node.place, message, format!("write `{name}: [\"…\"]`"));
        }
        (Shape::Seconds | Shape::Count, Some(_)) => {
            findings.error_with_hint(node.place, message, "write a number without quotes or unit");
        }
        _ => findings.error(node.place, message),
    }
}

fn with_article(shape: &Shape) -> String {
    match shape {
        Shape::Text | Shape::Template | Shape::ToolName | Shape::Flag => match shape {
            Shape::Flag => "true or false".to_owned(),
            _ => "text".to_owned(),
        },
        Shape::Choice(_) => format!("one of {}", in_words(shape)),
        Shape::Map(named, _) => format!("a map with a key for each {}", named.in_words()),
        Shape::Object(_) => "a map".to_owned(),
        Shape::Either(shapes) => shapes.iter().map(with_article).collect::<Vec<_>>().join(" or "),
        Shape::List(_) | Shape::Path | Shape::Seconds | Shape::Count | Shape::Size | Shape::Moment => {
            format!("a {}", in_words(shape).replace("templates", "texts"))
        }
    }
}

fn check_object(entries: &[Entry], keys: &'static [Key], findings: &mut Findings<'_>) {
    check_duplicates(entries, "key", findings);
    for entry in entries {
        if let Some(key) = keys.iter().find(|key| key.name == entry.key) {
            check(&entry.value, &key.shape, key.name, findings);
            continue;
        }
        let message = format!("unknown key `{}`", entry.key);
        let known = keys.iter().map(|key| key.name);
        match (entry.key.as_str(), nearest(&entry.key, known.clone())) {
            ("type" | "transport", _) if known.clone().any(|known| known == "url") => {
                findings.error_with_hint(entry.place, message, "leave it out: `command` or `url` says it");
            }
            (_, Some(meant)) => {
                findings.error_with_hint(entry.place, message, format!("did you mean `{meant}`?"));
            }
            (_, None) => {
                let known = known.filter(|name| !name.starts_with('$')).collect::<Vec<_>>().join(", ");
                findings.error_with_hint(entry.place, message, format!("known here: {known}"));
            }
        }
    }
}

fn check_map(entries: &[Entry], named: Named, shape: &Shape, findings: &mut Findings<'_>) {
    check_duplicates(entries, named.in_words(), findings);
    for entry in entries {
        if !named.allows(&entry.key) {
            let message = format!("`{}` cannot be the name of a {}", entry.key, named.in_words());
            findings.error_with_hint(entry.place, message, named.hint());
        }
        // A variable is the exception to "empty is allowed": `KEY:` most likely lacks its value.
        if entry.value.is_nothing() && named == Named::Variable {
            let message = format!("`{}` has no value", entry.key);
            let hint =
                format!("write \"${{{}}}\" to pass on ringfence's own, or \"\" for an empty one", entry.key);
            findings.error_with_hint(entry.value.place, message, hint);
        }
        check(&entry.value, shape, &entry.key, findings);
    }
}

fn check_duplicates(entries: &[Entry], what: &str, findings: &mut Findings<'_>) {
    let mut first = std::collections::HashMap::new();
    for entry in entries {
        let Some(line) = first.get(entry.key.as_str()) else {
            first.insert(entry.key.as_str(), entry.place.line);
            continue;
        };
        findings.error(entry.place, format!("the {what} `{}` occurs twice; first in line {line}", entry.key));
    }
}

/// Messages quote a value only where it cannot be a secret.
fn check_scalar(node: &Node, text: &str, shape: &Shape, name: &str, findings: &mut Findings<'_>) {
    match shape {
        Shape::Template => {
            if let Err(error) = Template::parse(text) {
                findings.error_with_hint(node.place, format!("`{name}`: {error}"), error.hint());
            }
            if text.contains('\0') {
                findings.error(node.place, format!("`{name}` has a NUL character in it"));
            }
        }
        Shape::Choice(choices) if !choices.contains(&text) => {
            let hint = match nearest(text, choices.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("choose one of {}", in_words(shape)),
            };
            findings.error_with_hint(node.place, format!("`{name}` cannot be `{text}`"), hint);
        }
        Shape::Seconds if node.number().and_then(duration_of).is_none() => {
            findings.error_with_hint(
                node.place,
                format!("`{name}` cannot be {text}"),
                "a number of seconds greater than 0, such as 60 or 0.5",
            );
        }
        Shape::Count if text.parse::<u64>().ok().is_none_or(|count| count == 0) => {
            findings.error(node.place, format!("`{name}` must be a whole number from 1, not {text}"));
        }
        Shape::Size if bytes_of(text).is_none() => {
            findings.error_with_hint(
                node.place,
                format!("`{name}` cannot be `{text}`"),
                "such as 512M or 2G",
            );
        }
        Shape::Moment if parse_expiry(text).is_none() => {
            findings.error_with_hint(
                node.place,
                format!("`{name}` cannot be `{text}`"),
                "a date such as 2030-12-31, or a time such as 2030-12-31T18:00:00Z",
            );
        }
        Shape::ToolName if !TOOL_NAME.allows(text) => {
            findings.error_with_hint(
                node.place,
                format!("`{text}` cannot be the name of a tool"),
                "names are 1 to 64 letters, digits, `-` and `_`",
            );
        }
        Shape::Text | Shape::Path if text.trim().is_empty() => {
            findings.error(node.place, format!("`{name}` is empty"));
        }
        _ => {}
    }
}
