//! JSON as a tree in which nothing is lost: keys keep their order and may repeat, numbers keep their spelling.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Object(Vec<(String, Tree)>),
    Array(Vec<Tree>),
    Text(String),
    /// A number or a word, or a text with half a surrogate pair, as it is spelled.
    Spelled(String),
}

impl Tree {
    /// Reads a whole text. Returns `None` for what is not JSON.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let raw: &RawValue = serde_json::from_slice(text).ok()?;
        Self::of(raw)
    }

    fn of(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        Some(match text.as_bytes().first()? {
            b'{' => {
                let members = serde_json::Deserializer::from_str(text).deserialize_map(Members).ok()?;
                let read = |(key, value): (&RawValue, &RawValue)| Some((key_of(key), Self::of(value)?));
                Self::Object(members.into_iter().map(read).collect::<Option<_>>()?)
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                Self::Array(items.into_iter().map(Self::of).collect::<Option<_>>()?)
            }
            b'"' => serde_json::from_str(text).map_or_else(|_| Self::Spelled(text.to_owned()), Self::Text),
            _ => Self::Spelled(text.to_owned()),
        })
    }

    pub(super) fn number(value: u64) -> Self {
        Self::Spelled(value.to_string())
    }

    /// All values of a key.
    pub(super) fn all<'t>(&'t self, key: &str) -> impl Iterator<Item = &'t Self> {
        let members = match self {
            Self::Object(members) => members.as_slice(),
            _ => &[],
        };
        members.iter().filter(move |(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value at the end of a path of keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |tree, key| tree.all(key).next())
    }

    /// The same with another value at the end of a path, if there is one now.
    pub(super) fn with(&self, path: &[&str], value: &Self) -> Self {
        let Some((first, rest)) = path.split_first() else { return value.clone() };
        let Self::Object(members) = self else { return self.clone() };
        let change = |(key, old): &(String, Self)| {
            (key.clone(), if key == first { old.with(rest, value) } else { old.clone() })
        };
        Self::Object(members.iter().map(change).collect())
    }

    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Object(members) => 1 + members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Text(_) | Self::Spelled(_) => 0,
        }
    }
}

/// A key, or its spelling if that has half a surrogate pair.
fn key_of(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
