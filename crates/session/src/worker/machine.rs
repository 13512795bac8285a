//! The state of one worker: which generation runs, who waits for what, whose each message is.
//!
//! A pure machine: each event is a method that takes the time and returns [`Action`]s, which `worker.rs` performs.
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

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use audit::CallOutcome;
use bytes::Bytes;
use identity::{Handle, SessionId};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use upstream::{End, Lifecycle, MAX_OUTBOX_BYTES, StartError, Transport, Upstream, Urgency};
use wire::{ErrorReply, Id, InitializeResult, LogLevel, Request, Response, Text, method};

use super::circuit_breaker::CircuitBreaker;
use super::client_handle::{ClientHandle, WorkerEvent};
use super::restarts::Restarts;
use super::shared_state::{Admission, Purpose, SharedState};
use crate::client::{Call, Client, Prefer, ReportedFiles};
use crate::error::{not_reading, session_ended, upstream_died};
use crate::messages::{cancellation, empty_result, own_request};
use crate::probe::Advertised;
use crate::scope::Scope;
use crate::settings::MAX_WAITING;

/// What an upstream is greeted with.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// The `initialize` that every generation is greeted with.
    pub(crate) handshake: Arc<Request>,
    /// The `notifications/initialized` that follows it, once it is known.
    pub(crate) initialized: Option<Bytes>,
    /// What the client was told before the worker started.
    pub(crate) advertised: Option<Advertised>,
}

/// What does not change during the life of a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerTerms {
    pub(crate) upstream: Arc<Upstream>,
    /// Where the upstream may write, and what it hears of roots.
    pub(crate) scope: Arc<Scope>,
    /// Clients see this server as it is, so it must stay what they were told.
    pub(crate) is_passed_through: bool,
    /// Whether this server asks for its roots when it starts: learned from probes and earlier generations.
    pub(crate) asks_for_roots: Arc<AtomicBool>,
    pub(crate) verbose_meta: bool,
}

#[derive(Debug)]
pub(crate) struct WorkerMachine {
    pub(super) terms: WorkerTerms,
    link: Link,
    /// Counts the processes that this worker has started.
    generation: u64,
    /// Ids toward the upstream, never used twice, over all generations.
    next_id: u64,
    greeting: Greeting,
    negotiated: Option<Arc<InitializeResult>>,
    pub(super) pending: HashMap<u64, Pending>,
    /// Requests of the upstream that a client has not answered: the upstream's id → the client, and the id there.
    pub(super) server_requests: HashMap<Id, (Arc<Client>, u64)>,
    pub(super) sessions: HashMap<SessionId, ClientHandle>,
    /// Calls that were answered with a task and still report progress: id → whose, under which token.
    pub(super) task_progress: VecDeque<(u64, SessionId, Bytes)>,
    pub(super) shared: SharedState,
    restarts: Restarts,
    pub(super) breaker: CircuitBreaker,
    /// Since when no session uses the worker.
    empty_since: Instant,
    /// Whether this generation was sent a call of a client.
    pub(super) was_called: bool,
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

/// Work that waits for the upstream, bounded in number and bytes.
#[derive(Debug, Default)]
struct Queue {
    items: Vec<Work>,
    bytes: usize,
}

/// Who waits for an answer of the upstream.
#[derive(Debug)]
pub(crate) enum Pending {
    Call(Arc<Call>, Purpose),
    /// The gateway itself; the upstream may be gone before it answers.
    Own(oneshot::Sender<Result<Response, StartError>>),
}

/// What is done as soon as the upstream is up.
#[derive(Debug)]
pub(crate) enum Work {
    Call(Arc<Call>, Box<Request>),
    Ready(oneshot::Sender<Result<Arc<InitializeResult>, StartError>>),
    /// A request of the gateway itself.
    Ask(Box<Question>),
}

#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) answer: oneshot::Sender<Result<Response, StartError>>,
}

/// What the driver must do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Start a generation: launch, greet, report.
    Start {
        generation: u64,
    },
    /// Write a line to the upstream.
    Send(Bytes),
    /// Write a call to the upstream; report back if it does not read.
    SendCall {
        id: u64,
        line: Bytes,
        urgency: Urgency,
    },
    Answer {
        call: Arc<Call>,
        text: Text,
        outcome: CallOutcome,
    },
    Fail {
        call: Arc<Call>,
        error: ErrorReply,
    },
    /// Give a notification to a client.
    Deliver {
        client: Arc<Client>,
        text: Text,
        prefer: Prefer,
    },
    Progress {
        call: Arc<Call>,
        text: Text,
    },
    /// Pass a request of the upstream on to a client.
    AskClient {
        client: Arc<Client>,
        request: Request,
    },
    /// Tell a client to forget a request of the upstream.
    WithdrawRequest {
        client: Arc<Client>,
        number: u64,
        notice: Option<Text>,
    },
    /// Tell the session of a client.
    Tell(ClientHandle, WorkerEvent),
    /// Note a subscription in the session's record.
    Subscription {
        client: Arc<Client>,
        uri: String,
        is_on: bool,
    },
    /// Note a log level in the session's record.
    LogLevel {
        client: Arc<Client>,
        level: LogLevel,
    },
    RecordFiles {
        session: Option<Handle>,
        files: ReportedFiles,
    },
    /// Wait until the upstream has processed its roots, then report `settled`.
    Settle {
        generation: u64,
    },
    /// The upstream asked for its roots and was answered.
    RootsAnswered,
    /// The one call that the worker was for is over.
    Retire,
    Note(Note),
}

/// What is counted, and logged now and then.
#[derive(Debug)]
pub(crate) enum Note {
    LateAnswer,
    StrayAnswer(Id),
    DroppedNotification(String),
    UnattributedRequest { method: String, reason: String },
    RequestIdUsedTwice(Id),
    Died { generation: u64, lost_calls: usize, message: String },
    Contradicted,
}

impl WorkerMachine {
    pub(crate) fn new(terms: WorkerTerms, greeting: Greeting, now: Instant) -> Self {
        Self {
            next_id: first_id(&terms.upstream),
            terms,
            link: Link::Down,
            generation: 0,
            greeting,
            negotiated: None,
            pending: HashMap::new(),
            server_requests: HashMap::new(),
            sessions: HashMap::new(),
            task_progress: VecDeque::new(),
            shared: SharedState::default(),
            restarts: Restarts::default(),
            breaker: CircuitBreaker::default(),
            empty_since: now,
            was_called: false,
        }
    }

    pub(super) fn serves_many(&self) -> bool {
        self.terms.upstream.lifecycle.serves_many()
    }

    fn is_for_one_call(&self) -> bool {
        self.terms.upstream.lifecycle == Lifecycle::Call
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

    /// Whether no process runs or starts.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.link, Link::Down)
    }

    pub(crate) fn handshake(&self) -> Arc<Request> {
        Arc::clone(&self.greeting.handshake)
    }

    /// Whether lines can be written to the upstream beside its handshake.
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up | Link::Settling(_))
    }

    /// Whether an id toward the upstream was ever given out.
    pub(super) fn was_used(&self, id: u64) -> bool {
        id < self.next_id
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The only session, if there is but one.
    pub(crate) fn sole_session(&self) -> Option<&ClientHandle> {
        if self.sessions.len() == 1 { self.sessions.values().next() } else { None }
    }

    pub(crate) fn join(&mut self, handle: ClientHandle) {
        self.sessions.insert(handle.client.id(), handle);
    }

    /// Forgets a session that shared this worker: its calls are cancelled, its requests answered, its subscriptions
    /// ended.
    pub(crate) fn leave(&mut self, session: SessionId, now: Instant) -> Vec<Action> {
        self.sessions.remove(&session);
        self.empty_since = now;
        let unsubscribed = self.shared.forget(session);
        let is_own =
            |pending: &Pending| matches!(pending, Pending::Call(call, _) if call.client.id() == session);
        let abandoned: Vec<u64> =
            self.pending.extract_if(|_, pending| is_own(pending)).map(|(id, _)| id).collect();
        let unanswered: Vec<Id> = self
            .server_requests
            .extract_if(|_, (client, _)| client.id() == session)
            .map(|(id, _)| id)
            .collect();
        if !self.is_connected() {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for id in abandoned {
            actions.push(Action::Send(cancellation(id, "the client ended its session")));
        }
        for id in unanswered {
            actions.push(Action::Send(session_ended().to_message(Some(&id))));
        }
        for uri in unsubscribed {
            actions.push(self.tell(method::UNSUBSCRIBE, &json!({ "uri": uri })));
        }
        actions
    }

    /// Whether no session has used the worker for so long.
    pub(crate) fn is_deserted(&self, after: Duration, now: Instant) -> bool {
        self.sessions.is_empty() && now.saturating_duration_since(self.empty_since) >= after
    }

    /// A request of the gateway itself whose answer does not matter.
    fn tell(&mut self, method: &str, params: &Value) -> Action {
        let id = self.take_id();
        self.pending.insert(id, Pending::Own(oneshot::channel().0));
        Action::Send(own_request(id, method, params).into())
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
        self.was_called = false;
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
                actions.extend(self.retire());
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

    /// Ends a worker that was there for one call, now that the call is over.
    pub(super) fn retire(&self) -> Option<Action> {
        self.is_for_one_call().then_some(Action::Retire)
    }

    fn forward(&mut self, work: Work, now: Instant) -> Vec<Action> {
        match work {
            Work::Ready(sender) => {
                if let Some(result) = &self.negotiated {
                    let _ = sender.send(Ok(Arc::clone(result)));
                }
                Vec::new()
            }
            Work::Ask(question) => {
                let id = self.take_id();
                let Question { method, params, answer } = *question;
                // Those that took too long are not waited for.
                self.pending
                    .retain(|_, pending| !matches!(pending, Pending::Own(asker) if asker.is_closed()));
                self.pending.insert(id, Pending::Own(answer));
                let line = own_request(id, method, &params).into();
                vec![Action::SendCall { id, line, urgency: Urgency::Now }]
            }
            // A call that was cancelled while it waited is not sent.
            Work::Call(call, _) if !call.is_open() => self.retire().into_iter().collect(),
            Work::Call(call, request) => self.forward_call(call, &request, now),
        }
    }

    fn forward_call(&mut self, call: Arc<Call>, request: &Request, now: Instant) -> Vec<Action> {
        let session = call.client.id();
        let admission = self.shared.admit(session, request, self.serves_many());
        let id = self.take_id();
        let mut actions = Vec::new();
        if let Some(uri) = request.uri().filter(|_| request.method == method::UNSUBSCRIBE) {
            actions.push(Action::Subscription { client: Arc::clone(&call.client), uri, is_on: false });
        }
        let (purpose, line) = match admission {
            Admission::Forward(purpose) => (purpose, request.toward_upstream(id)),
            Admission::ForwardLevel { own, upstream } => {
                actions.push(Action::LogLevel { client: Arc::clone(&call.client), level: own });
                (Purpose::Plain, request.with_level(id, upstream))
            }
            Admission::AnswerEmpty => {
                let text = empty_result(&call.client_id).into();
                actions.push(Action::Answer { call, text, outcome: CallOutcome::Ok });
                actions.extend(self.retire());
                return actions;
            }
            Admission::Refuse(error) => {
                actions.push(Action::Fail { call, error });
                actions.extend(self.retire());
                return actions;
            }
        };
        // A call that is alone is written at once; one among others may share a write with them.
        let urgency = if self.pending.is_empty() { Urgency::Now } else { Urgency::WithOthers };
        call.mark_sent(id, now);
        self.was_called = true;
        self.pending.insert(id, Pending::Call(call, purpose));
        actions.push(Action::SendCall { id, line, urgency });
        actions
    }

    /// The upstream does not read its input, and too much waits already.
    pub(crate) fn not_sent(&mut self, id: u64) -> Vec<Action> {
        match self.pending.remove(&id) {
            Some(Pending::Call(call, _)) => {
                let mut actions = vec![Action::Fail { call, error: not_reading() }];
                actions.extend(self.retire());
                actions
            }
            Some(Pending::Own(_)) | None => Vec::new(),
        }
    }

    /// Forgets a request of the gateway itself: an answer that comes later is late, not stray.
    pub(crate) fn forget_request(&mut self, id: u64) {
        self.pending.remove(&id);
    }

    /// The server did not ask for its roots this time: later generations do not wait for that.
    pub(crate) fn forget_roots_habit(&mut self) {
        self.terms.asks_for_roots.store(false, Ordering::Relaxed);
    }

    /// Registers the gateway's own request for `initialize`. Returns the id and where its answer arrives.
    pub(crate) fn begin_greeting(&mut self) -> (u64, oneshot::Receiver<Result<Response, StartError>>) {
        let (sender, receiver) = oneshot::channel();
        let id = self.take_id();
        self.pending.insert(id, Pending::Own(sender));
        (id, receiver)
    }

    /// Whether this generation is still wanted, now that it has a process.
    pub(crate) fn is_starting(&self, generation: u64) -> bool {
        matches!(self.link, Link::Starting(_)) && self.generation == generation
    }

    /// The upstream answered `initialize`.
    pub(crate) fn greeted(&mut self, result: InitializeResult, now: Instant) -> Vec<Action> {
        let Link::Starting(queue) = &mut self.link else { return Vec::new() };
        let queue = std::mem::take(queue);
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
        actions.extend(self.replay());
        let must_settle = self.greeting.initialized.is_some() && self.asks_for_roots();
        if must_settle {
            let (calls, others) = queue.items.into_iter().partition(|work| matches!(work, Work::Call(..)));
            self.link = Link::Settling(Queue { items: calls, bytes: queue.bytes });
            actions.push(Action::Settle { generation: self.generation });
            actions.extend(self.forward_all(others, now));
        } else {
            self.link = Link::Up;
            actions.extend(self.forward_all(queue.items, now));
        }
        actions.extend(self.tell_sessions(&WorkerEvent::CameUp));
        actions
    }

    fn forward_all(&mut self, items: Vec<Work>, now: Instant) -> Vec<Action> {
        items.into_iter().flat_map(|work| self.forward(work, now)).collect()
    }

    fn asks_for_roots(&self) -> bool {
        self.terms.asks_for_roots.load(Ordering::Relaxed)
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
        let again = self.shared.replay();
        again.into_iter().map(|(method, params)| self.tell(method, &params)).collect()
    }

    /// The clients believe something that does not hold: their sessions end, and they begin new ones.
    fn start_over(&mut self, queue: Queue) -> Vec<Action> {
        let mut actions = vec![Action::Note(Note::Contradicted)];
        for work in queue.items {
            actions.extend(self.refuse(work, &StartError::Contradiction));
        }
        actions.extend(self.tell_sessions(&WorkerEvent::Contradicted));
        actions
    }

    pub(super) fn tell_sessions(&self, event: &WorkerEvent) -> Vec<Action> {
        self.sessions.values().map(|handle| Action::Tell(handle.clone(), event.clone())).collect()
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
        let error = upstream_died(end, stderr);
        self.restarts.note_reason(end.map(ToString::to_string).unwrap_or_default(), stderr);
        self.task_progress.clear();
        let pending = std::mem::take(&mut self.pending);
        let message = error.message.clone();
        let mut actions = vec![Action::Note(Note::Died { generation, lost_calls: pending.len(), message })];
        for pending in pending.into_values() {
            match pending {
                Pending::Call(call, _) => {
                    actions.push(Action::Fail { call, error: error.clone() });
                    actions.extend(self.retire());
                }
                Pending::Own(answer) => drop(answer.send(Err(StartError::Stopped))),
            }
        }
        actions.extend(self.withdraw_requests());
        // These were never sent: they wait for the next generation, unless they were cancelled meanwhile.
        for work in waiting {
            match work {
                Work::Call(call, _) if !call.is_open() => actions.extend(self.retire()),
                work => actions.extend(self.submit(work, now)),
            }
        }
        actions
    }

    /// Drops the upstream's requests to clients, which no answer can reach any more.
    fn withdraw_requests(&mut self) -> Vec<Action> {
        let requests = std::mem::take(&mut self.server_requests);
        let withdraw = |(client, number)| Action::WithdrawRequest { client, number, notice: None };
        requests.into_values().map(withdraw).collect()
    }

    /// The client has finished its handshake. Written once per generation, before any later request.
    pub(crate) fn finish_handshake(&mut self, initialized: Bytes) -> Vec<Action> {
        if self.serves_many() || self.greeting.initialized.is_some() {
            return Vec::new();
        }
        self.greeting.initialized = Some(initialized.clone());
        if !matches!(self.link, Link::Up) {
            return Vec::new();
        }
        let mut actions = vec![Action::Send(initialized)];
        if self.asks_for_roots() {
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
        match self.server_requests.remove(upstream_id) {
            Some(_) => self.send_if_up(line),
            None => Vec::new(),
        }
    }

    /// Notes that a client was asked what the upstream wants to know.
    pub(crate) fn request_accepted(&mut self, id: Id, client: Arc<Client>, number: u64) -> Vec<Action> {
        match self.server_requests.insert(id.clone(), (client, number)) {
            Some(_) => vec![Action::Note(Note::RequestIdUsedTwice(id))],
            None => Vec::new(),
        }
    }

    /// Takes a call back: its answer is no longer waited for, and the upstream is told so.
    pub(crate) fn withdraw(&mut self, call: &Call, notice: impl FnOnce(u64) -> Bytes) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(id) = call.sent_as()
            && self.pending.remove(&id).is_some()
        {
            actions.extend(self.send_if_up(notice(id)));
        }
        actions.extend(self.retire());
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
        let level = self.shared.note_level(session, level);
        if self.is_connected() {
            vec![self.tell(method::SET_LEVEL, &json!({ "level": level.as_str() }))]
        } else {
            Vec::new()
        }
    }

    /// Stops for good. Returns whether the upstream was in use, and what follows.
    pub(crate) fn stop(&mut self) -> (bool, Vec<Action>) {
        self.pending.clear();
        self.sessions.clear();
        let was_up = self.is_connected();
        let waiting = match std::mem::replace(&mut self.link, Link::Stopped) {
            Link::Starting(queue) | Link::Settling(queue) => queue.items,
            Link::Down | Link::Up | Link::Stopped => Vec::new(),
        };
        let mut actions = self.withdraw_requests();
        for work in waiting {
            actions.extend(self.refuse(work, &StartError::Stopped));
        }
        // The driver is stopping the worker already.
        actions.retain(|action| !matches!(action, Action::Retire));
        (was_up, actions)
    }

    /// Lets the process go if no session has used it for so long. The next call starts another.
    pub(crate) fn rest(&mut self, after: Duration, now: Instant) -> bool {
        let rests = self.is_deserted(after, now) && self.is_connected();
        if rests {
            self.link = Link::Down;
            // No session is left, so these are questions of the gateway itself.
            self.pending.clear();
        }
        rests
    }
}

impl Queue {
    /// Lets work wait, unless too much waits already.
    fn add(&mut self, work: Work) -> Result<(), Work> {
        let bytes = self.bytes + work.size();
        if self.items.len() >= MAX_WAITING || bytes > MAX_OUTBOX_BYTES {
            return Err(work);
        }
        self.bytes = bytes;
        self.items.push(work);
        Ok(())
    }
}

impl Work {
    fn size(&self) -> usize {
        match self {
            Self::Call(_, request) => request.size(),
            Self::Ready(_) | Self::Ask(_) => 0,
        }
    }
}

/// Another client of the same session at a URL has ids of its own, most probably small ones.
fn first_id(upstream: &Upstream) -> u64 {
    match upstream.transport {
        Transport::Process(_) | Transport::Attached => 1,
        Transport::Http(_) => u64::from(uuid::Uuid::new_v4().as_fields().0) << 16 | 1,
    }
}

#[cfg(test)]
mod tests;
