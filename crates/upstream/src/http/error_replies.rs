//! The JSON-RPC errors for requests that got no answer from the server: one for each reason.

use serde_json::json;
use wire::{ErrorReply, code};

use crate::http::client::explain;
use crate::http::modern::envelope::VERSION;

/// How much of the server's text an error quotes.
const MAX_QUOTED: usize = 200;

fn because(reason: &str, message: impl Into<String>) -> ErrorReply {
    ErrorReply::new(code::SERVER_ERROR, message).with_data(json!({ "reason": reason }))
}

pub(crate) fn broke_while_running() -> ErrorReply {
    because(
        "upstream_lost",
        "The connection to the MCP server broke while this call was running; whether the call took effect is unknown",
    )
}

/// The request failed below HTTP. It was not sent if the connection could not be established.
pub(crate) fn unreachable(error: &reqwest::Error) -> ErrorReply {
    let explained = explain(error);
    let (fate, sent) = if error.is_connect() {
        ("the call was not sent", "no")
    } else {
        ("whether the call took effect is unknown", "unknown")
    };
    let message = format!("The MCP server could not be reached ({explained}); {fate}");
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_unreachable", "sent": sent }))
}

/// The server answered with an HTTP error; `detail` is its explanation, if any.
pub(crate) fn refused(status: u16, detail: Option<&str>) -> ErrorReply {
    let mut message = format!("The MCP server refused the request with HTTP status {status}");
    if let Some(detail) = detail.map(quotable).filter(|detail| !detail.is_empty()) {
        message = format!("{message}: {detail}");
    }
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_refused", "status": status }))
}

pub(crate) fn redirects_elsewhere(status: u16) -> ErrorReply {
    let message = format!(
        "The MCP server redirects (HTTP status {status}) to another server, which is not followed because the \
         headers are meant for this one only; configure the new URL if it is trusted"
    );
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_redirected", "status": status }))
}

pub(crate) fn too_long(max_message: usize) -> ErrorReply {
    because(
        "upstream_too_long",
        format!("The MCP server sent a message longer than {max_message} bytes, which was dropped"),
    )
}

pub(crate) fn not_understood(what: &str) -> ErrorReply {
    because(
        "upstream_malformed",
        format!("The MCP server did not answer with a JSON-RPC message: {}", quotable(what)),
    )
}

pub(crate) fn not_initialized() -> ErrorReply {
    because("not_initialized", "The MCP server has not been initialized yet")
}

pub(crate) fn speaks_only_newer(supported: &[String]) -> ErrorReply {
    let versions =
        if supported.is_empty() { String::new() } else { format!(" ({})", quotable(&supported.join(", "))) };
    let message = format!(
        "The MCP server speaks only a newer protocol revision{versions} without initialize; of those, ringfence \
         translates {VERSION}, which the server's answer to server/discover does not offer"
    );
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_modern_only", "supported": supported }))
}

/// The revision does not have this kind of result, or does not allow it here.
pub(crate) fn unknown_result(kind: &str) -> ErrorReply {
    because(
        "upstream_malformed",
        format!("The MCP server answered with a result of an unknown kind: {}", quotable(kind)),
    )
}

/// The server asks for input in a way that cannot be served.
pub(crate) fn cannot_be_asked(why: &str) -> ErrorReply {
    because("upstream_input", format!("The MCP server asks for input that it cannot get: {}", quotable(why)))
}

/// The caller did not answer the server's question. The server's protocol has no way to say so.
pub(crate) fn input_refused(method: &str, message: &str) -> ErrorReply {
    let message =
        format!("The call needs an answer to {}, which failed: {}", quotable(method), quotable(message));
    because("input_refused", message)
}

pub(crate) fn already_initialized() -> ErrorReply {
    ErrorReply::new(code::INVALID_REQUEST, "The MCP server is initialized already")
        .with_data(json!({ "reason": "already_initialized" }))
}

pub(crate) fn not_subscribed(why: &str) -> ErrorReply {
    because("upstream_not_subscribed", format!("The resource cannot be subscribed to: {}", quotable(why)))
}

/// The beginning of the server's text, without control characters that could disturb a log.
pub(crate) fn quotable(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(MAX_QUOTED).collect()
}
