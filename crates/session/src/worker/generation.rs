//! One generation of a worker: a process is started, greeted with the handshake, put to use, and watched to
//! its end. A crash fails what was in flight; the next call begins another generation, unless they crash one
//! after the other.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wire::{InitializeResult, Outcome, Response};

use super::{Link, Pending, State, Waiting, Worker, retract};
use crate::error::upstream_died;
use crate::scope::ScopeSource;
use crate::settings::{CRASH_AGE, FIRST_BACKOFF, MAX_BACKOFF};
use crate::{EndReason, Handle, Session};
use audit::AuditEntry;
use upstream::Transport;
use upstream::{Connection, End, Inbox, Opening, Received};
use upstream::{Owner, StartError};

/// After the process died, what it had written may still be on its way; after its stdout closed, its end.
const SETTLE: Duration = Duration::from_millis(500);

impl Worker {
    pub(super) async fn start(self: Arc<Self>, generation: u64) {
        let counters = &self.context.counters;
        counters.worker_starts.add();
        if generation > 1 {
            counters.worker_restarts.add();
        }
        let began = Instant::now();
        match self.launch(generation).await {
            Ok((process, result)) => {
                counters.start_times.observe(began.elapsed());
                self.come_up(&process, result);
            }
            Err(failure) => self.fail_start(generation, &failure),
        }
    }

    async fn launch(
        self: &Arc<Self>,
        generation: u64,
    ) -> Result<(Arc<Connection>, InitializeResult), StartError> {
        let (process, inbox) = self.begin().await?;
        tracing::info!(upstream = self.upstream.name, pid = process.pid(), generation, "started");
        self.record_start(&process, generation);
        if !self.note_starting(&process) {
            process.kill().await;
            self.leave_fence();
            return Err(StartError::Stopped);
        }
        let reader = tokio::spawn({
            let (worker, process) = (Arc::clone(self), Arc::clone(&process));
            let limit = self.context.settings.max_message;
            async move {
                let each = |heard| match heard {
                    Received::Line(line) => worker.receive(&process, line),
                    Received::Renewed => worker.tell_again(&process),
                };
                process.listen(inbox, limit, each).await;
            }
        });
        tokio::spawn(supervise(Arc::clone(self), Arc::clone(&process), reader, generation));
        let answer = self.greet(&process).await;
        if answer.is_err() {
            process.kill().await;
        }
        answer.map(|result| (process, result))
    }

    fn record_start(&self, process: &Connection, generation: u64) {
        self.context.record(|| AuditEntry::WorkerStarted {
            session: self.lock().sole_session().map(|session| session.handle()),
            upstream: self.upstream.name.as_str().into(),
            pid: process.pid(),
            generation,
            confinement: process.confinement().unwrap_or("none").into(),
        });
    }

    fn record_exit(&self, process: &Connection, generation: u64, session: Option<Handle>, end: Option<&End>) {
        let exit = end.and_then(End::exit);
        self.context.record(|| AuditEntry::WorkerExited {
            session,
            upstream: self.upstream.name.as_str().into(),
            pid: process.pid(),
            generation,
            code: exit.and_then(|exit| exit.status.code()),
            signal: exit.and_then(|exit| exit.status.signal()),
        });
    }

    /// Starts the process or reaches the server, inside the worker's fence unless the operator wants none.
    async fn begin(&self) -> Result<(Arc<Connection>, Inbox), StartError> {
        let is_probe = self.scope.source == ScopeSource::Nothing;
        let attachment = self.lock().sole_session().and_then(|session| session.attachment());
        let opening = Opening {
            upstream: &self.upstream,
            directories: &self.scope.directories,
            owner: self.owner(),
            attachment,
            fence: &self.fence,
            turns: is_probe.then_some(&self.context.probe_launches),
            max_message: self.context.settings.max_message,
            connect_timeout: self.start_timeout(),
        };
        opening.open().await
    }

    fn start_timeout(&self) -> Duration {
        self.upstream.timeouts.start.unwrap_or(self.context.settings.start_timeout)
    }

    /// The session that the worker is for; several may come and go at a shared one.
    fn owner(&self) -> Option<Owner> {
        if self.serves_many() {
            return None;
        }
        let state = self.lock();
        let session = state.sole_session()?;
        Some(Owner { session: session.handle(), instance: session.instance().clone() })
    }

    /// Makes the process known to [`Worker::stop`]. False: the worker was stopped meanwhile.
    fn note_starting(&self, process: &Arc<Connection>) -> bool {
        match &mut self.lock().link {
            Link::Starting(starting) => {
                starting.process = Some(Arc::clone(process));
                true
            }
            _ => false,
        }
    }

    async fn greet(&self, process: &Connection) -> Result<InitializeResult, StartError> {
        let (sender, receiver) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let handshake = {
            let mut state = self.lock();
            state.pending.insert(id, Pending::Own(sender));
            Arc::clone(&state.handshake)
        };
        process.send(&handshake.toward_upstream(id));
        let limit = self.start_timeout();
        let outcome = tokio::select! {
            biased;
            Ok(response) = receiver => read_greeting(&response),
            exit = process.ended() => Err(StartError::Exited { exit, stderr: process.stderr_tail() }),
            () = tokio::time::sleep(limit) => {
                Err(StartError::TimedOut { after: limit, stderr: process.stderr_tail() })
            }
        };
        self.lock().pending.remove(&id);
        outcome
    }

    fn come_up(self: &Arc<Self>, process: &Arc<Connection>, result: InitializeResult) {
        let mut state = self.lock();
        let result = Arc::new(result);
        let told = state.advertised.take();
        let Link::Starting(starting) = &mut state.link else { return };
        let waiting = std::mem::take(&mut starting.waiting);
        let sessions: Vec<_> = state.sessions.values().cloned().collect();
        let is_other = state.negotiated.as_ref().is_some_and(|before| before.version != result.version);
        // Clients of several servers were told nothing about this one in particular.
        let contradicts = sessions.iter().any(|session| session.aggregate().is_none())
            && (is_other || told.is_some_and(|told| !told.holds_for(&result)));
        state.negotiated = Some(result);
        state.link = Link::Up(Arc::clone(process));
        if contradicts {
            drop(state);
            return self.start_over(waiting, sessions);
        }
        if let Some(initialized) = &state.initialized {
            process.send(initialized);
        }
        self.replay(&mut state, process);
        for item in waiting {
            self.forward(&mut state, process, item);
        }
        let generation = state.generation;
        drop(state);
        for aggregate in sessions.iter().filter_map(|session| session.aggregate()) {
            aggregate.came_up(self);
        }
        if let Some(end) = process.has_ended() {
            // It died right after its answer, when it was not in use yet and nobody minded.
            self.fall(generation, Some(&end), process);
        }
    }

    /// What the upstream must hear again: subscriptions, the log level.
    fn replay(&self, state: &mut State, process: &Connection) {
        for (method, params) in state.shared.replay() {
            self.tell(state, process, method, &params);
        }
    }

    /// It has forgotten its session, and was greeted again.
    fn tell_again(&self, process: &Connection) {
        tracing::info!(upstream = self.upstream.name, "it had forgotten its session, and has a new one");
        self.replay(&mut self.lock(), process);
    }

    /// The clients believe something that does not hold: their sessions end, and they begin new ones.
    fn start_over(&self, waiting: Vec<Waiting>, sessions: Vec<Arc<Session>>) {
        tracing::error!(
            upstream = self.upstream.name,
            "the MCP server offers something else than its clients were told; its sessions end"
        );
        for item in waiting {
            item.refuse(&StartError::Contradiction);
        }
        for session in sessions {
            tokio::spawn(async move { session.end(EndReason::UpstreamChanged).await });
        }
    }

    fn fail_start(&self, generation: u64, failure: &StartError) {
        let mut state = self.lock();
        let Link::Starting(starting) = &mut state.link else { return };
        let waiting = std::mem::take(&mut starting.waiting);
        state.link = Link::Down;
        if !matches!(failure, StartError::NotAttached) {
            state.count_crash(Duration::ZERO);
        }
        let stderr = failure.stderr().unwrap_or_default();
        stderr.clone_into(&mut state.last_stderr);
        state.last_failure = failure.to_string();
        drop(state);
        tracing::error!(upstream = self.upstream.name, generation, stderr, "{failure}");
        for item in waiting {
            item.refuse(failure);
        }
    }

    /// The process ended by itself while it was in use.
    fn fall(&self, generation: u64, end: Option<&End>, process: &Connection) {
        let mut state = self.lock();
        if state.generation != generation || !matches!(state.link, Link::Up(_)) {
            return;
        }
        state.link = Link::Down;
        if !matches!(self.upstream.transport, Transport::Attached) {
            state.count_crash(process.started.elapsed());
        }
        state.last_stderr = process.stderr_tail();
        let error = upstream_died(end, &state.last_stderr);
        state.last_failure = end.map(ToString::to_string).unwrap_or_default();
        let pending = std::mem::take(&mut state.pending);
        let asks = std::mem::take(&mut state.server_requests);
        state.task_progress.clear();
        drop(state);
        self.context.counters.worker_deaths.add();
        tracing::error!(
            upstream = self.upstream.name,
            generation,
            lost_calls = pending.len(),
            "{}",
            error.message
        );
        for pending in pending.into_values() {
            match pending {
                Pending::Call(call, _) => call.fail(&error),
                Pending::Asked(answer) => drop(answer.send(Err(StartError::Stopped))),
                Pending::Own(_) => {}
            }
        }
        retract(asks);
    }
}

impl State {
    fn count_crash(&mut self, lived: Duration) {
        self.crashes = if lived < CRASH_AGE { self.crashes + 1 } else { 1 };
        let doublings = self.crashes.saturating_sub(2).min(16);
        let wait = FIRST_BACKOFF.saturating_mul(1 << doublings).min(MAX_BACKOFF);
        self.not_before = (self.crashes >= 2).then(|| Instant::now() + wait);
    }

    /// Whether the upstream must not be started again yet.
    pub(super) fn crash_loop(&self) -> Option<StartError> {
        let retry_in = self.not_before?.checked_duration_since(Instant::now())?;
        Some(StartError::CrashLoop {
            crashes: self.crashes,
            retry_in,
            stderr: self.last_stderr.clone(),
            reason: self.last_failure.clone(),
        })
    }
}

/// Watches one process to its end.
async fn supervise(
    worker: Arc<Worker>,
    process: Arc<Connection>,
    mut reader: JoinHandle<()>,
    generation: u64,
) {
    let session = worker.lock().sole_session().map(|session| session.handle());
    let end = tokio::select! {
        end = process.ended() => {
            // Answers that it had written before it died still count.
            let _ = tokio::time::timeout(SETTLE, &mut reader).await;
            Some(end)
        }
        _ = &mut reader => tokio::time::timeout(SETTLE, process.ended()).await.ok(),
    };
    worker.fall(generation, end.as_ref(), &process);
    process.kill().await;
    // It may have been put to use in between.
    worker.fall(generation, process.has_ended().as_ref(), &process);
    reader.abort();
    worker.record_exit(&process, generation, session, process.has_ended().as_ref());
}

fn read_greeting(response: &Response) -> Result<InitializeResult, StartError> {
    match response.outcome() {
        Outcome::Result(result) => {
            InitializeResult::read(result).map_err(|reason| StartError::BadAnswer { reason })
        }
        Outcome::Error(error) => {
            let error: Value = serde_json::from_str(error).unwrap_or_default();
            let message = error["message"].as_str().unwrap_or("no reason given").to_owned();
            Err(StartError::Refused { message, error })
        }
    }
}
