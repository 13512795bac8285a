//! What a caller is told when its request got no answer from the server: one JSON-RPC error for each reason.

use serde_json::json;
use wire::{ErrorReply, code};

/// How much of a text that the server wrote is repeated in an error.
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

/// The request failed below HTTP. A connection that never stood has carried nothing.
pub(crate) fn unreachable(error: &reqwest::Error) -> ErrorReply {
    let explained = crate::http::client::explain(error);
    let (fate, sent) = if error.is_connect() {
        ("the call was not sent", "no")
    } else {
        ("whether the call took effect is unknown", "unknown")
    };
    let message = format!("The MCP server could not be reached ({explained}); {fate}");
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_unreachable", "sent": sent }))
}

/// The server said no in HTTP; `detail` is what it wrote about that, if anything.
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
        "The MCP server redirects (HTTP status {status}) to another place, which is not followed because the \
         headers are meant for this server only; configure the new URL if it is trusted"
    );
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_redirected", "status": status }))
}

pub(crate) fn too_long(max_message: usize) -> ErrorReply {
    because(
        "upstream_too_long",
        format!("The MCP server sent a message longer than {max_message} bytes, which was not passed on"),
    )
}

pub(crate) fn not_understood(what: &str) -> ErrorReply {
    because(
        "upstream_malformed",
        format!("The MCP server did not answer with a JSON-RPC message: {}", quotable(what)),
    )
}

pub(crate) fn not_initialized() -> ErrorReply {
    because("not_initialized", "The MCP server was not greeted with initialize yet")
}

pub(crate) fn speaks_only_newer(supported: &[String]) -> ErrorReply {
    let versions =
        if supported.is_empty() { String::new() } else { format!(" ({})", quotable(&supported.join(", "))) };
    let message = format!(
        "The MCP server speaks only a newer protocol revision{versions} without initialize; of those, ringfence \
         translates {}, which the server's answer to server/discover does not offer",
        crate::http::modern::VERSION
    );
    ErrorReply::new(code::SERVER_ERROR, message)
        .with_data(json!({ "reason": "upstream_modern_only", "supported": supported }))
}

/// The kind of a result is one that the revision does not know, or not in this place.
pub(crate) fn unknown_result(kind: &str) -> ErrorReply {
    because(
        "upstream_malformed",
        format!("The MCP server answered with a result of an unknown kind: {}", quotable(kind)),
    )
}

/// The server wants to know something before it answers, in a way that cannot be served.
pub(crate) fn cannot_be_asked(why: &str) -> ErrorReply {
    because("upstream_input", format!("The MCP server asks for input that it cannot get: {}", quotable(why)))
}

/// Our user did not answer what the server asked. The protocol of the server has no way to say so.
pub(crate) fn input_refused(method: &str, message: &str) -> ErrorReply {
    let message =
        format!("The call needs an answer to {}, which failed: {}", quotable(method), quotable(message));
    because("input_refused", message)
}

pub(crate) fn already_initialized() -> ErrorReply {
    ErrorReply::new(code::INVALID_REQUEST, "The MCP server was greeted with initialize already")
        .with_data(json!({ "reason": "already_initialized" }))
}

pub(crate) fn not_subscribed(why: &str) -> ErrorReply {
    because("upstream_not_subscribed", format!("The resource cannot be subscribed to: {}", quotable(why)))
}

/// A short piece of what the server wrote, without anything that could disturb a log.
pub(crate) fn quotable(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(MAX_QUOTED).collect()
}
