//! One running upstream for one lifecycle key: started when needed, restarted after a crash with the same
//! handshake, and shared by as many sessions as the lifecycle says.

mod generation;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use wire::{Id, InitializeResult, LogLevel, Notification, Request, Response, method};

use crate::call::{Call, Purpose};
use crate::capability_cache::Advertised;
use crate::error::{not_reading, session_ended};
use crate::gateway_context::GatewayContext;
use crate::inbound::empty_result;
use crate::scope::Scope;
use crate::settings::{BREAKER_PAUSE, MAX_UNANSWERED, MAX_WAITING};
use crate::shared_state::{Admission, SharedState};
use crate::{Lifecycle, Session, SessionId, Transport, Upstream};
use audit::CallOutcome;
use upstream::Connection;
use upstream::Urgency;
use upstream::{FenceSlot, MAX_OUTBOX_BYTES, StartError};

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) context: Arc<GatewayContext>,
    pub(crate) upstream: Arc<Upstream>,
    /// Where the upstream may write, and what it hears of roots.
    pub(crate) scope: Arc<Scope>,
    /// Ids toward the upstream, never used twice, over all generations.
    next_id: AtomicU64,
    state: Mutex<State>,
    /// The fence that all generations run in, once there is one.
    fence: FenceSlot,
    /// Held while the process is being ended.
    ending: tokio::sync::Mutex<()>,
}

/// What an upstream is greeted with.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// The `initialize` that every generation is greeted with.
    pub(crate) handshake: Arc<Request>,
    /// The `notifications/initialized` that follows it, if it is known.
    pub(crate) initialized: Option<Bytes>,
    /// What the client was told before.
    pub(crate) advertised: Option<Advertised>,
}

#[derive(Debug)]
pub(crate) struct State {
    link: Link,
    /// Counts the processes that this worker has started.
    generation: u64,
    /// The `initialize` that every generation is greeted with.
    handshake: Arc<Request>,
    /// The `notifications/initialized` that follows it, once it is known.
    initialized: Option<Bytes>,
    advertised: Option<Advertised>,
    negotiated: Option<Arc<InitializeResult>>,
    pub(crate) pending: HashMap<u64, Pending>,
    /// Requests of the upstream that a client has not answered: its id → who was asked, as what.
    pub(crate) server_requests: HashMap<Id, (Weak<Session>, u64)>,
    pub(crate) sessions: HashMap<SessionId, Arc<Session>>,
    /// Calls that were answered with a task and still report progress: id → whose, under which token.
    pub(crate) task_progress: VecDeque<(u64, Weak<Session>, Bytes)>,
    pub(crate) shared: SharedState,
    crashes: u32,
    not_before: Option<Instant>,
    last_stderr: String,
    /// Why the last start or process ended.
    last_failure: String,
    /// Since when nobody sits here.
    empty_since: Instant,
    /// Calls that were given up since the last answer.
    unanswered: u32,
    /// Until when no call is let through, because too many were.
    breaker_open_until: Option<Instant>,
}

#[derive(Debug)]
enum Link {
    Down,
    Starting(Starting),
    Up(Arc<Connection>),
    /// For good.
    Stopped,
}

/// An upstream that has not answered `initialize` yet.
#[derive(Debug, Default)]
struct Starting {
    process: Option<Arc<Connection>>,
    waiting: Vec<Waiting>,
    /// What the waiting requests hold in memory.
    bytes: usize,
}

/// Who waits for an answer of the upstream.
#[derive(Debug)]
pub(crate) enum Pending {
    Call(Arc<Call>, Purpose),
    /// The gateway itself.
    Own(oneshot::Sender<Response>),
    /// The same for a question that may have had to wait for the upstream to start.
    Asked(oneshot::Sender<Result<Response, StartError>>),
}

/// What is done as soon as the upstream is up.
#[derive(Debug)]
enum Waiting {
    Call(Arc<Call>, Box<Request>),
    Ready(oneshot::Sender<Result<Arc<InitializeResult>, StartError>>),
    /// The gateway itself wants to know something.
    Ask(Box<Question>),
}

/// A request of the gateway itself.
#[derive(Debug)]
struct Question {
    method: &'static str,
    params: Value,
    answer: oneshot::Sender<Result<Response, StartError>>,
}

impl Worker {
    /// Nothing runs yet.
    pub(crate) fn new(
        context: &Arc<GatewayContext>,
        upstream: &Arc<Upstream>,
        scope: &Arc<Scope>,
        greeting: Greeting,
    ) -> Arc<Self> {
        let state = State {
            link: Link::Down,
            generation: 0,
            handshake: greeting.handshake,
            initialized: greeting.initialized,
            advertised: greeting.advertised,
            negotiated: None,
            pending: HashMap::new(),
            server_requests: HashMap::new(),
            sessions: HashMap::new(),
            task_progress: VecDeque::new(),
            shared: SharedState::default(),
            crashes: 0,
            not_before: None,
            last_stderr: String::new(),
            last_failure: String::new(),
            empty_since: Instant::now(),
            unanswered: 0,
            breaker_open_until: None,
        };
        Arc::new(Self {
            context: Arc::clone(context),
            upstream: Arc::clone(upstream),
            scope: Arc::clone(scope),
            next_id: AtomicU64::new(first_id(upstream)),
            state: Mutex::new(state),
            fence: FenceSlot::default(),
            ending: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether an id toward the upstream was ever given out.
    pub(crate) fn was_used(&self, id: u64) -> bool {
        id < self.next_id.load(Ordering::Relaxed)
    }

    pub(crate) fn serves_many(&self) -> bool {
        self.upstream.lifecycle.serves_many()
    }

    /// Whether the worker has done its work with one call.
    pub(crate) fn is_for_one_call(&self) -> bool {
        self.upstream.lifecycle == Lifecycle::Call
    }

    /// One that the gateway itself has used up.
    pub(crate) async fn stop_if_for_one_call(&self) {
        if self.is_for_one_call() {
            self.stop().await;
        }
    }

    pub(crate) fn join(&self, session: &Arc<Session>) {
        self.lock().sessions.insert(session.id(), Arc::clone(session));
    }

    /// The session is over: a process of its own ends; a shared one forgets it.
    pub(crate) async fn leave(&self, session: &Session) {
        if self.serves_many() {
            self.forget(session);
        } else {
            self.stop().await;
        }
    }

    fn forget(&self, session: &Session) {
        let mut state = self.lock();
        state.sessions.remove(&session.id());
        state.empty_since = Instant::now();
        let deserted = state.shared.forget(session.id());
        let is_own = |call: &Call| call.session.id() == session.id();
        let abandoned: Vec<u64> = state
            .pending
            .iter()
            .filter_map(|(&id, pending)| {
                matches!(pending, Pending::Call(call, _) if is_own(call)).then_some(id)
            })
            .collect();
        for id in &abandoned {
            state.pending.remove(id);
        }
        let asked = |asker: &Weak<Session>| asker.upgrade().is_none_or(|asked| asked.id() == session.id());
        let unanswered: Vec<Id> = state
            .server_requests
            .iter()
            .filter(|(_, (asker, _))| asked(asker))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &unanswered {
            state.server_requests.remove(id);
        }
        let Link::Up(process) = &state.link else { return };
        for id in abandoned {
            process.send(&cancellation(id, "the client ended its session"));
        }
        for id in unanswered {
            process.send(&session_ended().to_message(Some(&id)));
        }
        let process = Arc::clone(process);
        for uri in deserted {
            self.tell(&mut state, &process, method::UNSUBSCRIBE, &json!({ "uri": uri }));
        }
    }

    /// Sends a request of the gateway itself whose answer does not matter.
    fn tell(&self, state: &mut State, process: &Connection, method: &str, params: &Value) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        state.pending.insert(id, Pending::Own(oneshot::channel().0));
        process.send(&own_request(id, method, params));
    }

    /// Starts the upstream if need be and waits for its answer to `initialize`.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Arc<InitializeResult>, StartError> {
        let (sender, receiver) = oneshot::channel();
        self.submit(Waiting::Ready(sender));
        receiver.await.unwrap_or(Err(StartError::Stopped))
    }

    /// Asks something of the gateway's own; starts the upstream if need be.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        method: &'static str,
        params: Value,
    ) -> Result<Response, StartError> {
        let (answer, receiver) = oneshot::channel();
        self.submit(Waiting::Ask(Box::new(Question { method, params, answer })));
        receiver.await.unwrap_or(Err(StartError::Stopped))
    }

    /// How much a client wants to hear. One that several use logs as much as any of them wants.
    pub(crate) fn tell_level(&self, session: SessionId, level: LogLevel) {
        let mut state = self.lock();
        let level = state.shared.note_level(session, level);
        if let Link::Up(process) = &state.link {
            let process = Arc::clone(process);
            self.tell(&mut state, &process, method::SET_LEVEL, &json!({ "level": level.as_str() }));
        }
    }

    /// What a call may take without an answer or progress.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.upstream.timeouts.call.unwrap_or(self.context.settings.timeout)
    }

    /// The same with progress.
    pub(crate) fn longest_call(&self) -> Duration {
        self.upstream.timeouts.longest_call.unwrap_or(self.context.settings.max_timeout)
    }

    /// A call was given up. After several in a row the upstream is left alone for a while.
    pub(crate) fn note_unanswered(&self) {
        let mut state = self.lock();
        state.unanswered += 1;
        if self.upstream.is_guarded && state.unanswered >= MAX_UNANSWERED {
            state.breaker_open_until = Some(Instant::now() + BREAKER_PAUSE);
        }
    }

    pub(crate) fn call(self: &Arc<Self>, call: Arc<Call>, request: Box<Request>) {
        self.submit(Waiting::Call(call, request));
    }

    /// The client has finished its handshake. Written once per generation, before any later request.
    pub(crate) fn finish_handshake(&self, initialized: &Notification) {
        if self.serves_many() {
            return;
        }
        let mut state = self.lock();
        if state.initialized.is_none() {
            state.initialized = Some(initialized.text());
            if let Link::Up(process) = &state.link {
                process.send(&initialized.text());
            }
        }
    }

    /// Passes a message on if the upstream runs; it is not worth starting one for.
    pub(crate) fn send_if_up(&self, line: &[u8]) {
        if let Link::Up(process) = &self.lock().link {
            process.send(line);
        }
    }

    /// Passes on a client's answer, if the upstream that asked still runs and waits for it.
    pub(crate) fn answer_server_request(&self, upstream_id: &Id, line: &[u8]) {
        let mut state = self.lock();
        if state.server_requests.remove(upstream_id).is_some()
            && let Link::Up(process) = &state.link
        {
            process.send(line);
        }
    }

    /// Takes a call back: its answer is no longer waited for, and the upstream is told so.
    pub(crate) fn withdraw(&self, call: &Call, notice: impl FnOnce(u64) -> Bytes) {
        let Some(id) = call.sent_as() else { return };
        let mut state = self.lock();
        if state.pending.remove(&id).is_some()
            && let Link::Up(process) = &state.link
        {
            process.send(&notice(id));
        }
    }

    fn submit(self: &Arc<Self>, item: Waiting) {
        let mut state = self.lock();
        match &mut state.link {
            Link::Up(process) => {
                let process = Arc::clone(process);
                if let Some(failure) = state.breaker_refusal() {
                    drop(state);
                    return item.refuse(&failure);
                }
                self.forward(&mut state, &process, item);
            }
            Link::Starting(starting) => {
                if let Err(item) = starting.add(item) {
                    drop(state);
                    item.refuse(&StartError::TooManyWaiting);
                }
            }
            Link::Stopped => {
                drop(state);
                item.refuse(&StartError::Stopped);
            }
            Link::Down => {
                if let Some(failure) = state.crash_loop() {
                    drop(state);
                    return item.refuse(&failure);
                }
                state.link = Link::Starting(Starting { waiting: vec![item], ..Starting::default() });
                state.generation += 1;
                tokio::spawn(Arc::clone(self).start(state.generation));
            }
        }
    }

    fn forward(&self, state: &mut State, process: &Connection, item: Waiting) {
        match item {
            Waiting::Ready(sender) => {
                if let Some(result) = &state.negotiated {
                    let _ = sender.send(Ok(Arc::clone(result)));
                }
            }
            Waiting::Ask(question) => {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                let Question { method, params, answer } = *question;
                // Nobody waits any more for those that took too long.
                state
                    .pending
                    .retain(|_, pending| !matches!(pending, Pending::Asked(asker) if asker.is_closed()));
                if process.send_call(&own_request(id, method, &params), Urgency::Now) {
                    state.pending.insert(id, Pending::Asked(answer));
                }
            }
            // A call that was cancelled while it waited is not sent.
            Waiting::Call(call, _) if !call.session.is_open(&call) => call.release(),
            Waiting::Call(call, request) => self.forward_call(state, process, &call, &request),
        }
    }

    fn forward_call(&self, state: &mut State, process: &Connection, call: &Arc<Call>, request: &Request) {
        let session = call.session.id();
        let admission = if self.serves_many() {
            state.shared.admit(session, request)
        } else {
            state.shared.admit_only(session, request)
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (purpose, line) = match admission {
            Admission::Forward(purpose) => (purpose, request.toward_upstream(id)),
            Admission::ForwardLevel(level) => (Purpose::Plain, request.with_level(id, level)),
            Admission::AnswerEmpty => {
                return call.answer(empty_result(&call.client_id).into(), CallOutcome::Ok);
            }
            Admission::Refuse(error) => return call.fail(&error),
        };
        let is_alone = state.pending.is_empty();
        let urgency = if is_alone { Urgency::Now } else { Urgency::WithOthers };
        if process.send_call(&line, urgency) {
            call.mark_sent(id);
            state.pending.insert(id, Pending::Call(Arc::clone(call), purpose));
        } else {
            call.fail(&not_reading());
        }
    }

    /// Ends the process for good, with everything it started.
    pub(crate) async fn stop(&self) {
        // Whoever comes second waits too: the files go when the process has gone.
        let _ending = self.ending.lock().await;
        let (link, asks) = {
            let mut state = self.lock();
            // Calls and routes hold the session, which holds this worker.
            state.pending.clear();
            state.sessions.clear();
            (std::mem::replace(&mut state.link, Link::Stopped), std::mem::take(&mut state.server_requests))
        };
        retract(asks);
        match link {
            Link::Up(process) => process.end(self.context.settings.grace).await,
            Link::Starting(Starting { process, waiting, .. }) => {
                for item in waiting {
                    item.refuse(&StartError::Stopped);
                }
                if let Some(process) = process {
                    process.kill().await;
                }
            }
            Link::Down | Link::Stopped => {}
        }
        self.leave_fence();
    }

    /// Ends the process if nobody has used it for so long; the next call starts another.
    pub(crate) async fn rest(&self, after: Duration) {
        let _ending = self.ending.lock().await;
        let process = {
            let mut state = self.lock();
            if !state.sessions.is_empty() || state.empty_since.elapsed() < after {
                return;
            }
            let Link::Up(process) = &state.link else { return };
            let process = Arc::clone(process);
            state.link = Link::Down;
            process
        };
        tracing::info!(upstream = self.upstream.name, "nobody uses it; it rests");
        process.end(self.context.settings.grace).await;
    }

    /// What the worker is doing, which generation it is in, and its process if it has one.
    pub(crate) fn condition(&self) -> (&'static str, u64, Option<Arc<Connection>>) {
        let state = self.lock();
        let (name, process) = match &state.link {
            Link::Down => ("down", None),
            Link::Starting(starting) => ("starting", starting.process.clone()),
            Link::Up(process) => ("up", Some(Arc::clone(process))),
            Link::Stopped => ("stopped", None),
        };
        (name, state.generation, process)
    }

    /// Whether nobody has sat here for so long.
    pub(crate) fn is_deserted(&self, after: Duration) -> bool {
        let state = self.lock();
        state.sessions.is_empty() && state.empty_since.elapsed() >= after
    }

    /// The files of the fence go, now that nobody is in it.
    fn leave_fence(&self) {
        if let Some(fence) = self.fence.take() {
            self.context.clear_away(fence);
        }
    }
}

impl State {
    /// Why no call is let through now. The first one after the pause shows whether more can be.
    fn breaker_refusal(&mut self) -> Option<StartError> {
        let retry_in = self.breaker_open_until?.checked_duration_since(Instant::now());
        if retry_in.is_none() {
            self.breaker_open_until = None;
        }
        retry_in.map(|retry_in| StartError::NotAnswering { unanswered: self.unanswered, retry_in })
    }

    /// It answers.
    pub(crate) fn note_answer(&mut self) {
        self.unanswered = 0;
        self.breaker_open_until = None;
    }

    pub(crate) fn sole_session(&self) -> Option<&Arc<Session>> {
        if self.sessions.len() == 1 { self.sessions.values().next() } else { None }
    }
}

impl Starting {
    /// Lets an item wait, unless too much waits already.
    fn add(&mut self, item: Waiting) -> Result<(), Waiting> {
        let bytes = self.bytes + item.size();
        if self.waiting.len() >= MAX_WAITING || bytes > MAX_OUTBOX_BYTES {
            return Err(item);
        }
        self.bytes = bytes;
        self.waiting.push(item);
        Ok(())
    }
}

impl Waiting {
    fn size(&self) -> usize {
        match self {
            Self::Call(_, request) => request.size(),
            Self::Ready(_) | Self::Ask(_) => 0,
        }
    }

    fn refuse(self, failure: &StartError) {
        match self {
            Self::Call(call, ..) => {
                call.fail(&failure.reply());
                // It may have been settled before, when it had no worker yet.
                call.release();
            }
            Self::Ready(sender) => drop(sender.send(Err(failure.clone()))),
            Self::Ask(question) => drop(question.answer.send(Err(failure.clone()))),
        }
    }
}

/// Nobody waits any more for what clients were asked.
fn retract(asks: HashMap<Id, (Weak<Session>, u64)>) {
    for (session, number) in asks.into_values() {
        if let Some(session) = session.upgrade() {
            session.retract_server_request(number);
        }
    }
}

/// Whoever else uses the same session of a server elsewhere has ids of its own, most probably small ones.
fn first_id(upstream: &Upstream) -> u64 {
    match upstream.transport {
        Transport::Process(_) | Transport::Attached => 1,
        Transport::Http(_) => u64::from(uuid::Uuid::new_v4().as_fields().0) << 16 | 1,
    }
}

fn own_request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().into_bytes()
}

/// The `notifications/cancelled` for a call that the upstream knows as `id`.
pub(crate) fn cancellation(id: u64, reason: &str) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{reason}"}}}}"#
    )
    .into()
}
