//! One started command: its state, its report, and waiting for it.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::capture::Capture;
use super::operation_id::OperationId;
use super::report::{Report, State};
use super::screen;
use super::tree::Tree;
use crate::state::MAX_OUTPUT;

/// Interval for checking for new output and for cancellation.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of new output per progress message, at most.
const PROGRESS_BYTES: usize = 4 * 1024;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The operation has ended, and no request to end it is pending.
    Ended,
    TimeOver,
    Cancelled,
}

/// A started command. It runs on whether or not a call waits for it.
#[derive(Debug)]
pub(crate) struct Operation {
    id: OperationId,
    script: String,
    directory_name: String,
    started_at: Instant,
    pub(super) tree: Tree,
    progress: Mutex<Progress>,
    /// Notified when the state changes, but not for new output.
    changed: Condvar,
}

/// The mutable state of an operation.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) state: State,
    pub(super) ended_at: Option<Instant>,
    pub(super) capture: Capture,
    /// How far waiting calls have seen the output.
    shown: u64,
    /// A request to end the operation that is still pending.
    pub(super) request: Option<EndRequest>,
    cancel_reason: Option<String>,
    /// Wakes the operation's thread. `None`: the thread has ended, and no process of the operation runs.
    pub(super) wake: Option<OwnedFd>,
}

/// A request to end all processes of the operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndRequest {
    pub(super) state: State,
    /// Time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

/// The parts of a new operation.
pub(super) struct Beginning {
    pub(super) id: OperationId,
    pub(super) script: String,
    pub(super) directory_name: String,
    pub(super) tree: Tree,
    pub(super) capture: Capture,
    pub(super) wake: OwnedFd,
}

impl Operation {
    pub(super) fn new(beginning: Beginning) -> Self {
        let Beginning { id, script, directory_name, tree, capture, wake } = beginning;
        let progress = Progress {
            state: State::Running,
            ended_at: None,
            capture,
            shown: 0,
            request: None,
            cancel_reason: None,
            wake: Some(wake),
        };
        Self {
            id,
            script,
            directory_name,
            started_at: Instant::now(),
            tree,
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn id(&self) -> OperationId {
        self.id
    }

    pub(crate) fn script(&self) -> &str {
        &self.script
    }

    pub(crate) fn state(&self) -> State {
        self.progress().state
    }

    /// Takes a snapshot of the operation.
    pub(crate) fn report(&self) -> Report {
        let progress = self.progress();
        let state = progress.state;
        let kept = progress.capture.kept();
        let output_bytes = progress.capture.total();
        let cancel_reason = progress.cancel_reason.clone();
        let ended_at = progress.ended_at;
        let has_left_some = !state.is_running() && progress.wake.is_some();
        drop(progress);
        Report {
            id: self.id,
            script: self.script.clone(),
            directory_name: self.directory_name.clone(),
            state,
            cancel_reason,
            duration: ended_at.unwrap_or_else(Instant::now).duration_since(self.started_at),
            started_ms: None,
            output: screen::show(&kept),
            output_bytes,
            omitted_bytes: kept.omitted,
            left_running: if has_left_some { self.tree.count() } else { 0 },
        }
    }

    /// The size of the output, and its end as it is kept for a later server.
    pub(super) fn newest_output(&self) -> (u64, Vec<u8>) {
        let progress = self.progress();
        let (newest, _) = progress.capture.since(0, MAX_OUTPUT);
        (progress.capture.total(), newest)
    }

    /// Waits until the operation has ended, the deadline has passed, or `cancelled` returns true. About ten times
    /// a second, checks `cancelled` and passes the newest unseen output to `on_output`.
    pub(crate) fn wait(
        &self,
        until: Instant,
        cancelled: &dyn Fn() -> bool,
        on_output: &mut dyn FnMut(&str),
    ) -> Waited {
        loop {
            if cancelled() {
                return Waited::Cancelled;
            }
            let mut progress = self.progress();
            if progress.is_settled() {
                return Waited::Ended;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TimeOver;
            }
            let unsettled = |progress: &mut Progress| !progress.is_settled();
            let time = self.changed.wait_while_for(&mut progress, unsettled, left.min(WAIT_INTERVAL));
            if time.timed_out() {
                let new = progress.take_new_output();
                drop(progress);
                if !new.is_empty() {
                    on_output(&screen::plain(&new));
                }
            }
        }
    }

    /// Asks the operation's thread to end all processes, including those that the shell left behind. The state of
    /// a shell that has already ended does not change.
    pub(super) fn request_end(&self, reason: &str, grace: Duration) {
        let mut progress = self.progress();
        let Some(wake) = &progress.wake else { return };
        // The counter cannot overflow, because the thread resets it at once. If the wake-up is lost, the thread
        // sees the request at its next check.
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        progress.cancel_reason.get_or_insert_with(|| reason.to_owned());
        progress.request.get_or_insert(EndRequest { state: State::Cancelled, grace });
    }

    /// Whether all its processes have ended, so that it may be forgotten.
    pub(super) fn is_quiet(&self) -> bool {
        self.progress().wake.is_none()
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.script.len() + self.progress().capture.kept_bytes()
    }

    pub(super) fn started_at(&self) -> Instant {
        self.started_at
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress());
        self.changed.notify_all();
    }
}

impl Progress {
    fn is_settled(&self) -> bool {
        !self.state.is_running() && self.request.is_none()
    }

    fn take_new_output(&mut self) -> Vec<u8> {
        let (new, position) = self.capture.since(self.shown, PROGRESS_BYTES);
        self.shown = position;
        new
    }
}
