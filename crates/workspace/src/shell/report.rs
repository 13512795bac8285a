//! Snapshots of an operation.

use std::fmt;
use std::time::Duration;

use rustix::process::{Signal, WaitStatus};

use super::operation_id::OperationId;
use super::past::LostReason;

/// The state of an operation's shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Exited {
        code: i32,
    },
    /// Ended by a signal that this server did not send.
    Signalled {
        signal: i32,
        name: &'static str,
    },
    /// Ended by this server, with everything that it started, because of its timeout.
    TimedOut,
    /// Ended by this server, with everything that it started, because it was cancelled.
    Cancelled,
    /// It ran when an earlier server ended, and its outcome is not known.
    Lost(LostReason),
}

impl State {
    pub(super) fn of(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Self::Signalled { signal, name: name_of(signal) },
            None => Self::Exited { code: status.exit_status().unwrap_or(-1) },
        }
    }

    pub(crate) fn is_running(self) -> bool {
        self == Self::Running
    }

    pub(crate) fn is_success(self) -> bool {
        self == Self::Exited { code: 0 }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => formatter.write_str("running"),
            Self::Exited { code } => write!(formatter, "exited with code {code}"),
            Self::Signalled { name, .. } => write!(formatter, "ended by {name}"),
            Self::TimedOut => formatter.write_str("timed out"),
            Self::Cancelled => formatter.write_str("cancelled"),
            Self::Lost(_) => formatter.write_str("lost"),
        }
    }
}

/// An operation at one point in time.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) id: OperationId,
    pub(crate) script: String,
    pub(crate) directory_name: String,
    pub(crate) state: State,
    /// The reason for cancelling it, or for ending what it left running.
    pub(crate) cancel_reason: Option<String>,
    /// From the start to the end of the shell, or to now.
    pub(crate) duration: Duration,
    /// When an earlier server started it, in milliseconds since the epoch.
    pub(crate) started_ms: Option<u64>,
    /// As a terminal would show it. Of long output, the beginning and the end.
    pub(crate) output: String,
    /// The size of the whole output.
    pub(crate) output_bytes: u64,
    /// How much of it is not in `output`.
    pub(crate) omitted_bytes: u64,
    /// Processes that still run after the shell has ended.
    pub(crate) left_running: usize,
}

pub(super) fn name_of(signal: i32) -> &'static str {
    const NAMES: &[(Signal, &str)] = &[
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    NAMES.iter().find(|(known, _)| known.as_raw() == signal).map_or("a signal", |(_, name)| name)
}
