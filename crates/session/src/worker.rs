//! One running upstream for one lifecycle key: started when needed, restarted after a crash with the same handshake,
//! and shared by as many sessions as the lifecycle says.
//!
//! [`WorkerMachine`] decides; this file performs its [`Action`]s. `generation.rs` launches, greets and watches the
//! processes.

mod action;
mod circuit_breaker;
mod client_handle;
mod from_upstream;
mod generation;
mod machine;
mod own_request;
mod queue;
mod remedy;
mod restarts;
mod routing;
mod shared_state;
mod terms;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use identity::SessionId;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use upstream::{Connection, FenceSlot, Lifecycle, StartError, Transport, Upstream};
use wire::{Id, InitializeResult, LineTooLong, LogLevel, Message, Notification, Request, Response, method};

use self::action::{Action, Note};
pub(crate) use self::client_handle::{ClientHandle, WorkerEvent};
use self::generation::Generation;
use self::machine::WorkerMachine;
use self::own_request::answer_own_request;
use self::queue::{Question, Work};
pub(crate) use self::terms::{Greeting, WorkerTerms};
use crate::client::{Assignment, Call, Client, note_log_level};
use crate::failure_log::FailureLog;
use crate::gateway_context::GatewayContext;
use crate::scope::Scope;
use crate::stream::Keep;
use crate::worker_id::WorkerId;

/// A server that does not answer a ping by then is not waited for.
const PONG_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Worker {
    id: WorkerId,
    context: Arc<GatewayContext>,
    upstream: Arc<Upstream>,
    scope: Arc<Scope>,
    core: Mutex<Core>,
    failures: Arc<FailureLog>,
    /// The fence that all generations run in, once there is one.
    fence: FenceSlot,
    /// Held while the process is being ended.
    ending: tokio::sync::Mutex<()>,
    /// The newest generation whose request for roots was answered.
    roots_answered: watch::Sender<u64>,
}

/// The machine, and the connection that its lines go to. Lines are written under the lock, so they keep their order.
#[derive(Debug)]
struct Core {
    machine: WorkerMachine,
    connection: Option<Arc<Connection>>,
}

impl Worker {
    /// Nothing runs yet.
    pub(crate) fn new(context: &Arc<GatewayContext>, terms: WorkerTerms, greeting: Greeting) -> Arc<Self> {
        Arc::new(Self {
            id: WorkerId::next(),
            context: Arc::clone(context),
            upstream: Arc::clone(&terms.upstream),
            scope: Arc::clone(&terms.scope),
            failures: Arc::clone(&terms.failures),
            core: Mutex::new(Core {
                machine: WorkerMachine::new(terms, greeting, Instant::now()),
                connection: None,
            }),
            fence: FenceSlot::default(),
            ending: tokio::sync::Mutex::default(),
            roots_answered: watch::Sender::new(0),
        })
    }

    pub(crate) fn id(&self) -> WorkerId {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.upstream.name
    }

    pub(crate) fn serves_many(&self) -> bool {
        self.upstream.lifecycle.serves_many()
    }

    /// Whether the worker has done its work with one call.
    pub(crate) fn is_for_one_call(&self) -> bool {
        self.upstream.lifecycle == Lifecycle::Call
    }

    /// How long a call may take without an answer or progress.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.upstream.timeouts.call.unwrap_or(self.context.settings.timeout)
    }

    /// Takes a call of a client; starts the upstream if need be.
    pub(crate) fn call(self: &Arc<Self>, call: Arc<Call>, request: Box<Request>) {
        call.assign(Assignment {
            worker: self.id,
            upstream: Arc::clone(&self.upstream),
            timeout: self.call_timeout(),
            max_timeout: self.upstream.timeouts.longest_call.unwrap_or(self.context.settings.max_timeout),
        });
        self.step(|machine, now| machine.submit(Work::Call(call, request), now));
    }

    /// Starts the upstream if need be and waits for its answer to `initialize`.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Arc<InitializeResult>, StartError> {
        let (sender, receiver) = oneshot::channel();
        self.step(|machine, now| machine.submit(Work::Ready(sender), now));
        receiver.await.unwrap_or(Err(StartError::Stopped))
    }

    /// Asks something of the gateway's own; starts the upstream if need be.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        method: &'static str,
        params: Value,
    ) -> Result<Response, StartError> {
        let (answer, receiver) = oneshot::channel();
        let question = Box::new(Question { method, params, answer });
        self.step(|machine, now| machine.submit(Work::Ask(question), now));
        receiver.await.unwrap_or(Err(StartError::Stopped))
    }

    /// Waits until the upstream has read what it was sent before, but not for long.
    pub(crate) async fn ping(self: &Arc<Self>) {
        let _ = tokio::time::timeout(PONG_WITHIN, self.ask(method::PING, json!({}))).await;
    }

    pub(crate) fn join(self: &Arc<Self>, handle: ClientHandle) {
        self.step(|machine, _| machine.join(handle));
    }

    /// The session is over: a process of its own ends; a shared one forgets it.
    pub(crate) async fn leave(self: &Arc<Self>, session: SessionId) {
        if self.serves_many() {
            self.step(|machine, now| machine.leave(session, now));
        } else {
            self.stop().await;
        }
    }

    /// How much a client wants to hear.
    pub(crate) fn set_level(self: &Arc<Self>, session: SessionId, level: LogLevel) {
        self.step(|machine, _| machine.set_level(session, level));
    }

    /// The client has finished its handshake.
    pub(crate) fn finish_handshake(self: &Arc<Self>, initialized: &Notification) {
        self.step(|machine, _| machine.finish_handshake(initialized.text()));
    }

    /// Passes a message on if the upstream runs; it is not worth starting one for.
    pub(crate) fn send_if_up(self: &Arc<Self>, line: Bytes) {
        self.step(|machine, _| machine.send_if_up(line));
    }

    /// Passes on a client's answer to a request of the upstream.
    pub(crate) fn answer_request(self: &Arc<Self>, upstream_id: &Id, line: Bytes) {
        self.step(|machine, _| machine.answer_request(upstream_id, line));
    }

    /// Takes a call back: its answer is no longer waited for, and the upstream is told so.
    pub(crate) fn withdraw(self: &Arc<Self>, call: &Call, notice: impl FnOnce(u64) -> Bytes) {
        self.step(|machine, _| machine.withdraw(call, notice));
    }

    /// Takes back a call that took too long.
    pub(crate) fn give_up(self: &Arc<Self>, call: &Call) {
        self.step(|machine, now| {
            machine.note_unanswered(now);
            machine.withdraw(call, |id| crate::messages::cancellation(id, "timeout"))
        });
    }

    /// Ends the process for good, with everything it started.
    pub(crate) async fn stop(self: &Arc<Self>) {
        // A second caller waits too: the files go when the process has gone.
        let _ending = self.ending.lock().await;
        match self.close() {
            Some((connection, true)) => connection.end(self.context.settings.grace).await,
            Some((connection, false)) => connection.kill().await,
            None => {}
        }
        self.leave_fence();
    }

    /// Closes the machine for good. Returns the connection that must be ended, and whether it was in use.
    fn close(self: &Arc<Self>) -> Option<(Arc<Connection>, bool)> {
        let mut core = self.core.lock();
        let (was_up, actions) = core.machine.stop();
        let connection = core.connection.take();
        self.perform(core, actions);
        connection.map(|connection| (connection, was_up))
    }

    /// Stops a worker that the gateway itself has used up.
    pub(crate) async fn stop_if_for_one_call(self: &Arc<Self>) {
        if self.is_for_one_call() {
            self.stop().await;
        }
    }

    /// Ends the process if no session has used it for so long; the next call starts another.
    pub(crate) async fn rest(&self, after: Duration) {
        self.rest_if(|machine| machine.rest(after, Instant::now())).await;
    }

    /// Whether a process runs for one session alone.
    pub(crate) fn has_own_process(&self) -> bool {
        let core = self.core.lock();
        let is_process = core.connection.as_ref().is_some_and(|connection| connection.pid().is_some());
        is_process && !self.serves_many()
    }

    /// Whether it is a process for one session alone that has nothing to do.
    pub(crate) fn can_rest_unattended(&self) -> bool {
        self.has_own_process() && self.core.lock().machine.can_rest_unattended()
    }

    /// Ends the process of a session whose client is gone; the next call starts another.
    pub(crate) async fn rest_unattended(&self) {
        self.rest_if(WorkerMachine::rest_unattended).await;
        self.context.note_freed_memory();
    }

    async fn rest_if(&self, rests: impl FnOnce(&mut WorkerMachine) -> bool) {
        let _ending = self.ending.lock().await;
        let connection = {
            let mut core = self.core.lock();
            if rests(&mut core.machine) { core.connection.take() } else { None }
        };
        if let Some(connection) = connection {
            tracing::info!(upstream = self.name(), "not in use; stopping it until the next call");
            connection.end(self.context.settings.grace).await;
        }
    }

    /// State, generation and connection, for reports.
    pub(crate) fn condition(&self) -> (&'static str, u64, Option<Arc<Connection>>) {
        let core = self.core.lock();
        let (state, generation) = core.machine.condition();
        (state, generation, core.connection.clone())
    }

    /// Why the worker has no process, if its last one failed.
    pub(crate) fn down_reason(&self) -> Option<String> {
        self.core.lock().machine.down_reason()
    }

    /// Whether its processes run in a fence, for reports.
    pub(crate) fn fence_kind(&self) -> &'static str {
        match &self.upstream.transport {
            Transport::Process(program) if program.fence.is_some() => "fenced",
            Transport::Process(_) => "unfenced",
            Transport::Http(_) | Transport::Attached => "elsewhere",
        }
    }

    /// Whether no session has used the worker for so long.
    pub(crate) fn is_deserted(&self, after: Duration) -> bool {
        self.core.lock().machine.is_deserted(after, Instant::now())
    }

    /// Clears the files of the fence away, now that no process is in it.
    fn leave_fence(&self) {
        if let Some(fence) = self.fence.take() {
            self.context.clear_away(fence);
        }
    }

    /// Gives the machine an event and performs what follows.
    fn step(self: &Arc<Self>, event: impl FnOnce(&mut WorkerMachine, Instant) -> Vec<Action>) {
        let mut core = self.core.lock();
        let actions = event(&mut core.machine, Instant::now());
        self.perform(core, actions);
    }

    /// Writes lines under the lock, then does the rest without it.
    fn perform(self: &Arc<Self>, mut core: MutexGuard<'_, Core>, actions: Vec<Action>) {
        let Core { machine, connection } = &mut *core;
        let mut unsent = Vec::new();
        for action in &actions {
            match action {
                Action::Send(line) => {
                    if let Some(connection) = connection {
                        connection.send(line);
                    }
                }
                Action::SendCall { id, line, urgency } => {
                    let is_sent = connection.as_ref().is_some_and(|it| it.send_call(line, *urgency));
                    if !is_sent {
                        unsent.extend(machine.not_sent(*id));
                    }
                }
                _ => {}
            }
        }
        drop(core);
        for action in actions.into_iter().chain(unsent) {
            self.perform_one(action);
        }
    }

    fn generation(self: &Arc<Self>, number: u64) -> Generation {
        Generation { worker: Arc::clone(self), number }
    }

    fn perform_one(self: &Arc<Self>, action: Action) {
        match action {
            Action::Send(_) | Action::SendCall { .. } => {}
            Action::Start { generation } => {
                self.context.tasks.spawn(self.generation(generation).start());
            }
            Action::Answer { call, text, outcome } => call.answer(text, outcome),
            Action::Fail { call, error } => call.fail(&error),
            Action::Deliver { client, text, prefer } => client.deliver(text, Keep::IfRoom, prefer),
            Action::Progress { call, text } => call.deliver_progress(text),
            Action::AskClient { client, request } => self.ask_client(&client, &request),
            Action::AnswerItself { client, request } => {
                let worker = Arc::clone(self);
                self.context.tasks.spawn(async move {
                    let answer = answer_own_request(&worker.context, &client, &request).await;
                    worker.send_if_up(answer);
                });
            }
            Action::WithdrawRequest { client, number, notice } => client.withdraw_request(number, notice),
            Action::Tell(handle, event) => handle.tell(event),
            Action::Subscription { client, uri, is_on } => client.note_subscription(self.name(), &uri, is_on),
            Action::LogLevel { client, level } => note_log_level(&client, level),
            Action::RecordFiles { session, files } => {
                for operation in &files.operations {
                    self.context.record(|| operation.entry(session, &self.upstream, &files.tool));
                }
            }
            Action::Settle { generation } => {
                self.context.tasks.spawn(self.generation(generation).settle());
            }
            Action::RootsAnswered => {
                let generation = self.core.lock().machine.condition().1;
                self.roots_answered.send_replace(generation);
            }
            Action::Retire => {
                let worker = Arc::clone(self);
                self.context.tasks.spawn(async move { worker.stop().await });
            }
            Action::Note(note) => self.note(note),
        }
    }

    /// Passes a request of the upstream on to a client, or refuses it in the client's place.
    fn ask_client(self: &Arc<Self>, client: &Arc<Client>, request: &Request) {
        match client.accept_request(self.id, request) {
            Ok(number) => {
                let (id, known) = (request.id.clone(), Arc::clone(client));
                self.step(|machine, _| machine.request_accepted(id, known, number));
                client.send_request(number, request);
            }
            Err(refusal) => {
                let line = refusal.to_message(Some(&request.id));
                self.step(|_, _| vec![Action::Send(line)]);
            }
        }
    }

    fn note(&self, note: Note) {
        let (counters, upstream) = (&self.context.counters, self.name());
        match note {
            Note::LateAnswer => counters.late_answers.add(),
            Note::StrayAnswer(id) => {
                if counters.stray_answers.add_and_should_log() {
                    tracing::warn!(upstream, ?id, "the MCP server answered a request that was never sent");
                }
            }
            Note::DroppedNotification(method) => {
                counters.dropped_notifications.add();
                tracing::debug!(upstream, method, "dropped: it belongs to no session");
            }
            Note::UnattributedRequest { method, reason } => {
                if counters.unattributed_requests.add_and_should_log() {
                    tracing::warn!(upstream, method, "{reason}");
                }
            }
            Note::RequestIdUsedTwice(id) => {
                tracing::warn!(upstream, ?id, "the MCP server used a request id twice");
            }
            Note::Died { generation, lost_calls, message } => {
                counters.worker_deaths.add();
                tracing::error!(upstream, generation, lost_calls, "{message}");
            }
            Note::RefusedWrite(hint) => {
                if self.failures.is_news(&hint) {
                    tracing::warn!(upstream, "{hint}");
                }
            }
            Note::Contradicted => tracing::error!(
                upstream,
                "the MCP server offers something else than its clients were told; their sessions end"
            ),
        }
    }

    /// Routes one line of the upstream's stdout.
    fn receive(self: &Arc<Self>, line: Result<Bytes, LineTooLong>) {
        let line = match line {
            Ok(line) if line.is_empty() => return,
            Ok(line) => line,
            Err(too_long) => {
                if self.context.counters.bad_lines.add_and_should_log() {
                    tracing::error!(upstream = self.name(), "stdout: {too_long}; it was dropped");
                }
                return self.step(|machine, _| machine.lose_line(&too_long));
            }
        };
        match Message::parse(line.clone()) {
            Ok(message) => self.step(|machine, now| machine.receive(message, now)),
            Err(error) => {
                if self.context.counters.bad_lines.add_and_should_log() {
                    let start = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
                    let upstream = self.name();
                    tracing::warn!(upstream, start, "stdout held a line that is no MCP message: {error}");
                }
            }
        }
    }
}
