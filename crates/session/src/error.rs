//! What can go wrong between a client and its upstream, each with the one message a client may see.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::json;
use wire::{ErrorReply, Id, code};

use crate::process::describe_exit;

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
    #[error("too many sessions ({limit}); end one, or raise --max-sessions")]
    TooManySessions { limit: usize },
    #[error("ringfence is shutting down")]
    ShuttingDown,
    #[error("the event id to resume from is unknown or no longer kept")]
    UnknownEvent,
    #[error(transparent)]
    Start(#[from] StartFailure),
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
            Self::TooManyCalls { .. }
            | Self::TooManySessions { .. }
            | Self::ShuttingDown
            | Self::UnknownEvent => ErrorReply::new(code::SERVER_ERROR, self.to_string()),
            Self::Start(failure) => failure.reply(),
        }
    }
}

/// Why an upstream could not be started. Cloned to everybody who waited for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartFailure {
    #[error("cannot start the MCP server `{program}`: {reason}")]
    Spawn { program: String, reason: String },
    #[error("the MCP server {} before it answered initialize", describe_exit(*.status))]
    Exited { status: ExitStatus, stderr: String },
    #[error("the MCP server did not answer initialize within {} s", .after.as_secs())]
    TimedOut { after: Duration, stderr: String },
    #[error("the MCP server's answer to initialize cannot be used: {reason}")]
    BadAnswer { reason: String },
    /// The upstream itself said no; `error` is its JSON-RPC error object.
    #[error("the MCP server refused initialize: {message}")]
    Refused { message: String, error: serde_json::Value },
    #[error("the MCP server crashed {crashes} times in a row; the next start is possible in {:.1} s", .retry_in.as_secs_f32())]
    CrashLoop { crashes: u32, retry_in: Duration, stderr: String },
    #[error("the MCP server is still starting, and too many requests wait for it")]
    TooManyWaiting,
    #[error("the MCP server is being stopped")]
    Stopped,
}

impl StartFailure {
    pub(crate) fn spawn(program: &std::ffi::OsStr, error: &io::Error) -> Self {
        let program = program.to_string_lossy().into_owned();
        let reason = match error.kind() {
            io::ErrorKind::NotFound => "no such program".to_owned(),
            io::ErrorKind::PermissionDenied => "the file is not executable".to_owned(),
            _ => error.to_string(),
        };
        Self::Spawn { program, reason }
    }

    /// The last lines that the upstream wrote to stderr, if it lived to write any.
    pub fn stderr(&self) -> Option<&str> {
        match self {
            Self::Exited { stderr, .. } | Self::TimedOut { stderr, .. } | Self::CrashLoop { stderr, .. } => {
                Some(stderr)
            }
            _ => None,
        }
    }

    pub fn reply(&self) -> ErrorReply {
        if let Self::Refused { error, message } = self {
            let code = error["code"].as_i64().and_then(|code| i32::try_from(code).ok());
            let reply = ErrorReply::new(code.unwrap_or(code::SERVER_ERROR), message.clone());
            return match error.get("data") {
                Some(data) => reply.with_data(data.clone()),
                None => reply,
            };
        }
        let mut data = json!({ "reason": "upstream_not_started" });
        if let Self::Exited { status, .. } = self {
            add_exit(&mut data, *status);
        }
        if let Some(stderr) = self.stderr() {
            data["stderr"] = stderr.into();
        }
        ErrorReply::new(code::SERVER_ERROR, self.to_string()).with_data(data)
    }
}

/// The answer to calls that were running when their upstream died.
pub(crate) fn upstream_died(status: Option<ExitStatus>, stderr: &str) -> ErrorReply {
    let how = status.map_or_else(|| "closed its output".to_owned(), describe_exit);
    let mut data = json!({ "reason": "upstream_exited", "stderr": stderr });
    if let Some(status) = status {
        add_exit(&mut data, status);
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

fn add_exit(data: &mut serde_json::Value, status: ExitStatus) {
    use std::os::unix::process::ExitStatusExt;
    if let Some(code) = status.code() {
        data["exit_code"] = code.into();
    }
    if let Some(signal) = status.signal() {
        data["signal"] = signal.into();
    }
}
