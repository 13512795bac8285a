//! The members of a JSON object in their order, each value as its original text, so that members can be added and
//! removed without touching the rest.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug, Default, Clone)]
pub(super) struct Members<'a>(Vec<(String, Cow<'a, str>)>);

impl<'a> Members<'a> {
    /// Returns `None` if the text is not an object.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The text of a value. If a key occurs twice the last one counts, as for most readers.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, text)| &**text)
    }

    /// The text of a value, borrowed from the object that was read.
    pub(super) fn into_borrowed(self, key: &str) -> Option<&'a str> {
        match self.0.into_iter().rev().find(|(name, _)| name == key) {
            Some((_, Cow::Borrowed(text))) => Some(text),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.0.retain(|(name, _)| name != key);
    }

    /// Sets a value to `text`, which is JSON.
    pub(super) fn set(&mut self, key: &str, text: impl Into<Cow<'a, str>>) {
        self.remove(key);
        self.0.push((key.to_owned(), text.into()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, text)| (&**key, &**text))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// As JSON.
impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, text)) in self.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(f, "{before}{}:{text}", Value::from(key))?;
        }
        f.write_str(if self.0.is_empty() { "{}" } else { "}" })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    members.push((key, Cow::Borrowed(value.get())));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_touched_keeps_its_text_and_its_place() {
        let text = r#"{"a":1.0e400,"b":{"x": 1,"x":2},"c":12345678901234567890123}"#;
        let mut members = Members::read(text).unwrap();
        assert_eq!(members.to_string(), text);
        members.set("b", "null");
        members.set("d\"", "[]");
        assert_eq!(members.to_string(), r#"{"a":1.0e400,"c":12345678901234567890123,"b":null,"d\"":[]}"#);
        assert_eq!(members.get("b"), Some("null"));
        assert_eq!(Members::default().to_string(), "{}");
    }

    #[test]
    fn only_an_object_has_members() {
        for other in ["[]", "null", "1", "", "{"] {
            assert!(Members::read(other).is_none(), "{other}");
        }
    }
}
