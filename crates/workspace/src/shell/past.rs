//! Commands of earlier servers of the session, as far as they are known.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capture::Kept;
use super::operation_id::OperationId;
use super::report::{Report, State, name_of};
use super::screen;

/// A command that an earlier server started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PastOperation {
    pub(crate) id: OperationId,
    pub(crate) script: String,
    pub(crate) directory_name: String,
    /// When it was started, in milliseconds since the epoch.
    pub(crate) started_ms: u64,
    pub(crate) outcome: Outcome,
    /// It ran when the last server ended, which is found out now.
    pub(crate) is_newly_lost: bool,
    pub(crate) took_ms: u64,
    /// The end of its output.
    pub(crate) output: Vec<u8>,
    /// The size of the whole output.
    pub(crate) output_bytes: u64,
}

/// How a command ended, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    Cancelled,
    Lost(LostReason),
}

/// Why it is not known how a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LostReason {
    /// Its server ended, and ended it: the gateway had closed the connection, or was gone.
    Ended,
    /// Its server was killed, and its processes with it.
    Killed,
}

impl LostReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ended => {
                "its server was ended, because the gateway stopped or the client was gone, and the command with it"
            }
            Self::Killed => "its server was killed or crashed, and the command with it",
        }
    }
}

impl Outcome {
    /// `None`: it runs.
    pub(super) fn of(state: State) -> Option<Self> {
        Some(match state {
            State::Running => return None,
            State::Exited { code } => Self::Exited(code),
            State::Signalled { signal, .. } => Self::Signalled(signal),
            State::TimedOut => Self::TimedOut,
            State::Cancelled => Self::Cancelled,
            State::Lost(reason) => Self::Lost(reason),
        })
    }

    fn to_state(self) -> State {
        match self {
            Self::Exited(code) => State::Exited { code },
            Self::Signalled(signal) => State::Signalled { signal, name: name_of(signal) },
            Self::TimedOut => State::TimedOut,
            Self::Cancelled => State::Cancelled,
            Self::Lost(reason) => State::Lost(reason),
        }
    }
}

impl PastOperation {
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.outcome, Outcome::Lost(_))
    }

    pub(crate) fn report(&self) -> Report {
        let omitted = self.output_bytes.saturating_sub(self.output.len() as u64);
        let kept = if omitted == 0 {
            Kept { head: self.output.clone(), omitted, tail: Vec::new() }
        } else {
            Kept { head: Vec::new(), omitted, tail: self.output.clone() }
        };
        Report {
            id: self.id,
            script: self.script.clone(),
            directory_name: self.directory_name.clone(),
            state: self.outcome.to_state(),
            cancel_reason: None,
            duration: Duration::from_millis(self.took_ms),
            started_ms: Some(self.started_ms),
            output: screen::show(&kept),
            output_bytes: self.output_bytes,
            omitted_bytes: omitted,
            left_running: 0,
        }
    }
}
