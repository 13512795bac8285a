//! Checks the arguments of a call against the tool's table: resolves aliases, checks types, fills in defaults.

use serde_json::{Map, Value};
use thiserror::Error;

use super::parameters::{Field, Kind, Presence};

/// Models add this argument to explain a call. It is ignored.
const EXPLANATION: &str = "explanation";

#[derive(Clone, Debug)]
pub(crate) struct Arguments(Map<String, Value>);

#[derive(Debug, Error)]
pub(crate) enum ArgumentError {
    #[error("the arguments are not an object")]
    NotAnObject,
    #[error("`{name}` is missing")]
    Missing { name: String },
    #[error("`{first}` and `{second}` mean the same and were given different values")]
    Contradiction { first: String, second: String },
    #[error("`{name}` is no argument of this tool; it takes {known}")]
    Unknown { name: String, known: String },
    #[error("`{name}` must be {expected}")]
    WrongType { name: String, expected: String },
}

impl Arguments {
    pub(crate) fn read(fields: &[Field], given: Value) -> Result<Self, ArgumentError> {
        match given {
            Value::Object(given) => read_object(fields, given, "").map(Self),
            Value::Null => read_object(fields, Map::new(), "").map(Self),
            _ => Err(ArgumentError::NotAnObject),
        }
    }

    /// Empty if it was not given.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.given_text(name).unwrap_or_default()
    }

    pub(crate) fn given_text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn given_number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    pub(crate) fn number(&self, name: &str) -> usize {
        self.given_number(name).and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
    }

    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub(crate) fn objects(&self, name: &str) -> Vec<Self> {
        let objects = self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        objects.filter_map(Value::as_object).cloned().map(Self).collect()
    }
}

fn read_object(
    fields: &[Field],
    mut given: Map<String, Value>,
    within: &str,
) -> Result<Map<String, Value>, ArgumentError> {
    let mut read = Map::new();
    for field in fields {
        let name = || format!("{within}{}", field.name);
        match take(field, &mut given, within)? {
            Some(value) => {
                read.insert(field.name.to_owned(), check(field, value, name)?);
            }
            None if field.presence == Presence::Required => {
                return Err(ArgumentError::Missing { name: name() });
            }
            None => {
                if let Some(default) = field.default() {
                    read.insert(field.name.to_owned(), default);
                }
            }
        }
    }
    given.remove(EXPLANATION);
    match given.keys().next() {
        None => Ok(read),
        Some(name) => Err(ArgumentError::Unknown {
            name: format!("{within}{name}"),
            known: fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// Takes the value under any name of a field. `null` counts as absent.
fn take(field: &Field, given: &mut Map<String, Value>, within: &str) -> Result<Option<Value>, ArgumentError> {
    let mut taken: Option<(&str, Value)> = None;
    for spelling in std::iter::once(&field.name).chain(field.aliases) {
        let Some(value) = given.remove(*spelling).filter(|value| !value.is_null()) else { continue };
        match &taken {
            Some((first, earlier)) if *earlier != value => {
                let named = |name: &str| format!("{within}{name}");
                return Err(ArgumentError::Contradiction { first: named(first), second: named(spelling) });
            }
            _ => taken = Some((spelling, value)),
        }
    }
    Ok(taken.map(|(_, value)| value))
}

fn check(field: &Field, value: Value, name: impl Fn() -> String) -> Result<Value, ArgumentError> {
    let wrong = |expected: &str| ArgumentError::WrongType { name: name(), expected: expected.to_owned() };
    match field.kind {
        Kind::Text if value.is_string() => Ok(value),
        Kind::Text => Err(wrong("a text")),
        Kind::Choice(choices) => match value.as_str() {
            Some(text) if choices.contains(&text) => Ok(value),
            _ => Err(wrong(&format!("one of {}", choices.join(", ")))),
        },
        Kind::Flag => as_flag(&value).map(Value::Bool).ok_or_else(|| wrong("true or false")),
        Kind::Number { least, most } => match as_number(&value) {
            Some(number) if (least..=most).contains(&number) => Ok(number.into()),
            _ if most == u64::MAX => Err(wrong(&format!("a whole number of at least {least}"))),
            _ => Err(wrong(&format!("a whole number from {least} to {most}"))),
        },
        Kind::Objects(fields) => {
            read_objects(fields, value, &name()).ok_or_else(|| wrong("a list of objects"))?
        }
        Kind::Texts => match value.as_array() {
            Some(items) if items.iter().all(Value::is_string) => Ok(value),
            _ => Err(wrong("a list of texts")),
        },
        Kind::Object if value.is_object() => Ok(value),
        Kind::Object => Err(wrong("an object")),
    }
}

fn read_objects(fields: &[Field], value: Value, name: &str) -> Option<Result<Value, ArgumentError>> {
    let Value::Array(items) = value else { return None };
    let mut read = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let Value::Object(item) = item else { return None };
        match read_object(fields, item, &format!("{name}[{index}].")) {
            Ok(item) => read.push(Value::Object(item)),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Value::Array(read)))
}

/// Also accepts `"true"`, which models sometimes write.
fn as_flag(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

fn as_number(value: &Value) -> Option<u64> {
    let is_whole = |number: &f64| number.fract() == 0.0 && (0.0..9e15).contains(number);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and within bounds")]
    let from_float = |number: f64| number as u64;
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(is_whole).map(from_float))
        .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIELDS: &[Field] = &[
        Field::required("path", Kind::Text, "").or(&["target_file", "file_path"]),
        Field::number("limit", (1, 100), 50, ""),
        Field::switch("all", ""),
        Field::optional("edits", Kind::Objects(&[Field::required("old", Kind::Text, "")]), ""),
    ];

    #[test]
    fn spellings_are_settled_and_defaults_filled_in() {
        let read = |given| Arguments::read(FIELDS, given).unwrap();
        let arguments = read(json!({ "target_file": "a", "explanation": "because", "all": "true" }));
        assert_eq!(
            (arguments.text("path"), arguments.number("limit"), arguments.flag("all")),
            ("a", 50, true)
        );
        assert_eq!(read(json!({ "path": "a", "file_path": "a", "limit": 3.0 })).number("limit"), 3);
        assert_eq!(
            read(json!({ "path": "a", "edits": [{ "old": "x" }] })).objects("edits")[0].text("old"),
            "x"
        );
    }

    #[test]
    fn every_wrong_argument_is_named() {
        for (given, words) in [
            (json!({}), "`path` is missing"),
            (json!([]), "not an object"),
            (json!({ "path": "a", "file_path": "b" }), "`path` and `file_path` mean the same"),
            (
                json!({ "path": "a", "lines": 3 }),
                "`lines` is no argument of this tool; it takes path, limit, all",
            ),
            (json!({ "path": 3 }), "`path` must be a text"),
            (json!({ "path": "a", "limit": 101 }), "`limit` must be a whole number from 1 to 100"),
            (json!({ "path": "a", "limit": -1 }), "from 1 to 100"),
            (json!({ "path": "a", "edits": [{}] }), "`edits[0].old` is missing"),
            (json!({ "path": "a", "edits": [1] }), "`edits` must be a list of objects"),
        ] {
            let error = Arguments::read(FIELDS, given.clone()).unwrap_err().to_string();
            assert!(error.contains(words), "{given}: {error}");
        }
    }
}
