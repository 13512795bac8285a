//! One generation of a worker: a process is launched, greeted with the handshake, put to use, and watched to its end.
//! A crash fails the calls in flight; the next call begins another generation, unless they crash one after the other.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::AuditEntry;
use identity::Handle;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use upstream::{Connection, End, Inbox, Opening, Owner, Received, StartError};
use wire::{InitializeResult, Outcome, Response, method};

use super::Worker;
use crate::scope::ScopeSource;

/// After the process died, what it had written may still be on its way; after its stdout closed, its end.
const LAST_OUTPUT_WITHIN: Duration = Duration::from_millis(500);

/// A server that is known to ask for its roots when it starts has so long to do it.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// After it was told its roots, a server looks at them on its disk before it uses them.
const PROCESSES_ROOTS_FOR: Duration = Duration::from_millis(25);

/// A server that does not answer a ping by then is put to use all the same.
const PONG_WITHIN: Duration = Duration::from_secs(2);

impl Worker {
    pub(super) async fn start(self: Arc<Self>, generation: u64) {
        let counters = &self.context.counters;
        counters.worker_starts.add();
        if generation > 1 {
            counters.worker_restarts.add();
        }
        let began = Instant::now();
        match self.launch(generation).await {
            Ok((connection, result)) => {
                counters.start_times.observe(began.elapsed());
                self.step(|machine, now| machine.greeted(result, now));
                if let Some(end) = connection.has_ended() {
                    // It died right after its answer, before its watcher could know that it was in use.
                    self.note_death(generation, Some(&end), &connection);
                }
            }
            Err(error) => {
                let stderr = error.stderr().unwrap_or_default();
                tracing::error!(upstream = self.name(), generation, stderr, "{error}");
                self.step(|machine, now| machine.start_failed(&error, now));
                self.drop_dead_connection();
            }
        }
    }

    async fn launch(
        self: &Arc<Self>,
        generation: u64,
    ) -> Result<(Arc<Connection>, InitializeResult), StartError> {
        let (connection, inbox) = self.open().await?;
        tracing::info!(upstream = self.name(), pid = connection.pid(), generation, "started");
        self.record_start(&connection, generation);
        if !self.adopt(&connection, generation) {
            connection.kill().await;
            self.leave_fence();
            return Err(StartError::Stopped);
        }
        let reader = self.context.tasks.spawn(Arc::clone(self).listen(Arc::clone(&connection), inbox));
        self.context.tasks.spawn(Arc::clone(self).watch(Arc::clone(&connection), reader, generation));
        let answer = self.greet(&connection).await;
        if answer.is_err() {
            connection.kill().await;
        }
        answer.map(|result| (connection, result))
    }

    /// Starts the process or reaches the server, inside the worker's fence unless the operator wants none.
    async fn open(&self) -> Result<(Arc<Connection>, Inbox), StartError> {
        let is_probe = self.scope.source == ScopeSource::Nothing;
        let client = self.core.lock().machine.sole_session().map(|handle| Arc::clone(&handle.client));
        let owner = client.as_ref().filter(|_| !self.serves_many());
        let opening = Opening {
            upstream: &self.upstream,
            directories: &self.scope.directories,
            owner: owner.map(|own| Owner { session: own.handle(), instance: own.instance().clone() }),
            attachment: client.as_ref().and_then(|client| client.attachment()),
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

    /// Makes the connection known to [`Worker::stop`]. Returns false if the worker was stopped meanwhile.
    fn adopt(&self, connection: &Arc<Connection>, generation: u64) -> bool {
        let mut core = self.core.lock();
        let is_wanted = core.machine.is_starting(generation);
        if is_wanted {
            core.connection = Some(Arc::clone(connection));
        }
        is_wanted
    }

    /// Reads the upstream to its end.
    async fn listen(self: Arc<Self>, connection: Arc<Connection>, inbox: Inbox) {
        let each = |received| match received {
            Received::Line(line) => self.receive(line),
            Received::Renewed => {
                tracing::info!(
                    upstream = self.name(),
                    "the server had forgotten its session; it has a new one"
                );
                self.step(|machine, _| machine.replay());
            }
        };
        connection.listen(inbox, self.context.settings.max_message, each).await;
    }

    async fn greet(&self, connection: &Connection) -> Result<InitializeResult, StartError> {
        let (id, receiver) = {
            let mut core = self.core.lock();
            let (id, receiver) = core.machine.begin_greeting();
            connection.send(&core.machine.handshake().toward_upstream(id));
            (id, receiver)
        };
        let limit = self.start_timeout();
        let outcome = tokio::select! {
            biased;
            Ok(response) = receiver => response.and_then(|response| read_answer(&response)),
            exit = connection.ended() => {
                Err(StartError::Exited { exit, stderr: connection.stderr_tail() })
            }
            () = tokio::time::sleep(limit) => {
                Err(StartError::TimedOut { after: limit, stderr: connection.stderr_tail() })
            }
        };
        self.core.lock().machine.forget_request(id);
        outcome
    }

    /// Waits until a server that asks for its roots when it starts has asked, was answered and has looked at them. Its
    /// first call would otherwise overtake its roots.
    pub(super) async fn settle(self: Arc<Self>, generation: u64) {
        let mut answered = self.roots_answered.subscribe();
        let asked = answered.wait_for(|newest| *newest >= generation);
        if tokio::time::timeout(ASKS_WITHIN, asked).await.is_ok() {
            // The first answer shows that the roots were read, the second one that there was time to process them.
            self.ping().await;
            tokio::time::sleep(PROCESSES_ROOTS_FOR).await;
            self.ping().await;
        } else {
            tracing::debug!(upstream = self.name(), "it did not ask for its roots this time");
            self.core.lock().machine.forget_roots_habit();
        }
        self.step(|machine, now| machine.settled(generation, now));
    }

    async fn ping(self: &Arc<Self>) {
        let _ = tokio::time::timeout(PONG_WITHIN, self.ask(method::PING, json!({}))).await;
    }

    /// Watches one process to its end.
    async fn watch(
        self: Arc<Self>,
        connection: Arc<Connection>,
        mut reader: JoinHandle<()>,
        generation: u64,
    ) {
        let session = self.core.lock().machine.sole_session().map(|handle| handle.client.handle());
        let end = tokio::select! {
            end = connection.ended() => {
                // Answers that it had written before it died still count.
                let _ = tokio::time::timeout(LAST_OUTPUT_WITHIN, &mut reader).await;
                Some(end)
            }
            _ = &mut reader => tokio::time::timeout(LAST_OUTPUT_WITHIN, connection.ended()).await.ok(),
        };
        self.note_death(generation, end.as_ref(), &connection);
        connection.kill().await;
        // It may have been put to use in between.
        self.note_death(generation, connection.has_ended().as_ref(), &connection);
        reader.abort();
        self.record_exit(&connection, generation, session, connection.has_ended().as_ref());
    }

    fn note_death(self: &Arc<Self>, generation: u64, end: Option<&End>, connection: &Connection) {
        let (lived, stderr) = (connection.started.elapsed(), connection.stderr_tail());
        self.step(|machine, now| machine.died(generation, end, lived, &stderr, now));
        self.drop_dead_connection();
    }

    fn drop_dead_connection(&self) {
        let mut core = self.core.lock();
        if core.machine.is_down() {
            core.connection = None;
        }
    }

    fn record_start(&self, connection: &Connection, generation: u64) {
        self.context.record(|| AuditEntry::WorkerStarted {
            session: self.core.lock().machine.sole_session().map(|handle| handle.client.handle()),
            upstream: self.name().into(),
            pid: connection.pid(),
            generation,
            confinement: connection.confinement().unwrap_or("none").into(),
        });
    }

    fn record_exit(
        &self,
        connection: &Connection,
        generation: u64,
        session: Option<Handle>,
        end: Option<&End>,
    ) {
        let exit = end.and_then(End::exit);
        self.context.record(|| AuditEntry::WorkerExited {
            session,
            upstream: self.name().into(),
            pid: connection.pid(),
            generation,
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
