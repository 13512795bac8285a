//! Tool arguments: absent ones count as an empty object, absent fields take their defaults.

use serde::de::DeserializeOwned;

/// Reads the raw `arguments` object of a call into a tool's own type.
pub(crate) fn parse_arguments<Arguments: DeserializeOwned>(raw: &str) -> Result<Arguments, String> {
    serde_json::from_str(raw).map_err(|error| format!("invalid arguments: {error}"))
}
