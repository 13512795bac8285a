//! A parsed file: values, each with its place. YAML, JSON and TOML are all parsed into this.

pub(crate) mod json;
mod toml;
mod yaml;

use std::path::Path;

use crate::diagnostic::Findings;

pub(crate) use yaml::kind_of_plain;

/// Deeper than any configuration, and shallow enough for recursive functions.
const MAX_DEPTH: usize = 32;
/// A file of 1 MiB has fewer values, unless its aliases multiply.
const MAX_NODES: usize = 200_000;

/// Line and column, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    /// Just after its last character. For a YAML block, where the next item begins.
    pub(crate) end: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// The text as it is written, without quotes.
    Scalar(Kind, String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// The type of a scalar by its spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Flag,
    Number,
    Text,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The place of the key.
    pub(crate) place: Place,
    pub(crate) value: Node,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Yaml,
    /// With comments and trailing commas.
    Json,
    Toml,
}

impl Syntax {
    /// Recognises the format by the file's extension, else by its first character.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => Self::Yaml,
            Some("json" | "jsonc") => Self::Json,
            Some("toml") => Self::Toml,
            _ if text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '/']) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// Parses a file. Returns `None` for an empty file, and after a syntax error, which goes to the findings.
pub(crate) fn read(text: &str, syntax: Syntax, findings: &mut Findings<'_>) -> Option<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = match syntax {
        Syntax::Yaml => yaml::read(text),
        Syntax::Json => json::read(text),
        Syntax::Toml => toml::read(text),
    };
    match parsed {
        Ok(root) => root,
        Err(error) => {
            match error.hint {
                Some(hint) => findings.error_with_hint(error.place, error.message, hint),
                None => findings.error(error.place, error.message),
            }
            None
        }
    }
}

struct SyntaxError {
    place: Place,
    message: String,
    hint: Option<String>,
}

impl SyntaxError {
    fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), hint: None }
    }

    fn too_deep(place: Place) -> Self {
        Self::new(place, format!("nested deeper than {MAX_DEPTH} levels"))
    }
}

impl Node {
    pub(crate) fn map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a scalar. `3000` and `true` count as text where text is expected.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(Kind::Nothing, _) => None,
            Value::Scalar(_, text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match &self.value {
            Value::Scalar(Kind::Number, text) => text.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match &self.value {
            Value::Scalar(Kind::Flag, text) => Some(text.eq_ignore_ascii_case("true")),
            _ => None,
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self.value, Value::Scalar(Kind::Nothing, _))
    }

    /// The value at a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.map()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The type of the value, in words.
    pub(crate) fn described(&self) -> &'static str {
        match &self.value {
            Value::Scalar(Kind::Nothing, _) => "nothing",
            Value::Scalar(Kind::Flag, _) => "true or false",
            Value::Scalar(Kind::Number, _) => "a number",
            Value::Scalar(Kind::Text, _) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Compares values and ignores places.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Scalar(kind, text), Value::Scalar(other_kind, other)) => {
                (kind, text) == (other_kind, other)
            }
            (Value::List(items), Value::List(others)) => {
                items.len() == others.len()
                    && items.iter().zip(others).all(|(item, other)| item.says_the_same_as(other))
            }
            (Value::Map(entries), Value::Map(others)) => {
                entries.len() == others.len()
                    && entries.iter().zip(others).all(|(entry, other)| {
                        entry.key == other.key && entry.value.says_the_same_as(&other.value)
                    })
            }
            _ => false,
        }
    }

    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(..) => 0,
            Value::List(items) => items.iter().map(Self::size).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.value.size()).sum(),
        }
    }
}

/// Converts byte positions to lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { text, starts: std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect() }
    }

    fn place(&self, position: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= position).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..position.min(self.text.len())).unwrap_or("");
        Place { line, column: before.chars().count() + 1 }
    }
}
