//! One generation of a worker: a process is launched, greeted with the handshake, put to use, and watched to its end.
//! A crash fails the calls in flight; the next call begins another generation, unless they crash one after the other.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::AuditEntry;
use identity::Handle;
use serde_json::Value;
use tokio::task::JoinHandle;
use upstream::{Connection, End, Inbox, Lifecycle, Opening, Received, StartError};
use wire::{InitializeResult, Outcome, Response};

use super::Worker;
use crate::client::state_place;
use crate::scope::ScopeSource;

/// After the process died, what it had written may still be on its way; after its stdout closed, its end.
const LAST_OUTPUT_WITHIN: Duration = Duration::from_millis(500);

/// A server that is known to ask for its roots when it starts has so long to do it.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// After it was told its roots, a server looks at them on its disk before it uses them, and nothing in the protocol
/// says when it is done. It gets this many turns; on a busy machine each lasts as long as the answer to a ping takes.
const TURNS_FOR_ROOTS: u32 = 6;
const TURN: Duration = Duration::from_millis(25);

/// One process of a worker, or one connection to a server, from its launch to its end.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) worker: Arc<Worker>,
    /// The first one is 1.
    pub(super) number: u64,
}

impl Generation {
    pub(super) async fn start(self) {
        let worker = &self.worker;
        let counters = &worker.context.counters;
        counters.worker_starts.add();
        if self.number > 1 {
            counters.worker_restarts.add();
        }
        let began = Instant::now();
        match self.launch().await {
            Ok((connection, result)) => {
                counters.start_times.observe(began.elapsed());
                worker.failures.forget();
                worker.step(|machine, now| machine.greeted(result, now));
                if let Some(end) = connection.has_ended() {
                    // It died right after its answer, before its watcher could know that it was in use.
                    self.note_death(Some(&end), &connection);
                }
            }
            Err(error) => {
                let error = self.with_remedy(error).redacted(&self.worker.upstream.redaction);
                self.log_failure(&error);
                let told = if self.is_shared() { error.without_stderr() } else { error };
                worker.step(|machine, now| machine.start_failed(&told, now));
                self.drop_dead_connection();
            }
        }
    }

    /// Says what to do about a write that the fence refused, if that is why it failed.
    fn with_remedy(&self, error: StartError) -> StartError {
        let worker = &self.worker;
        if worker.fence_kind() == "fenced" { error.with_remedy(&worker.scope.directories) } else { error }
    }

    /// Logs why it did not start, once until it starts or fails for another reason.
    fn log_failure(&self, error: &StartError) {
        let (worker, reason) = (&self.worker, error.explained());
        let hint =
            error.hint().map(|hint| format!("; hint: {}", hint.replace('\n', " "))).unwrap_or_default();
        if worker.failures.is_news(&reason) {
            tracing::error!(upstream = worker.name(), generation = self.number, "{reason}{hint}");
        } else {
            tracing::debug!(upstream = worker.name(), generation = self.number, "again: {reason}");
        }
    }

    async fn launch(&self) -> Result<(Arc<Connection>, InitializeResult), StartError> {
        let (connection, inbox) = self.open().await?;
        let (worker, context) = (&self.worker, &self.worker.context);
        tracing::info!(upstream = worker.name(), pid = connection.pid(), generation = self.number, "started");
        self.record_start(&connection);
        if !self.adopt(&connection) {
            connection.kill().await;
            worker.leave_fence();
            return Err(StartError::Stopped);
        }
        let reader = context.tasks.spawn(self.clone().listen(Arc::clone(&connection), inbox));
        context.watch(self.clone().watch(Arc::clone(&connection), reader));
        let answer = self.greet(&connection).await;
        if answer.is_err() {
            connection.kill().await;
        }
        answer.map(|result| (connection, result))
    }

    /// Starts the process or reaches the server, inside the worker's fence unless the operator wants none.
    async fn open(&self) -> Result<(Arc<Connection>, Inbox), StartError> {
        let worker = &self.worker;
        let is_probe = worker.scope.source == ScopeSource::Nothing;
        let client = worker.core.lock().machine.sole_session().map(|handle| Arc::clone(&handle.client));
        let owner = client.as_ref().filter(|_| !worker.serves_many());
        let opening = Opening {
            upstream: &worker.upstream,
            directories: &worker.scope.directories,
            owner: owner.map(|own| own.as_owner()),
            attachment: client.as_ref().and_then(|client| client.attachment()),
            fence: &worker.fence,
            state: owner.and_then(|own| state_place(own, worker.name())),
            turns: is_probe.then_some(&worker.context.probe_launches),
            max_message: worker.context.settings.max_message,
            connect_timeout: self.start_timeout(),
        };
        opening.open().await
    }

    fn start_timeout(&self) -> Duration {
        self.worker.upstream.timeouts.start.unwrap_or(self.worker.context.settings.start_timeout)
    }

    /// Makes the connection known to [`Worker::stop`]. Returns false if the worker was stopped meanwhile.
    fn adopt(&self, connection: &Arc<Connection>) -> bool {
        let mut core = self.worker.core.lock();
        let is_wanted = core.machine.is_starting(self.number);
        if is_wanted {
            core.connection = Some(Arc::clone(connection));
        }
        is_wanted
    }

    /// Reads the upstream to its end.
    async fn listen(self, connection: Arc<Connection>, inbox: Inbox) {
        let worker = &self.worker;
        let each = |received| match received {
            Received::Line(line) => worker.receive(line),
            Received::Renewed => {
                tracing::info!(
                    upstream = worker.name(),
                    "the server had forgotten its session; it has a new one"
                );
                worker.step(|machine, _| machine.replay());
            }
        };
        connection.listen(inbox, worker.context.settings.max_message, each).await;
    }

    async fn greet(&self, connection: &Connection) -> Result<InitializeResult, StartError> {
        let (id, receiver) = {
            let mut core = self.worker.core.lock();
            let (id, receiver) = core.machine.begin_greeting();
            connection.send(&core.machine.handshake().toward_upstream(id));
            (id, receiver)
        };
        let limit = self.start_timeout();
        let outcome = tokio::select! {
            biased;
            Ok(response) = receiver => response.and_then(|response| read_answer(&response)),
            exit = connection.ended() => {
                Err(StartError::Exited { exit, stderr: connection.stderr_tail(), hint: None })
            }
            () = tokio::time::sleep(limit) => {
                Err(StartError::TimedOut { after: limit, stderr: connection.stderr_tail() })
            }
        };
        self.worker.core.lock().machine.forget_request(id);
        outcome
    }

    /// Waits until a server that asks for its roots when it starts has asked, was answered and has looked at them. Its
    /// first call would otherwise overtake its roots.
    pub(super) async fn settle(self) {
        let worker = &self.worker;
        let mut answered = worker.roots_answered.subscribe();
        let asked = answered.wait_for(|newest| *newest >= self.number);
        if tokio::time::timeout(ASKS_WITHIN, asked).await.is_ok() {
            // The first answer shows that the roots were read, the others that there was time to process them.
            worker.ping().await;
            for _ in 0..TURNS_FOR_ROOTS {
                tokio::time::sleep(TURN).await;
                worker.ping().await;
            }
        } else {
            tracing::debug!(upstream = worker.name(), "it did not ask for its roots this time");
            worker.core.lock().machine.forget_roots_habit();
        }
        worker.step(|machine, now| machine.settled(self.number, now));
    }

    /// Watches one process to its end.
    async fn watch(self, connection: Arc<Connection>, mut reader: JoinHandle<()>) {
        let session = self.session();
        let end = tokio::select! {
            end = connection.ended() => {
                // Answers that it had written before it died still count.
                let _ = tokio::time::timeout(LAST_OUTPUT_WITHIN, &mut reader).await;
                Some(end)
            }
            _ = &mut reader => tokio::time::timeout(LAST_OUTPUT_WITHIN, connection.ended()).await.ok(),
        };
        self.note_death(end.as_ref(), &connection);
        connection.kill().await;
        // It may have been put to use in between.
        self.note_death(connection.has_ended().as_ref(), &connection);
        reader.abort();
        self.record_exit(&connection, session, connection.has_ended().as_ref());
    }

    fn note_death(&self, end: Option<&End>, connection: &Connection) {
        let lived = connection.started.elapsed();
        // What a shared server wrote may be about another principal. The operator's log has it.
        let stderr = if self.is_shared() { String::new() } else { connection.stderr_tail() };
        let end = end.cloned().map(|end| end.redacted(&self.worker.upstream.redaction));
        self.worker.step(|machine, now| machine.died(self.number, end.as_ref(), lived, &stderr, now));
        self.drop_dead_connection();
    }

    /// Whether clients of several principals use the process.
    fn is_shared(&self) -> bool {
        self.worker.upstream.lifecycle == Lifecycle::Shared
    }

    fn drop_dead_connection(&self) {
        let mut core = self.worker.core.lock();
        if core.machine.is_down() {
            core.connection = None;
        }
    }

    /// The only session that uses the worker, if there is but one.
    fn session(&self) -> Option<Handle> {
        self.worker.core.lock().machine.sole_session().map(|handle| handle.client.handle())
    }

    fn record_start(&self, connection: &Connection) {
        self.worker.context.record(|| AuditEntry::WorkerStarted {
            session: self.session(),
            upstream: self.worker.name().into(),
            pid: connection.pid(),
            generation: self.number,
            confinement: connection.confinement().unwrap_or("none").into(),
        });
    }

    fn record_exit(&self, connection: &Connection, session: Option<Handle>, end: Option<&End>) {
        let exit = end.and_then(End::exit);
        self.worker.context.record(|| AuditEntry::WorkerExited {
            session,
            upstream: self.worker.name().into(),
            pid: connection.pid(),
            generation: self.number,
            code: exit.and_then(|exit| exit.status.code()),
            signal: exit.and_then(|exit| exit.status.signal()),
        });
    }
}

fn read_answer(response: &Response) -> Result<InitializeResult, StartError> {
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
