//! What can go wrong between a client and its upstream, each with the one message a client may see.

use std::io;
use std::time::Duration;

use fence::LimitHit;
use serde_json::json;
use wire::{ErrorReply, Id, code};

use crate::connection::End;
use crate::process::Exit;
use crate::scope::ScopeRefusal;

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
    Start(#[from] StartFailure),
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
    /// No fence could be put around it, so it does not run.
    #[error("the MCP server was not started: {reason}")]
    Fence { reason: String, hint: Option<String> },
    #[error("the MCP server cannot be installed: {reason}")]
    Install { reason: String, hint: Option<String> },
    /// It runs on the client's machine, and that is not connected.
    #[error(
        "the MCP server runs on the client's machine, which is not connected: start `ringfence connect` there"
    )]
    NotAttached,
    #[error("the directory of the session is not the one any more that its scope was locked to")]
    ScopeChanged,
    /// The client was told something else at `initialize`.
    #[error("the MCP server offers something else in this workspace than was known; start a new session")]
    Contradiction,
    #[error("the MCP server {exit} before it answered initialize")]
    Exited { exit: End, stderr: String },
    #[error("the MCP server did not answer initialize within {} s", .after.as_secs())]
    TimedOut { after: Duration, stderr: String },
    #[error("the MCP server's answer to initialize cannot be used: {reason}")]
    BadAnswer { reason: String },
    /// The upstream itself said no; `error` is its JSON-RPC error object.
    #[error("the MCP server refused initialize: {message}")]
    Refused { message: String, error: serde_json::Value },
    #[error("the MCP server crashed {crashes} times in a row; the next start is possible in {:.1} s ({reason})", .retry_in.as_secs_f32())]
    CrashLoop { crashes: u32, retry_in: Duration, stderr: String, reason: String },
    #[error("the MCP server left the last {unanswered} calls unanswered; the next one is possible in {:.1} s", .retry_in.as_secs_f32())]
    NotAnswering { unanswered: u32, retry_in: Duration },
    #[error("the MCP server is still starting, and too many requests wait for it")]
    TooManyWaiting,
    #[error("the MCP server is being stopped")]
    Stopped,
}

impl StartFailure {
    pub(crate) fn fence(reason: &impl ToString, hint: Option<String>) -> Self {
        Self::Fence { reason: reason.to_string(), hint }
    }

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
        if let Self::Exited { exit: End::Exited(exit), .. } = self {
            add_exit(&mut data, *exit);
        }
        if let Self::Fence { hint: Some(hint), .. } | Self::Install { hint: Some(hint), .. } = self {
            data["hint"] = hint.as_str().into();
        }
        if let Some(stderr) = self.stderr() {
            data["stderr"] = stderr.into();
        }
        ErrorReply::new(code::SERVER_ERROR, self.to_string()).with_data(data)
    }
}

/// The answer to calls that were running when their upstream died.
pub(crate) fn upstream_died(end: Option<&End>, stderr: &str) -> ErrorReply {
    let how = end.map_or_else(|| "closed its output".to_owned(), ToString::to_string);
    let mut data = json!({ "reason": "upstream_exited", "stderr": stderr });
    if let Some(End::Exited(exit)) = end {
        add_exit(&mut data, *exit);
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

fn add_exit(data: &mut serde_json::Value, exit: Exit) {
    use std::os::unix::process::ExitStatusExt;
    if let Some(code) = exit.status.code() {
        data["exit_code"] = code.into();
    }
    if let Some(signal) = exit.status.signal() {
        data["signal"] = signal.into();
    }
    match exit.limit {
        Some(LimitHit::Memory { .. }) => data["limit"] = "memory".into(),
        Some(LimitHit::Processes { .. }) => data["limit"] = "processes".into(),
        None => {}
    }
}
