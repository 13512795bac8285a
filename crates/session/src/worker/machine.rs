//! The state of one worker: which generation runs, and what waits for it.
//!
//! A pure machine: each event is a method that takes the time and returns [`Action`]s, which `worker.rs` performs.
//! [`Routing`] knows what is in flight and to which session each message belongs.
//!
//! ```text
//! Down ──submit──► Starting ──greeted──► Settling ──settled──► Up ──died──► Down
//!                     │ start_failed: waiting work is refused
//!                     ▼
//!                   Down                        stop ──► Stopped (for good)
//! ```
//!
//! Settling is for servers that ask for their roots when they start: calls wait until the answer was processed. Other
//! servers go straight from Starting to Up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use identity::SessionId;
use serde_json::json;
use tokio::sync::oneshot;
use upstream::{End, StartError, Transport};
use wire::{Id, InitializeResult, LineTooLong, LogLevel, Message, Request, Response, method};

use super::action::{Action, Note};
use super::circuit_breaker::CircuitBreaker;
use super::client_handle::{ClientHandle, WorkerEvent};
use super::queue::{Queue, Work};
use super::restarts::Restarts;
use super::routing::Routing;
use super::terms::{Greeting, WorkerTerms};
use crate::client::{Call, Client};
use crate::error::upstream_died;

#[derive(Debug)]
pub(crate) struct WorkerMachine {
    terms: Arc<WorkerTerms>,
    link: Link,
    /// Counts the processes that this worker has started.
    generation: u64,
    greeting: Greeting,
    negotiated: Option<Arc<InitializeResult>>,
    pub(super) routing: Routing,
    restarts: Restarts,
    breaker: CircuitBreaker,
    /// Since when no session uses the worker.
    empty_since: Instant,
}

#[derive(Debug)]
enum Link {
    Down,
    Starting(Queue),
    Settling(Queue),
    Up,
    /// For good.
    Stopped,
}

impl WorkerMachine {
    pub(crate) fn new(terms: WorkerTerms, greeting: Greeting, now: Instant) -> Self {
        let terms = Arc::new(terms);
        Self {
            routing: Routing::new(Arc::clone(&terms)),
            terms,
            link: Link::Down,
            generation: 0,
            greeting,
            negotiated: None,
            restarts: Restarts::default(),
            breaker: CircuitBreaker::default(),
            empty_since: now,
        }
    }

    /// What the worker is doing, for reports, and which generation it is in.
    pub(crate) fn condition(&self) -> (&'static str, u64) {
        let name = match self.link {
            Link::Down => "down",
            Link::Starting(_) => "starting",
            Link::Settling(_) | Link::Up => "up",
            Link::Stopped => "stopped",
        };
        (name, self.generation)
    }

    /// Why no process runs, if the last one failed.
    pub(crate) fn down_reason(&self) -> Option<String> {
        self.is_down().then(|| self.restarts.reason()).flatten()
    }

    /// Whether no process runs or starts.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.link, Link::Down)
    }

    pub(crate) fn handshake(&self) -> Arc<Request> {
        Arc::clone(&self.greeting.handshake)
    }

    /// Whether lines can be written to the upstream beside its handshake.
    fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up | Link::Settling(_))
    }

    /// The only session, if there is but one.
    pub(crate) fn sole_session(&self) -> Option<&ClientHandle> {
        self.routing.sole_session()
    }

    /// Takes in a session. One that was restored brings what its client had asked of the upstream before.
    pub(crate) fn join(&mut self, handle: ClientHandle) -> Vec<Action> {
        let session = handle.client.id();
        let (subscriptions, level) = handle.client.record().wishes_at(&self.terms.upstream.name);
        self.routing.sessions.insert(session, handle);
        let mut actions = Vec::new();
        for uri in subscriptions {
            if self.routing.shared.restore_subscription(session, &uri) && self.is_connected() {
                actions.push(self.routing.tell(method::SUBSCRIBE, &json!({ "uri": uri })));
            }
        }
        if let Some(level) = level {
            actions.extend(self.set_level(session, level));
        }
        actions
    }

    /// Forgets a session that shared this worker.
    pub(crate) fn leave(&mut self, session: SessionId, now: Instant) -> Vec<Action> {
        self.empty_since = now;
        let remains = self.routing.forget_session(session);
        if self.is_connected() { self.routing.clear_away(remains) } else { Vec::new() }
    }

    /// Whether no session has used the worker for so long.
    pub(crate) fn is_deserted(&self, after: Duration, now: Instant) -> bool {
        self.routing.sessions.is_empty() && now.saturating_duration_since(self.empty_since) >= after
    }

    /// Takes work: forwards it, lets it wait, or starts the upstream for it.
    pub(crate) fn submit(&mut self, work: Work, now: Instant) -> Vec<Action> {
        match &mut self.link {
            Link::Up => match self.breaker.refusal(now) {
                Some(refusal) => self.refuse(work, &refusal),
                None => self.forward(work, now),
            },
            Link::Settling(queue) if matches!(work, Work::Call(..)) => match queue.add(work) {
                Ok(()) => Vec::new(),
                Err(work) => self.refuse(work, &StartError::TooManyWaiting),
            },
            Link::Settling(_) => self.forward(work, now),
            Link::Starting(queue) => match queue.add(work) {
                Ok(()) => Vec::new(),
                Err(work) => self.refuse(work, &StartError::TooManyWaiting),
            },
            Link::Stopped => self.refuse(work, &StartError::Stopped),
            Link::Down => match self.restarts.refusal(now) {
                Some(refusal) => self.refuse(work, &refusal),
                None => self.start(work),
            },
        }
    }

    fn start(&mut self, work: Work) -> Vec<Action> {
        let mut queue = Queue::default();
        let overflow = queue.add(work).err();
        self.link = Link::Starting(queue);
        self.generation += 1;
        self.routing.was_called = false;
        let mut actions = vec![Action::Start { generation: self.generation }];
        if let Some(work) = overflow {
            actions.extend(self.refuse(work, &StartError::TooManyWaiting));
        }
        actions
    }

    fn refuse(&self, work: Work, error: &StartError) -> Vec<Action> {
        match work {
            Work::Call(call, _) => {
                let mut actions = vec![Action::Fail { call, error: error.reply() }];
                actions.extend(self.terms.retire());
                actions
            }
            Work::Ready(sender) => {
                let _ = sender.send(Err(error.clone()));
                Vec::new()
            }
            Work::Ask(question) => {
                let _ = question.answer.send(Err(error.clone()));
                Vec::new()
            }
        }
    }

    fn forward(&mut self, work: Work, now: Instant) -> Vec<Action> {
        match work {
            Work::Ready(sender) => {
                if let Some(result) = &self.negotiated {
                    let _ = sender.send(Ok(Arc::clone(result)));
                }
                Vec::new()
            }
            Work::Ask(question) => self.routing.ask(*question),
            // A call that was cancelled while it waited is not sent.
            Work::Call(call, _) if !call.is_open() => self.terms.retire().into_iter().collect(),
            Work::Call(call, request) => self.routing.forward_call(call, &request, now),
        }
    }

    /// Registers the gateway's own request for `initialize`. Returns the id and where its answer arrives.
    pub(crate) fn begin_greeting(&mut self) -> (u64, oneshot::Receiver<Result<Response, StartError>>) {
        let (sender, receiver) = oneshot::channel();
        (self.routing.expect_answer(sender), receiver)
    }

    /// Forgets a request of the gateway itself: an answer that comes later is late, not stray.
    pub(crate) fn forget_request(&mut self, id: u64) {
        self.routing.pending.remove(&id);
    }

    /// The upstream does not read its input, and too much waits already.
    pub(crate) fn not_sent(&mut self, id: u64) -> Vec<Action> {
        self.routing.not_sent(id)
    }

    /// The server did not ask for its roots this time: later generations do not wait for that.
    pub(crate) fn forget_roots_habit(&mut self) {
        self.terms.learn_roots_habit(false);
    }

    /// Whether this generation is still wanted, now that it has a process.
    pub(crate) fn is_starting(&self, generation: u64) -> bool {
        matches!(self.link, Link::Starting(_)) && self.generation == generation
    }

    /// The upstream answered `initialize`.
    pub(crate) fn greeted(&mut self, result: InitializeResult, now: Instant) -> Vec<Action> {
        let Link::Starting(queue) = &mut self.link else { return Vec::new() };
        let queue = std::mem::take(queue);
        self.restarts.forget_reason();
        let result = Arc::new(result);
        let advertised = self.greeting.advertised.take();
        let is_other = self.negotiated.as_ref().is_some_and(|before| before.version != result.version);
        let holds = advertised.is_none_or(|advertised| advertised.holds_for(&result));
        self.negotiated = Some(result);
        if self.terms.is_passed_through && (is_other || !holds) {
            self.link = Link::Up;
            return self.start_over(queue);
        }
        let mut actions = Vec::new();
        actions.extend(self.greeting.initialized.clone().map(Action::Send));
        actions.extend(self.routing.replay());
        let must_settle = self.greeting.initialized.is_some() && self.terms.asks_for_roots();
        if must_settle {
            let (calls, others) = queue.items.into_iter().partition(|work| matches!(work, Work::Call(..)));
            self.link = Link::Settling(Queue { items: calls, bytes: queue.bytes });
            actions.push(Action::Settle { generation: self.generation });
            actions.extend(self.forward_all(others, now));
        } else {
            self.link = Link::Up;
            actions.extend(self.forward_all(queue.items, now));
        }
        actions.extend(self.routing.tell_sessions(&WorkerEvent::CameUp));
        actions
    }

    fn forward_all(&mut self, items: Vec<Work>, now: Instant) -> Vec<Action> {
        items.into_iter().flat_map(|work| self.forward(work, now)).collect()
    }

    /// The upstream has processed its roots, or is not waited for any longer.
    pub(crate) fn settled(&mut self, generation: u64, now: Instant) -> Vec<Action> {
        if self.generation != generation {
            return Vec::new();
        }
        let Link::Settling(queue) = &mut self.link else { return Vec::new() };
        let items = std::mem::take(queue).items;
        self.link = Link::Up;
        self.forward_all(items, now)
    }

    /// What the upstream must hear again: subscriptions, the log level.
    pub(crate) fn replay(&mut self) -> Vec<Action> {
        self.routing.replay()
    }

    /// The clients believe something that does not hold: their sessions end, and they begin new ones.
    fn start_over(&mut self, queue: Queue) -> Vec<Action> {
        let mut actions = vec![Action::Note(Note::Contradicted)];
        for work in queue.items {
            actions.extend(self.refuse(work, &StartError::Contradiction));
        }
        actions.extend(self.routing.tell_sessions(&WorkerEvent::Contradicted));
        actions
    }

    /// The generation never came up.
    pub(crate) fn start_failed(&mut self, error: &StartError, now: Instant) -> Vec<Action> {
        let Link::Starting(queue) = &mut self.link else { return Vec::new() };
        let items = std::mem::take(queue).items;
        self.link = Link::Down;
        if !matches!(error, StartError::NotAttached) {
            self.restarts.count_crash(Duration::ZERO, now);
        }
        self.restarts.note_reason(error.to_string(), error.stderr().unwrap_or_default());
        items.into_iter().flat_map(|work| self.refuse(work, error)).collect()
    }

    /// The process ended by itself while it was in use. Calls in flight fail; they are never sent again.
    pub(crate) fn died(
        &mut self,
        generation: u64,
        end: Option<&End>,
        lived: Duration,
        stderr: &str,
        now: Instant,
    ) -> Vec<Action> {
        if self.generation != generation || !self.is_connected() {
            return Vec::new();
        }
        let waiting = match std::mem::replace(&mut self.link, Link::Down) {
            Link::Settling(queue) => queue.items,
            _ => Vec::new(),
        };
        if !matches!(self.terms.upstream.transport, Transport::Attached) {
            self.restarts.count_crash(lived, now);
        }
        let error = upstream_died(end, stderr, self.terms.hint_on_refused_write(stderr));
        self.restarts.note_reason(end.map(ToString::to_string).unwrap_or_default(), stderr);
        let (lost_calls, failures) = self.routing.fail_all(&error);
        let mut actions = vec![Action::Note(Note::Died { generation, lost_calls, message: error.message })];
        actions.extend(failures);
        // These were never sent: they wait for the next generation, unless they were cancelled meanwhile.
        for work in waiting {
            match work {
                Work::Call(call, _) if !call.is_open() => actions.extend(self.terms.retire()),
                work => actions.extend(self.submit(work, now)),
            }
        }
        actions
    }

    /// Routes one message of the upstream.
    pub(crate) fn receive(&mut self, message: Message, now: Instant) -> Vec<Action> {
        if let Message::Response(response) = &message
            && response.id.as_number().is_some()
        {
            self.breaker.note_answer();
        }
        self.routing.receive(message, now)
    }

    /// A line was too long to be kept; if it was an answer, its call fails.
    pub(crate) fn lose_line(&mut self, line: &LineTooLong) -> Vec<Action> {
        self.routing.lose_line(line)
    }

    /// The client has finished its handshake. Written once per generation, before any later request.
    pub(crate) fn finish_handshake(&mut self, initialized: Bytes) -> Vec<Action> {
        if self.terms.serves_many() || self.greeting.initialized.is_some() {
            return Vec::new();
        }
        self.greeting.initialized = Some(initialized.clone());
        if !matches!(self.link, Link::Up) {
            return Vec::new();
        }
        let mut actions = vec![Action::Send(initialized)];
        if self.terms.asks_for_roots() {
            self.link = Link::Settling(Queue::default());
            actions.push(Action::Settle { generation: self.generation });
        }
        actions
    }

    /// A line for the upstream if it runs; it is not worth starting one for.
    pub(crate) fn send_if_up(&self, line: Bytes) -> Vec<Action> {
        if self.is_connected() { vec![Action::Send(line)] } else { Vec::new() }
    }

    /// Passes on a client's answer, if the upstream that asked still runs and waits for it.
    pub(crate) fn answer_request(&mut self, upstream_id: &Id, line: Bytes) -> Vec<Action> {
        match self.routing.server_requests.remove(upstream_id) {
            Some(_) => self.send_if_up(line),
            None => Vec::new(),
        }
    }

    /// Notes that a client was asked what the upstream wants to know.
    pub(crate) fn request_accepted(&mut self, id: Id, client: Arc<Client>, number: u64) -> Vec<Action> {
        self.routing.request_accepted(id, client, number)
    }

    /// Takes a call back: its answer is no longer waited for, and the upstream is told so.
    pub(crate) fn withdraw(&mut self, call: &Call, notice: impl FnOnce(u64) -> Bytes) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(id) = self.routing.withdraw(call) {
            actions.extend(self.send_if_up(notice(id)));
        }
        actions.extend(self.terms.retire());
        actions
    }

    /// Counts a call that was given up.
    pub(crate) fn note_unanswered(&mut self, now: Instant) {
        if self.terms.upstream.is_guarded {
            self.breaker.note_unanswered(now);
        }
    }

    /// How much a client wants to hear. An upstream of several clients logs as much as any of them wants.
    pub(crate) fn set_level(&mut self, session: SessionId, level: LogLevel) -> Vec<Action> {
        let level = self.routing.shared.note_level(session, level);
        if self.is_connected() { vec![self.routing.tell_level(level)] } else { Vec::new() }
    }

    /// Stops for good. Returns whether the upstream was in use, and what follows.
    pub(crate) fn stop(&mut self) -> (bool, Vec<Action>) {
        self.routing.pending.clear();
        self.routing.sessions.clear();
        let was_up = self.is_connected();
        let waiting = match std::mem::replace(&mut self.link, Link::Stopped) {
            Link::Starting(queue) | Link::Settling(queue) => queue.items,
            Link::Down | Link::Up | Link::Stopped => Vec::new(),
        };
        let mut actions = self.routing.withdraw_requests();
        for work in waiting {
            actions.extend(self.refuse(work, &StartError::Stopped));
        }
        // The driver is stopping the worker already.
        actions.retain(|action| !matches!(action, Action::Retire));
        (was_up, actions)
    }

    /// Whether nothing is under way between the upstream and its client.
    pub(crate) fn can_rest_unattended(&self) -> bool {
        let routing = &self.routing;
        matches!(self.link, Link::Up)
            && routing.pending.is_empty()
            && routing.server_requests.is_empty()
            && routing.task_progress.is_empty()
    }

    /// Lets the process go while its client is gone. The next call starts another.
    pub(crate) fn rest_unattended(&mut self) -> bool {
        let rests = self.can_rest_unattended();
        if rests {
            self.link = Link::Down;
            self.routing.shrink();
        }
        rests
    }

    /// Lets the process go if no session has used it for so long. The next call starts another.
    pub(crate) fn rest(&mut self, after: Duration, now: Instant) -> bool {
        let rests = self.is_deserted(after, now) && self.is_connected();
        if rests {
            self.link = Link::Down;
            // No session is left, so these are questions of the gateway itself.
            self.routing.pending.clear();
        }
        rests
    }
}

#[cfg(test)]
mod tests;
