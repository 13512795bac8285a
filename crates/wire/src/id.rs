//! JSON-RPC ids: typed, so that `1` and `"1"` are never the same, and never null.

use std::fmt;

use serde_json::value::RawValue;

use crate::limits::MAX_ID_BYTES;

/// The id of a request, as its JSON text: an integer of any size, or a string.
///
/// A string that uses escapes is kept in one canonical spelling, so that equal ids compare equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// Reads the id of a message. The error says what is wrong with it.
    pub fn from_raw(raw: &RawValue) -> Result<Self, &'static str> {
        let text = raw.get();
        if text.len() > MAX_ID_BYTES {
            return Err("the id is too long");
        }
        match text.as_bytes().first() {
            Some(b'"') if text.contains('\\') => canonical_string(text),
            Some(b'"') => Ok(Self(text.into())),
            Some(b'-' | b'0'..=b'9') if text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) => {
                Ok(Self(text.into()))
            }
            Some(b'-' | b'0'..=b'9') => Err("a numeric id must be an integer"),
            Some(b'n') => Err("the id must not be null"),
            _ => Err("the id must be a string or an integer"),
        }
    }

    pub fn number(value: u64) -> Self {
        Self(value.to_string().into())
    }

    /// The JSON text of the id, as it stands in a message.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The number, if the id is one that fits into a `u64`.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

fn canonical_string(text: &str) -> Result<Id, &'static str> {
    let decoded: String = serde_json::from_str(text).map_err(|_| "the id is not a valid string")?;
    let spelled = serde_json::to_string(&decoded).map_err(|_| "the id is not a valid string")?;
    Ok(Id(spelled.into()))
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Result<Id, &'static str> {
        Id::from_raw(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn a_number_is_not_its_string() {
        assert_ne!(id("1").unwrap(), id(r#""1""#).unwrap());
        assert_eq!(id("1").unwrap().as_number(), Some(1));
        assert_eq!(id(r#""1""#).unwrap().as_number(), None);
    }

    #[test]
    fn equal_strings_are_equal_however_spelled() {
        assert_eq!(id(r#""a/b""#).unwrap(), id(r#""\u0061\/b""#).unwrap());
    }

    #[test]
    fn integers_beyond_machine_words_survive() {
        let big = "123456789012345678901234567890";
        assert_eq!(id(big).unwrap().as_json(), big);
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for bad in ["null", "true", "1.0", "1e3", "{}", "[1]"] {
            assert!(id(bad).is_err(), "{bad}");
        }
        assert!(id(&format!("\"{}\"", "x".repeat(MAX_ID_BYTES))).is_err());
    }
}
