//! How an operation stands, for whoever asks.

use std::fmt;
use std::time::Duration;

use rustix::process::{Signal, WaitStatus};

use super::operation_id::OperationId;

/// What has become of the shell of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Exited {
        code: i32,
    },
    /// Ended by a signal that did not come from here.
    Signalled {
        signal: i32,
        name: &'static str,
    },
    /// Ended here, with all that it had started, because its time was over.
    TimedOut,
    /// Ended here, with all that it had started, because somebody wanted it.
    Cancelled,
}

impl State {
    pub(super) fn of(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Self::Signalled { signal, name: name_of(signal) },
            None => Self::Exited { code: status.exit_status().unwrap_or(-1) },
        }
    }

    pub fn is_running(self) -> bool {
        self == Self::Running
    }

    pub fn is_success(self) -> bool {
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
        }
    }
}

/// An operation at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    pub id: OperationId,
    pub script: String,
    pub directory_name: String,
    pub state: State,
    /// Why somebody ended it, or what it had left running.
    pub cancel_reason: Option<String>,
    /// Until the end of the shell, or until now.
    pub duration: Duration,
    /// As a terminal would show it. Of long output, the beginning and the end.
    pub output: String,
    /// All that was written.
    pub output_bytes: u64,
    /// What of it is not in `output`.
    pub omitted_bytes: u64,
    /// Processes that the shell has left behind and that still run.
    pub left_running: usize,
}

fn name_of(signal: i32) -> &'static str {
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
