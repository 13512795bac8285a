//! Pieces of MCP messages that many tests write or read.

use std::path::Path;

use serde_json::{Value, json};

/// The newest protocol version with a handshake.
pub const NEWEST: &str = "2025-11-25";

pub(crate) fn initialize_params(capabilities: Value, version: &str) -> Value {
    let client = json!({"name": "ringfence-testkit", "version": env!("CARGO_PKG_VERSION")});
    json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": client})
}

/// The text of a successful `tools/call`; panics if it failed.
pub fn text_of(response: &Value) -> String {
    let result = &response["result"];
    match result["content"][0]["text"].as_str() {
        Some(text) if result["isError"] != true => text.to_owned(),
        _ => panic!("the call failed: {response}"),
    }
}

pub fn file_uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The result of a `roots/list` that names these directories.
pub fn roots(paths: &[&Path]) -> Value {
    let roots: Vec<Value> = paths.iter().map(|path| json!({"uri": file_uri(path), "name": "root"})).collect();
    json!({ "roots": roots })
}
