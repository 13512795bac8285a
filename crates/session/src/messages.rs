//! JSON-RPC messages that the gateway itself writes.

use bytes::Bytes;
use serde_json::{Value, json};
use wire::{Id, Text};

/// A result without content.
pub(crate) fn empty_result(id: &Id) -> Bytes {
    result(id, "{}")
}

pub(crate) fn result(id: &Id, result: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_json()).into()
}

/// A request of the gateway toward an upstream.
pub(crate) fn own_request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().into_bytes()
}

/// The `notifications/cancelled` for a request that the other side knows as `id`.
pub(crate) fn cancellation(id: u64, reason: &str) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{reason}"}}}}"#
    )
    .into()
}

/// Tells a client to forget a request of its upstream.
pub(crate) fn request_withdrawn(number: u64) -> Text {
    cancellation(number, "the MCP server is gone").into()
}
