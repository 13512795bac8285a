//! Output of the fixture: results, errors and notifications as JSON text.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::Output;

pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;

/// A JSON-RPC error to answer with.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// The `result` of a tool call as JSON text, and what the server does after writing it.
pub(crate) enum ToolOutcome {
    Result(String),
    /// A big result that is kept for the next call.
    SharedResult(Arc<str>),
    ResultThenExit(String, i32),
    ResultThenStopReading(String),
    /// The work runs on its own thread and begins after the answer was written, so no call is in flight.
    ResultThenWork(String, Box<dyn FnOnce() + Send>),
}

pub(crate) fn to_json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("plain data is representable as JSON")
}

pub(crate) fn text_result(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":{}}}]}}"#, to_json(text))
}

pub(crate) fn text_outcome(text: impl AsRef<str>) -> ToolOutcome {
    ToolOutcome::Result(text_result(text.as_ref()))
}

pub(crate) fn tool_error_result(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#, to_json(text))
}

/// A result with the structured content `raw_structure`; `text` repeats it, as the specification advises.
pub(crate) fn structured_outcome(text: &str, raw_structure: &str) -> ToolOutcome {
    ToolOutcome::Result(format!(
        r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{raw_structure}}}"#,
        to_json(text)
    ))
}

impl Output {
    pub(crate) fn buffer_result(&self, id: &str, result: &str) {
        self.buffer_line(&[
            br#"{"jsonrpc":"2.0","id":"#,
            id.as_bytes(),
            br#","result":"#,
            result.as_bytes(),
            b"}",
        ]);
    }

    pub(crate) fn buffer_echo(&self, id: &str, raw_text: &str) {
        self.buffer_line(&[
            br#"{"jsonrpc":"2.0","id":"#,
            id.as_bytes(),
            br#","result":{"content":[{"type":"text","text":"#,
            raw_text.as_bytes(),
            b"}]}}",
        ]);
    }

    pub(crate) fn buffer_error(&self, id: &str, failure: &RpcError) {
        let mut error = json!({"code": failure.code, "message": failure.message});
        if let Some(data) = &failure.data {
            error["data"] = data.clone();
        }
        let error = to_json(&error);
        self.buffer_line(&[
            br#"{"jsonrpc":"2.0","id":"#,
            id.as_bytes(),
            br#","error":"#,
            error.as_bytes(),
            b"}",
        ]);
    }

    pub(crate) fn send_request(&self, id: u64, method: &str, params: Option<&Value>) {
        let mut request = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if let Some(params) = params {
            request["params"] = params.clone();
        }
        self.send_line(&[to_json(&request).as_bytes()]);
    }

    pub(crate) fn send_notification(&self, method: &str, params: Option<&Value>) {
        let mut notification = json!({"jsonrpc": "2.0", "method": method});
        if let Some(params) = params {
            notification["params"] = params.clone();
        }
        self.send_line(&[to_json(&notification).as_bytes()]);
    }

    /// Repeats the token byte for byte.
    pub(crate) fn send_progress(&self, raw_token: &str, progress: u64, total: u64) {
        let params = format!(r#"{{"progressToken":{raw_token},"progress":{progress},"total":{total}}}"#);
        self.send_line(&[
            br#"{"jsonrpc":"2.0","method":"notifications/progress","params":"#,
            params.as_bytes(),
            b"}",
        ]);
    }
}
