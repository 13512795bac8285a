//! The thread of an operation: reads its output, notices the end of the shell, and ends its processes on timeout or
//! cancellation.
//!
//! An operation ends with its shell, not with its output: background processes may keep that open for as long as
//! they like. The thread stays for them, so that they can go on writing.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, WaitStatus, pidfd_open};

use super::operation::{EndRequest, Operation};
use super::past::Outcome;
use super::report::State;
use super::tree;
use crate::state::State as KeptState;

/// How often the newest output is kept for a later server. What a command wrote last before a kill may be missing.
const KEEP_INTERVAL: Duration = Duration::from_millis(200);

/// The calls of the thread are shallow and keep nothing large on the stack.
const STACK_BYTES: usize = 128 * 1024;
const BUFFER_BYTES: usize = 32 * 1024;

/// Interval for collecting zombies while the shell runs.
const RUNNING_INTERVAL: Duration = Duration::from_secs(5);
/// Interval for checking background processes after the shell has ended.
const LEFT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval for checking processes that got SIGTERM.
const GRACE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between rounds of SIGKILL. The next round reaches processes that were forked in between.
const KILL_INTERVAL: Duration = Duration::from_millis(5);
/// How long to wait for killed processes: one in uninterruptible sleep may never end.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Watcher {
    operation: Arc<Operation>,
    /// `None`: all writers have closed it.
    output: Option<File>,
    /// Readable when the shell has ended. `None`: its exit status was collected.
    shell: Option<OwnedFd>,
    /// Readable when there is a request.
    wake: OwnedFd,
    deadline: Option<Instant>,
    grace: Duration,
    phase: Phase,
    /// When to check the processes again, if nothing happens before.
    next_look: Instant,
    buffer: Vec<u8>,
    state: Arc<KeptState>,
    /// How much output was there when it was last kept, and when that was.
    kept: (u64, Instant),
}

#[derive(Clone, Copy)]
enum Phase {
    /// The shell runs.
    Running,
    /// The shell has ended; background processes may still run.
    Left,
    /// All processes got SIGTERM.
    Ending {
        request: EndRequest,
        kill_at: Instant,
    },
    Done,
}

/// What a watcher needs besides the operation.
pub(super) struct Watched {
    pub(super) output: File,
    pub(super) wake: OwnedFd,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) state: Arc<KeptState>,
}

impl Watcher {
    /// Starts the thread.
    pub(super) fn start(operation: Arc<Operation>, watched: Watched) -> io::Result<()> {
        let shell = pidfd_open(operation.tree.root(), PidfdFlags::empty())?;
        let started_at = operation.started_at();
        let name = operation.id().to_string();
        let thread = Self {
            operation,
            output: Some(watched.output),
            shell: Some(shell),
            wake: watched.wake,
            // A timeout beyond the range of the clock means none.
            deadline: watched.timeout.and_then(|timeout| started_at.checked_add(timeout)),
            grace: watched.grace,
            phase: Phase::Running,
            next_look: started_at + RUNNING_INTERVAL,
            buffer: vec![0; BUFFER_BYTES],
            kept: (0, started_at),
            state: watched.state,
        };
        std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || thread.run())?;
        Ok(())
    }

    fn run(mut self) {
        while !matches!(self.phase, Phase::Done) {
            self.sleep();
            let had_output = self.output.is_some();
            self.read_output(BUFFER_BYTES);
            if self.keeping_is_due().is_some_and(|due| due <= Instant::now()) {
                self.keep_output();
            }
            if had_output && self.output.is_none() {
                self.next_look = Instant::now();
            }
            self.phase = match self.phase {
                Phase::Running => self.running(),
                Phase::Left => self.left(),
                Phase::Ending { request, kill_at } => self.ending(request, kill_at),
                Phase::Done => Phase::Done,
            };
        }
    }

    /// Sleeps until something happens or the next check is due.
    fn sleep(&self) {
        let until = match (self.phase, self.deadline) {
            (Phase::Running, Some(deadline)) => deadline.min(self.next_look),
            _ => self.next_look,
        };
        let until = self.keeping_is_due().map_or(until, |due| due.min(until));
        let time = until.saturating_duration_since(Instant::now());
        // The extra microsecond prevents waking early. A wait that is interrupted or fails is only shorter.
        let time = Timespec::try_from(time + Duration::from_micros(1)).ok();
        let mut descriptors = vec![PollFd::new(&self.wake, PollFlags::IN)];
        descriptors.extend(self.output.iter().map(|output| PollFd::new(output, PollFlags::IN)));
        descriptors.extend(self.shell.iter().map(|shell| PollFd::new(shell, PollFlags::IN)));
        let _ = poll(&mut descriptors, time.as_ref());
        // Resets the counter. The request itself is checked next.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// When output that is not kept yet is to be kept.
    fn keeping_is_due(&self) -> Option<Instant> {
        let is_news = || self.operation.progress().capture.total() != self.kept.0;
        (self.state.is_kept() && is_news()).then(|| self.kept.1 + KEEP_INTERVAL)
    }

    fn keep_output(&mut self) {
        let (total, newest) = self.operation.newest_output();
        self.state.operation_output(self.operation.id(), &newest, total);
        self.kept = (total, Instant::now());
    }

    /// Reads available output, at most `limit` bytes. Never blocks.
    fn read_output(&mut self, mut limit: usize) {
        while limit > 0
            && let Some(output) = &mut self.output
        {
            let length = limit.min(self.buffer.len());
            match output.read(&mut self.buffer[..length]) {
                Ok(0) => self.output = None,
                Ok(read) => {
                    self.operation.progress().capture.append(&self.buffer[..read]);
                    limit -= read;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.output = None,
            }
        }
    }

    /// Reads only what was written before this call: a background process may write without end.
    fn drain_output(&mut self) {
        let waiting = self.output.as_ref().and_then(|output| rustix::io::ioctl_fionread(output).ok());
        self.read_output(waiting.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0));
    }

    /// Collects the shell if it has ended.
    fn shell_status(&mut self) -> Option<WaitStatus> {
        self.shell.as_ref()?;
        let status = self.operation.tree.wait_for_root()?;
        self.shell = None;
        Some(status)
    }

    fn running(&mut self) -> Phase {
        if let Some(status) = self.shell_status() {
            self.drain_output();
            self.publish(State::of(status));
            return self.look_again_at_once();
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            let request = EndRequest { state: State::TimedOut, grace: self.grace };
            self.operation.progress().request = Some(request);
        }
        if let Some(ending) = self.begin_ending() {
            return ending;
        }
        if self.next_look <= now {
            tree::reap_orphans();
            self.next_look = now + RUNNING_INTERVAL;
        }
        Phase::Running
    }

    fn left(&mut self) -> Phase {
        // The shell is still here only if it could not be killed in time.
        self.shell_status();
        if let Some(ending) = self.begin_ending() {
            return ending;
        }
        let now = Instant::now();
        if now < self.next_look {
            return Phase::Left;
        }
        self.next_look = now + LEFT_INTERVAL;
        tree::reap_orphans();
        if self.output.is_some() || self.shell.is_some() || self.operation.tree.count() > 0 {
            return Phase::Left;
        }
        self.close()
    }

    /// Ends the thread unless there is a request. Uses one lock, so that no request is lost in between.
    fn close(&self) -> Phase {
        let mut phase = Phase::Left;
        self.operation.change(|progress| {
            if progress.request.is_none() {
                progress.wake = None;
                phase = Phase::Done;
            }
        });
        phase
    }

    fn begin_ending(&mut self) -> Option<Phase> {
        let request = self.operation.progress().request?;
        self.operation.tree.signal(Signal::TERM);
        self.next_look = Instant::now();
        Some(Phase::Ending { request, kill_at: self.next_look + request.grace })
    }

    fn ending(&mut self, request: EndRequest, kill_at: Instant) -> Phase {
        self.shell_status();
        let now = Instant::now();
        if now < self.next_look {
            return Phase::Ending { request, kill_at };
        }
        tree::reap_orphans();
        let (left, interval) = if now < kill_at {
            (self.operation.tree.count(), GRACE_INTERVAL)
        } else {
            (self.operation.tree.signal(Signal::KILL), KILL_INTERVAL)
        };
        self.next_look = now + interval;
        let is_over = left == 0 && self.shell.is_none();
        if !is_over && now < kill_at + KILL_PATIENCE {
            return Phase::Ending { request, kill_at };
        }
        self.drain_output();
        self.publish(request.state);
        self.look_again_at_once()
    }

    /// Publishes the final state. The shell's own end is final; a later request only ends what it left running.
    fn publish(&mut self, state: State) {
        self.keep_end(state);
        let was_asked = matches!(self.phase, Phase::Ending { .. });
        self.operation.change(|progress| {
            if progress.state.is_running() {
                progress.state = state;
                progress.ended_at = Some(Instant::now());
            }
            if was_asked {
                progress.request = None;
            }
        });
    }

    /// Keeps how it ended, and its last output, for a later server.
    fn keep_end(&mut self, state: State) {
        if self.state.is_kept()
            && self.operation.state().is_running()
            && let Some(outcome) = Outcome::of(state)
        {
            self.keep_output();
            let took = u64::try_from(self.operation.started_at().elapsed().as_millis());
            self.state.operation_ended(self.operation.id(), outcome, took.unwrap_or(u64::MAX));
        }
    }

    fn look_again_at_once(&mut self) -> Phase {
        self.next_look = Instant::now();
        Phase::Left
    }
}
