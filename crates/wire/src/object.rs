//! Reads a struct from a JSON object and from nothing else.

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

/// Reads a struct from an object. Derived `Deserialize` also accepts an array, field by field; then the gateway would
/// inspect something else than the receiver of the text sees. The error tells bad JSON from JSON of another kind.
pub fn read_object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text);
    }
    serde_json::from_str::<&RawValue>(text)?;
    Err(serde_json::Error::custom("it is not an object"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct One {
        field: u32,
    }

    #[test]
    fn an_array_is_no_object() {
        assert_eq!(read_object::<One>(r#" {"field":1}"#).unwrap().field, 1);
        assert!(read_object::<One>("[1]").unwrap_err().is_data());
        assert!(read_object::<One>("nonsense").unwrap_err().is_syntax());
        assert!(read_object::<One>("").unwrap_err().is_eof());
    }
}
