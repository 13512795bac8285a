//! What can go wrong between a client and its upstream, each with the one message a client may see.

use std::time::Duration;

use serde_json::json;
use wire::{ErrorReply, Id, code};

use crate::scope::ScopeRefusal;
use upstream::{End, StartError};

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("Session not found")]
    SessionNotFound,
    #[error("invalid initialize: {0}")]
    BadInitialize(String),
    #[error("the session is already initialised")]
    AlreadyInitialized,
    #[error("a request with id {0:?} is still running in this session")]
    IdInUse(Id),
    #[error("too many requests of this session are running ({limit}); wait for some of them to end")]
    TooManyCalls { limit: usize },
    #[error("too many clients listen to this session ({limit}); close a stream first")]
    TooManyListeners { limit: usize },
    #[error("too many sessions ({limit}); end one, or raise --max-sessions")]
    TooManySessions { limit: usize },
    #[error("too many sessions of this {whose} ({limit}); end one first")]
    TooManyOfOne { limit: usize, whose: &'static str },
    #[error("too many calls; the next one is possible in {} ms", .retry_after.as_millis())]
    TooFast { retry_after: Duration },
    #[error("Unauthorized: the access of this caller has expired or was withdrawn")]
    AccessExpired,
    #[error("this principal has no user on the gateway's host; its operator finds the reason in the log")]
    NoUser,
    #[error("ringfence is shutting down")]
    ShuttingDown,
    #[error("{refusal}; {}", .refusal.hint())]
    Scope { refusal: ScopeRefusal },
    /// The session ended, and this is why.
    #[error("{}", .0.message)]
    Terminated(Box<ErrorReply>),
    #[error("the event id to resume from is unknown or no longer kept")]
    UnknownEvent,
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<ScopeRefusal> for Refusal {
    fn from(refusal: ScopeRefusal) -> Self {
        Self::Scope { refusal }
    }
}

impl Refusal {
    /// The error as the client hears it.
    pub fn reply(&self) -> ErrorReply {
        match self {
            Self::SessionNotFound => ErrorReply::new(code::SESSION_NOT_FOUND, self.to_string()),
            Self::BadInitialize(_) => ErrorReply::new(code::INVALID_PARAMS, self.to_string()),
            Self::AlreadyInitialized | Self::IdInUse(_) => {
                ErrorReply::new(code::INVALID_REQUEST, self.to_string())
            }
            Self::Terminated(reply) => (**reply).clone(),
            Self::Scope { refusal } => ErrorReply::new(code::INVALID_REQUEST, self.to_string())
                .with_data(json!({ "reason": "scope_refused", "hint": refusal.hint() })),
            Self::TooFast { retry_after } => ErrorReply::new(code::SERVER_ERROR, self.to_string())
                .with_data(json!({ "reason": "rate_limited", "retry_after_ms": retry_after.as_millis() })),
            Self::TooManyCalls { .. }
            | Self::TooManyListeners { .. }
            | Self::TooManySessions { .. }
            | Self::TooManyOfOne { .. }
            | Self::AccessExpired
            | Self::NoUser
            | Self::ShuttingDown
            | Self::UnknownEvent => ErrorReply::new(code::SERVER_ERROR, self.to_string()),
            Self::Start(failure) => failure.reply(),
        }
    }
}

/// The answer to calls that were running when their upstream died.
pub(crate) fn upstream_died(end: Option<&End>, stderr: &str, hint: Option<String>) -> ErrorReply {
    let how = end.map_or_else(|| "closed its output".to_owned(), ToString::to_string);
    let mut data = json!({ "reason": "upstream_exited", "stderr": stderr });
    if let Some(end) = end {
        end.describe_in(&mut data);
    }
    if let Some(hint) = hint {
        data["hint"] = hint.into();
    }
    ErrorReply::new(
        code::SERVER_ERROR,
        format!("The MCP server {how} while this call was running; whether the call took effect is unknown"),
    )
    .with_data(data)
}

pub(crate) fn timed_out(limit: Duration, flag: &str, what: &str) -> ErrorReply {
    let seconds = limit.as_secs_f32();
    ErrorReply::new(code::SERVER_ERROR, format!("The call timed out: {what} {seconds} s ({flag})"))
        .with_data(json!({ "reason": "timeout", "seconds": seconds }))
}

pub(crate) fn cancelled() -> ErrorReply {
    ErrorReply::new(code::SERVER_ERROR, "The call was cancelled by the client")
        .with_data(json!({ "reason": "cancelled" }))
}

pub(crate) fn session_ended() -> ErrorReply {
    ErrorReply::new(code::SERVER_ERROR, "The session ended while this call was running")
        .with_data(json!({ "reason": "session_ended" }))
}

pub(crate) fn not_reading() -> ErrorReply {
    ErrorReply::new(code::SERVER_ERROR, "The MCP server does not read its input; the call was not sent")
        .with_data(json!({ "reason": "upstream_not_reading" }))
}

pub(crate) fn answer_too_long(limit: usize) -> ErrorReply {
    ErrorReply::new(
        code::SERVER_ERROR,
        format!("The MCP server's answer is longer than {limit} bytes (--max-message-bytes)"),
    )
    .with_data(json!({ "reason": "answer_too_long", "limit": limit }))
}
