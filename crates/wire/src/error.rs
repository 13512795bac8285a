//! JSON-RPC errors that the gateway itself makes, and the error of reading a message.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Id;

/// Error codes, as the protocol and the official SDKs use them.
pub mod code {
    pub const PARSE_ERROR: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL_ERROR: i32 = -32603;
    /// The server's own errors; SDKs use it for transport errors.
    pub const SERVER_ERROR: i32 = -32000;
    /// The session is unknown or has ended. Clients then start a new one.
    pub const SESSION_NOT_FOUND: i32 = -32001;
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
    /// A header contradicts the body (2026-07-28).
    pub const HEADER_MISMATCH: i32 = -32020;
}

/// Why bytes are not a JSON-RPC message, with the id to echo if it could be read.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct MessageError {
    /// [`code::PARSE_ERROR`] or [`code::INVALID_REQUEST`].
    pub code: i32,
    pub reason: String,
    pub id: Option<Id>,
}

impl MessageError {
    pub(crate) fn not_json(reason: impl Into<String>) -> Self {
        Self { code: code::PARSE_ERROR, reason: reason.into(), id: None }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self { code: code::INVALID_REQUEST, reason: reason.into(), id: None }
    }

    pub(crate) fn with_id(mut self, id: Option<Id>) -> Self {
        self.id = id;
        self
    }
}

/// A JSON-RPC error that the gateway answers in place of an upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorReply {
    pub code: i32,
    pub message: String,
    pub data: Option<Value>,
}

impl ErrorReply {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The whole JSON-RPC response. Without an id it carries `null`, as JSON-RPC requires.
    pub fn to_message(&self, id: Option<&Id>) -> Bytes {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        let id = id.map_or("null", Id::as_json);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
    }
}
