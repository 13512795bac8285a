//! Why an upstream could not be started, and the JSON-RPC error for the client.

use std::io;
use std::time::Duration;

use fence::{FenceError, LaunchError};
use serde_json::json;
use wire::{ErrorReply, code};

use crate::directories::Directories;
use crate::end::End;
use crate::last_words::{hint_on_refused_write, telling_line};
use crate::redaction::Redaction;

/// Why an upstream could not be started. Every request that waited for it gets a clone.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start the MCP server `{program}`: {reason}")]
    Spawn { program: String, reason: String },
    /// The fence could not be set up, so the server does not run.
    #[error("the MCP server was not started: {reason}")]
    Fence { reason: String, hint: Option<String> },
    #[error("the MCP server cannot be installed: {reason}")]
    Install { reason: String, hint: Option<String> },
    #[error(
        "the MCP server runs on the client's machine, which is not connected: start `ringfence connect` there"
    )]
    NotAttached,
    #[error("the directory of the session was replaced after its scope was locked")]
    ScopeChanged,
    #[error("the MCP server runs without a fence, and would work on the project itself instead of its copy")]
    UnfencedCopy,
    /// The server's capabilities differ from those in the answer to `initialize`.
    #[error("the MCP server offers other capabilities in this workspace than before; start a new session")]
    Contradiction,
    #[error("the MCP server {exit} before it answered initialize")]
    Exited { exit: End, stderr: String, hint: Option<String> },
    #[error("the MCP server did not answer initialize within {} s", .after.as_secs())]
    TimedOut { after: Duration, stderr: String },
    #[error("the MCP server's answer to initialize cannot be used: {reason}")]
    BadAnswer { reason: String },
    /// The upstream answered with an error; `error` is its JSON-RPC error object.
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

impl StartError {
    pub(crate) fn fence(error: &FenceError) -> Self {
        match error {
            FenceError::Launch(LaunchError::Exec { program, error }) => {
                Self::spawn(program.as_os_str(), error)
            }
            error => Self::Fence { reason: error.to_string(), hint: error.hint() },
        }
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

    /// The last lines that the upstream wrote to stderr, if it was started at all.
    pub fn stderr(&self) -> Option<&str> {
        match self {
            Self::Exited { stderr, .. } | Self::TimedOut { stderr, .. } | Self::CrashLoop { stderr, .. } => {
                Some(stderr)
            }
            _ => None,
        }
    }

    /// The message, with the line of stderr that tells why.
    pub fn explained(&self) -> String {
        match self.stderr().and_then(telling_line) {
            Some(line) => format!("{self}: {line}"),
            None => self.to_string(),
        }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Fence { hint, .. } | Self::Install { hint, .. } | Self::Exited { hint, .. } => {
                hint.as_deref()
            }
            _ => None,
        }
    }

    /// Whether the server cannot start anywhere, whatever the session: there is no program to run.
    pub fn is_without_program(&self) -> bool {
        matches!(self, Self::Spawn { .. } | Self::Install { .. })
    }

    /// The same with a remedy, if a server in a fence around these directories ended because of a write elsewhere.
    #[must_use]
    pub fn with_remedy(mut self, directories: &Directories) -> Self {
        if let Self::Exited { stderr, hint, .. } = &mut self {
            *hint = hint_on_refused_write(stderr, directories);
        }
        self
    }

    /// The same without the secrets of the server.
    #[must_use]
    pub fn redacted(mut self, redaction: &Redaction) -> Self {
        if redaction.is_empty() {
            return self;
        }
        let texts: Vec<&mut String> = match &mut self {
            Self::Spawn { program, reason } => vec![program, reason],
            Self::Fence { reason, hint } | Self::Install { reason, hint } => {
                std::iter::once(reason).chain(hint).collect()
            }
            Self::Exited { stderr, exit, hint } => {
                std::iter::once(stderr).chain(exit.text_mut()).chain(hint).collect()
            }
            Self::TimedOut { stderr, .. } => vec![stderr],
            Self::BadAnswer { reason } => vec![reason],
            Self::Refused { message, error } => {
                *error = serde_json::from_str(&redaction.text(&error.to_string())).unwrap_or_default();
                vec![message]
            }
            Self::CrashLoop { stderr, reason, .. } => vec![stderr, reason],
            _ => Vec::new(),
        };
        for text in texts {
            *text = redaction.text(text);
        }
        self
    }

    /// The same without what the server wrote to stderr, for callers that must not see it.
    #[must_use]
    pub fn without_stderr(mut self) -> Self {
        if let Self::Exited { stderr, .. } | Self::TimedOut { stderr, .. } | Self::CrashLoop { stderr, .. } =
            &mut self
        {
            stderr.clear();
        }
        if let Self::Exited { hint, .. } = &mut self {
            *hint = None;
        }
        self
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
        if let Self::Exited { exit, .. } = self {
            exit.describe_in(&mut data);
        }
        if let Some(hint) = self.hint() {
            data["hint"] = hint.into();
        }
        if let Some(stderr) = self.stderr() {
            data["stderr"] = stderr.into();
        }
        ErrorReply::new(code::SERVER_ERROR, self.explained()).with_data(data)
    }
}
