//! How an upstream ended, for errors and logs.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use fence::{Ending, LimitHit};

use crate::redaction::Redaction;

/// How an upstream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exited(Exit),
    /// It runs elsewhere and can no longer be reached.
    Lost(String),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub status: ExitStatus,
    /// The limit of its fence that it hit.
    pub limit: Option<LimitHit>,
    /// Its fence ended it, because a program outside replaced a file that the fence keeps.
    pub mount_lost: bool,
}

impl End {
    /// The same without the secrets of the server.
    #[must_use]
    pub fn redacted(mut self, redaction: &Redaction) -> Self {
        if let Some(text) = self.text_mut() {
            *text = redaction.text(text);
        }
        self
    }

    /// What the server or the network said about it.
    pub(crate) fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Lost(reason) => Some(reason),
            Self::Exited(_) => None,
        }
    }

    /// Adds exit code, signal and limit to the `data` of an error.
    pub fn describe_in(&self, data: &mut serde_json::Value) {
        if let Self::Exited(exit) = self {
            exit.describe_in(data);
        }
    }

    pub fn exit(&self) -> Option<Exit> {
        match self {
            Self::Exited(exit) => Some(*exit),
            Self::Lost(_) => None,
        }
    }
}

impl fmt::Display for End {
    /// A phrase that follows "the MCP server".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(exit) => exit.fmt(f),
            Self::Lost(reason) => write!(f, "was lost ({reason})"),
        }
    }
}

impl Exit {
    fn describe_in(self, data: &mut serde_json::Value) {
        if let Some(code) = self.status.code() {
            data["exit_code"] = code.into();
        }
        if let Some(signal) = self.status.signal() {
            data["signal"] = signal.into();
        }
        match self.limit {
            Some(LimitHit::Memory { .. }) => data["limit"] = "memory".into(),
            Some(LimitHit::Processes { .. }) => data["limit"] = "processes".into(),
            None => {}
        }
    }
}

impl From<Ending> for Exit {
    fn from(ending: Ending) -> Self {
        let raw = ending.code.map(|code| (code & 0xff) << 8).or(ending.signal).unwrap_or(0);
        Self { status: ExitStatus::from_raw(raw), limit: ending.limit, mount_lost: ending.mount_lost }
    }
}

impl fmt::Display for Exit {
    /// A phrase that follows "the MCP server".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "exited with code {code}")?,
            (None, Some(signal)) => write!(f, "was killed by signal {signal}")?,
            (None, None) => write!(f, "ended")?,
        }
        if self.mount_lost {
            f.write_str(
                ", because a program outside replaced a file that its fence keeps (see --allow-metadata)",
            )?;
        }
        match self.limit {
            Some(LimitHit::Memory { bytes }) => {
                write!(f, " at its memory limit of {} MiB (--memory)", bytes >> 20)
            }
            Some(LimitHit::Processes { count }) => {
                write!(f, " at its limit of {count} processes (--processes)")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(end: &End) -> (String, serde_json::Value) {
        let mut data = json!({});
        end.describe_in(&mut data);
        (end.to_string(), data)
    }

    #[test]
    fn an_exit_is_described_by_its_code_signal_and_limit() {
        let exited = |raw: i32, limit| {
            End::Exited(Exit { status: ExitStatus::from_raw(raw), limit, mount_lost: false })
        };
        let cases = [
            (exited(3 << 8, None), "exited with code 3", json!({ "exit_code": 3 })),
            (exited(9, None), "was killed by signal 9", json!({ "signal": 9 })),
            (
                exited(9, Some(LimitHit::Memory { bytes: 64 << 20 })),
                "was killed by signal 9 at its memory limit of 64 MiB (--memory)",
                json!({ "signal": 9, "limit": "memory" }),
            ),
        ];
        for (end, text, data) in cases {
            assert_eq!(described(&end), (text.to_owned(), data));
        }
    }

    #[test]
    fn a_lost_server_has_no_exit() {
        let lost = End::Lost("gone".to_owned());
        assert_eq!((described(&lost), lost.exit()), (("was lost (gone)".to_owned(), json!({})), None));
    }
}
