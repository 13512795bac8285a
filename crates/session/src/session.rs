//! One client's conversation: its calls in flight, what it was asked, and the streams it reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use wire::sse::EventId;
use wire::{
    ClientCapabilities, ErrorReply, Id, InitializeParams, Notification, Request, Response, Text, Version,
    code, method,
};

use crate::audit::{AuditEntry, CallOutcome};
use crate::call::{Call, Overdue};
use crate::deployment::Deployment;
use crate::error::{cancelled, session_ended, timed_out};
use crate::gate::Gate;
use crate::inbound::{ask_withdrawn, empty_result};
use crate::quota::Place;
use crate::scope::{Scope, ScopeRefusal};
use crate::settings::{ANSWERED_SOON, ENDED_STREAM_AGE, MAX_ASKS, MAX_ENDED_BYTES, MAX_ENDED_STREAMS};
use crate::stream::{Keep, Stream, StreamReader};
use crate::worker::{Worker, cancellation};
use crate::workers::{Seat, Workers};
use crate::{Handle, Instance, Refusal, SessionId, SessionKey};

/// The stream of messages that belong to no call, which a client reads by GET.
const STANDALONE: u64 = 0;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Deleted,
    /// By the operator.
    Stopped,
    Idle,
    /// Older than a session may become.
    Expired,
    /// The client never finished its handshake.
    NeverInitialized,
    /// The client went away before it had its session id.
    Abandoned,
    /// The upstream is not what the client was told.
    UpstreamChanged,
    ScopeRefused,
    RootsChangeRejected,
    /// The client's roots changed, and it is to start over.
    RootsChanged,
    Shutdown,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Expired => "expired",
            Self::NeverInitialized => "never_initialized",
            Self::Abandoned => "abandoned",
            Self::UpstreamChanged => "upstream_changed",
            Self::ScopeRefused => "scope_refused",
            Self::RootsChangeRejected => "roots_change_rejected",
            Self::RootsChanged => "roots_changed",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Where a message without a stream of its own goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// It probably belongs to the newest call.
    Call,
    Standalone,
}

#[derive(Debug)]
pub struct Session {
    key: SessionKey,
    handle: Handle,
    instance: Instance,
    /// `name/version` of the client, for logs.
    client: String,
    capabilities: ClientCapabilities,
    /// Set once `initialize` was answered; `None` inside if the revision is not one that we know.
    version: OnceLock<Option<Version>>,
    opened: Instant,
    deployment: Arc<Deployment>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) gate: Gate,
    /// Set once and never again.
    scope: OnceLock<Arc<Scope>>,
    seat: OnceLock<Seat>,
    standalone: Arc<Stream>,
    next_stream: AtomicU64,
    calls: AtomicU64,
    errors: AtomicU64,
    state: Mutex<State>,
    /// The place that this session takes among the allowed number.
    place: Place,
}

#[derive(Debug)]
struct State {
    calls: HashMap<Id, Arc<Call>>,
    /// Streams of calls that a client may resume, by number, with the time of their end.
    resumable: BTreeMap<u64, (Arc<Stream>, Option<Instant>)>,
    asks: HashMap<u64, Ask>,
    next_ask: u64,
    is_initialized: bool,
    last_used: Instant,
    ended: Option<EndReason>,
    /// What whoever still uses the session is told, if not that it is unknown.
    last_words: Option<ErrorReply>,
}

/// Something that the client was asked and has not answered.
#[derive(Debug)]
struct Ask {
    kind: AskKind,
    stream: Arc<Stream>,
    asked: Instant,
}

#[derive(Debug)]
pub(crate) enum AskKind {
    /// A request of the upstream.
    Upstream {
        worker: Weak<Worker>,
        id: Id,
        /// The upstream's progress token, if the client may report progress on it.
        progress_token: Option<Id>,
    },
    /// Our own.
    Roots(RootsPurpose),
}

/// What the client is asked its roots for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootsPurpose {
    Lock,
    /// To see whether they are still within the scope.
    Compare,
}

/// What changes all the time, at one moment.
pub(crate) struct Facts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) in_flight: usize,
    pub(crate) idle: Duration,
    pub(crate) has_ended: bool,
}

/// What a session begins with.
pub(crate) struct Beginning {
    pub(crate) key: SessionKey,
    pub(crate) instance: Instance,
    pub(crate) params: InitializeParams,
    pub(crate) gate: Gate,
    pub(crate) place: Place,
}

impl Session {
    pub(crate) fn new(
        deployment: &Arc<Deployment>,
        workers: &Arc<Workers>,
        beginning: Beginning,
    ) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            calls: HashMap::new(),
            resumable: BTreeMap::new(),
            asks: HashMap::new(),
            next_ask: 1,
            is_initialized: false,
            last_used: now,
            ended: None,
            last_words: None,
        };
        let Beginning { key, instance, params, gate, place } = beginning;
        Arc::new(Self {
            handle: key.id.handle(),
            key,
            instance,
            client: params.client,
            capabilities: params.capabilities,
            version: OnceLock::new(),
            opened: now,
            standalone: Stream::new(STANDALONE, false, &deployment.counters),
            deployment: Arc::clone(deployment),
            workers: Arc::clone(workers),
            gate,
            scope: OnceLock::new(),
            seat: OnceLock::new(),
            next_stream: AtomicU64::new(STANDALONE + 1),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            state: Mutex::new(state),
            place,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn id(&self) -> SessionId {
        self.key.id
    }

    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub fn client(&self) -> &str {
        &self.client
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Where the session may write, once that is locked.
    pub fn scope(&self) -> Option<&Arc<Scope>> {
        self.scope.get()
    }

    pub(crate) fn deployment(&self) -> &Arc<Deployment> {
        &self.deployment
    }

    pub(crate) fn standalone(&self) -> &Arc<Stream> {
        &self.standalone
    }

    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.get()
    }

    pub(crate) fn take_seat(&self, seat: Seat) {
        let _ = self.seat.set(seat);
    }

    /// Locks the scope. False: another one was locked before.
    pub(crate) fn note_scope(&self, scope: &Arc<Scope>) -> bool {
        let is_first = self.scope.set(Arc::clone(scope)).is_ok();
        if is_first {
            self.deployment.counters.lock_times.observe(self.opened.elapsed());
            tracing::info!(
                session = %self.handle,
                scope = ?scope.paths(),
                source = scope.source().as_str(),
                "scope locked"
            );
            self.deployment.record(|| AuditEntry::ScopeLocked {
                session: self.handle,
                scope: scope.paths().iter().map(|path| path.to_string_lossy().into_owned().into()).collect(),
                source: scope.source().as_str().into(),
            });
        }
        is_first
    }

    /// The worker of the session, unless there is one for each call.
    fn worker(&self) -> Option<&Arc<Worker>> {
        match self.seat.get() {
            Some(Seat::Worker(worker)) => Some(worker),
            _ => None,
        }
    }

    /// The negotiated revision, if it is one that we know.
    pub fn version(&self) -> Option<Version> {
        self.version.get().copied().flatten()
    }

    pub(crate) fn set_version(&self, version: Option<Version>) {
        let _ = self.version.set(version);
    }

    /// Takes a request of the client; its messages and its answer arrive at the reader.
    pub fn call(self: &Arc<Self>, request: Request) -> Result<StreamReader, Refusal> {
        self.open_call(request, false)
    }

    /// The same for a request that is answered together with others: only the answer arrives here.
    pub fn call_in_batch(self: &Arc<Self>, request: Request) -> Result<StreamReader, Refusal> {
        self.open_call(request, true)
    }

    fn open_call(self: &Arc<Self>, request: Request, answer_only: bool) -> Result<StreamReader, Refusal> {
        if request.method == method::INITIALIZE {
            return Err(Refusal::AlreadyInitialized);
        }
        if request.method == method::PING && self.seat().is_none() && !self.has_ended() {
            return Ok(self.answered(empty_result(&request.id).into()));
        }
        self.place.admit_call()?;
        let stream = self.new_stream(answer_only);
        let reader = stream.attach(None);
        let call = Arc::new(Call::new(self, &request, stream));
        self.register(&call)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.deployment.counters.calls.add();
        self.deployment.pulse.call_began();
        self.submit(call, Box::new(request));
        Ok(reader)
    }

    /// A stream that holds nothing but an answer.
    fn answered(&self, text: Text) -> StreamReader {
        let stream = self.new_stream(true);
        let reader = stream.attach(None);
        stream.answer(text);
        reader
    }

    fn new_stream(&self, answer_only: bool) -> Arc<Stream> {
        Stream::new(self.next_stream.fetch_add(1, Ordering::Relaxed), answer_only, &self.deployment.counters)
    }

    fn register(&self, call: &Arc<Call>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.ended.is_some() {
            drop(state);
            return Err(self.epitaph().unwrap_or(Refusal::SessionNotFound));
        }
        let limit = self.deployment.settings.max_calls;
        if state.calls.len() >= limit {
            return Err(Refusal::TooManyCalls { limit });
        }
        if state.calls.contains_key(&call.client_id) {
            return Err(Refusal::IdInUse(call.client_id.clone()));
        }
        state.last_used = Instant::now();
        state.calls.insert(call.client_id.clone(), Arc::clone(call));
        Ok(())
    }

    /// Takes a notification of the client.
    pub async fn notify(self: &Arc<Self>, notification: &Notification) -> Result<(), Refusal> {
        self.touch();
        match notification.method.as_str() {
            method::INITIALIZED => self.finish_handshake(notification),
            method::CANCELLED => self.cancel(notification),
            method::PROGRESS => self.pass_on_progress(notification),
            method::ROOTS_CHANGED => return self.take_roots_change(notification).await,
            _ => {
                if let Some(worker) = self.worker() {
                    worker.send_if_up(&notification.text());
                }
            }
        }
        Ok(())
    }

    fn finish_handshake(self: &Arc<Self>, notification: &Notification) {
        self.lock().is_initialized = true;
        match self.seat.get() {
            Some(Seat::Worker(worker)) => worker.finish_handshake(notification),
            Some(Seat::PerCall { .. }) => {}
            None => self.note_initialized(notification.text()),
        }
    }

    /// Progress on something that an upstream asked goes to that upstream.
    fn pass_on_progress(&self, progress: &Notification) {
        let token = progress.progress_token();
        let asker = self.lock().asks.values().find_map(|ask| match &ask.kind {
            AskKind::Upstream { worker, progress_token, .. }
                if token.is_some() && *progress_token == token =>
            {
                worker.upgrade()
            }
            _ => None,
        });
        if let Some(worker) = asker {
            worker.send_if_up(&progress.text());
        }
    }

    /// Cancels the one call that the client names; the upstream hears its own id of it.
    fn cancel(&self, notification: &Notification) {
        let Some(id) = notification.cancelled_request() else { return };
        let Some(call) = self.lock().calls.remove(&id) else { return };
        if call.worker().is_none() {
            self.gate.forget(&call);
        }
        if let Some(worker) = call.worker() {
            worker.withdraw(&call, |id| notification.with_cancelled_request(&Id::number(id)).into_bytes());
        }
        call.close(cancelled().to_message(Some(&call.client_id)).into(), CallOutcome::Cancelled);
    }

    /// Takes the client's answer to something that it was asked. Anything else is dropped and counted.
    pub fn answer(self: &Arc<Self>, response: &Response) {
        self.touch();
        let number = response.id.as_number();
        let (ask, was_asked) = {
            let mut state = self.lock();
            let ask = number.and_then(|number| state.asks.remove(&number));
            (ask, number.is_some_and(|number| (1..state.next_ask).contains(&number)))
        };
        match ask.map(|ask| ask.kind) {
            Some(AskKind::Upstream { worker, id, .. }) => {
                if let Some(worker) = worker.upgrade() {
                    worker.answer_ask(&id, &response.with_id(&id).into_bytes());
                }
            }
            Some(AskKind::Roots(RootsPurpose::Lock)) => self.take_roots(response),
            Some(AskKind::Roots(RootsPurpose::Compare)) => self.compare_roots(response),
            None if was_asked => {
                self.deployment.counters.late_answers.add();
                tracing::info!(session = %self.handle, id = ?response.id, "the client answered too late, or twice");
            }
            None => {
                if self.deployment.counters.stray_answers.add_and_should_log() {
                    tracing::warn!(session = %self.handle, id = ?response.id, "the client answered what it was not asked");
                }
            }
        }
    }

    /// Opens the stream of messages that belong to no call, or resumes any stream after an event.
    pub fn listen(&self, after: Option<EventId>) -> Result<StreamReader, Refusal> {
        self.touch();
        if let Some(event) = after.filter(|event| event.stream != STANDALONE) {
            let state = self.lock();
            let (stream, _) = state.resumable.get(&event.stream).ok_or(Refusal::UnknownEvent)?;
            return Ok(stream.attach(Some(event.sequence)));
        }
        let reader = self.standalone.attach(after.map(|event| event.sequence));
        if self.seat().is_none() {
            self.ask_for_roots();
        }
        Ok(reader)
    }

    /// Keeps the stream of a call for a client that learns its event ids.
    pub fn make_resumable(&self, reader: &StreamReader) {
        let stream = reader.stream();
        let mut state = self.lock();
        if state.ended.is_none() {
            state.resumable.insert(stream.number, (Arc::clone(stream), None));
        }
    }

    /// Puts a message where the client will see it soonest.
    pub(crate) fn deliver(&self, text: Text, keep: Keep, prefer: Prefer) {
        self.choose_stream(prefer).push(text, keep);
    }

    pub(crate) fn deliver_progress(&self, call: &Call, text: Text) {
        let stream = if call.stream.answer_only { &self.standalone } else { &call.stream };
        stream.push(text, Keep::IfRoom);
    }

    pub(crate) fn choose_stream(&self, prefer: Prefer) -> Arc<Stream> {
        if prefer == Prefer::Standalone && self.standalone.has_reader() {
            return Arc::clone(&self.standalone);
        }
        let state = self.lock();
        let newest = state
            .calls
            .values()
            .map(|call| &call.stream)
            .filter(|stream| !stream.answer_only && stream.has_reader())
            .max_by_key(|stream| stream.number);
        Arc::clone(newest.unwrap_or(&self.standalone))
    }

    /// Makes room for a request of the upstream and gives it the id that the client will know it by.
    pub(crate) fn prepare_ask(&self, worker: &Arc<Worker>, request: &Request) -> Result<u64, ErrorReply> {
        if !self.capabilities.allow(&request.method) {
            let message = format!("the client did not declare the capability for {}", request.method);
            return Err(ErrorReply::new(code::METHOD_NOT_FOUND, message));
        }
        let stream = self.choose_stream(Prefer::Call);
        let progress_token = request
            .wants_progress()
            .and_then(|token| Id::from_raw(serde_json::from_slice(&token).ok()?).ok());
        let mut state = self.lock();
        if state.ended.is_some() {
            return Err(session_ended());
        }
        if state.asks.len() >= MAX_ASKS {
            return Err(ErrorReply::new(code::SERVER_ERROR, "the client has too many unanswered requests"));
        }
        let kind =
            AskKind::Upstream { worker: Arc::downgrade(worker), id: request.id.clone(), progress_token };
        Ok(state.add_ask(kind, stream))
    }

    pub(crate) fn add_ask(&self, kind: AskKind, stream: &Arc<Stream>) -> u64 {
        self.lock().add_ask(kind, Arc::clone(stream))
    }

    pub(crate) fn is_asked_for_comparison(&self) -> bool {
        let is_for_comparison = |ask: &Ask| matches!(ask.kind, AskKind::Roots(RootsPurpose::Compare));
        self.lock().asks.values().any(is_for_comparison)
    }

    /// Nobody waits for the client's roots any more.
    pub(crate) fn forget_roots_asks(&self) {
        let is_for_lock = |ask: &Ask| matches!(ask.kind, AskKind::Roots(RootsPurpose::Lock));
        self.lock().asks.retain(|_, ask| !is_for_lock(ask));
    }

    pub(crate) fn send_ask(&self, number: u64, request: &Request) {
        if let Some(ask) = self.lock().asks.get(&number) {
            ask.stream.push(request.with_id(&Id::number(number)), Keep::Always);
        }
    }

    /// The upstream took a request back: the client hears so where it heard the request.
    pub(crate) fn withdraw_ask(&self, number: u64, notice: Text) {
        if let Some(ask) = self.lock().asks.remove(&number) {
            let stream = if ask.stream.is_ended() { &self.standalone } else { &ask.stream };
            stream.push(notice, Keep::IfRoom);
        }
    }

    /// The upstream died; nobody waits for the client's answer any more.
    pub(crate) fn retract_ask(&self, number: u64) {
        self.withdraw_ask(number, ask_withdrawn(number));
    }

    /// Ends the wait for a call. False: somebody else did so before.
    pub(crate) fn settle(&self, call: &Arc<Call>) -> bool {
        let mut state = self.lock();
        let is_open = state.calls.get(&call.client_id).is_some_and(|open| Arc::ptr_eq(open, call));
        if is_open {
            state.calls.remove(&call.client_id);
            if let Some((_, ended)) = state.resumable.get_mut(&call.stream.number) {
                let now = Instant::now();
                *ended = Some(now);
                state.forget_old_streams(now);
            }
        }
        is_open
    }

    pub(crate) fn is_open(&self, call: &Arc<Call>) -> bool {
        self.lock().calls.get(&call.client_id).is_some_and(|open| Arc::ptr_eq(open, call))
    }

    fn touch(&self) {
        self.lock().last_used = Instant::now();
    }

    pub(crate) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    pub(crate) fn facts(&self) -> Facts {
        let state = self.lock();
        Facts {
            calls: self.calls.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            in_flight: state.calls.len(),
            idle: state.last_used.elapsed(),
            has_ended: state.ended.is_some(),
        }
    }

    pub(crate) fn note_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.deployment.counters.call_errors.add();
    }

    pub fn calls_in_flight(&self) -> usize {
        self.lock().calls.len()
    }

    /// Looks at every deadline of the session. Says why it must end, if it must.
    pub(crate) fn tick(self: &Arc<Self>, now: Instant) -> Option<EndReason> {
        self.tick_gate(now);
        self.expire_asks(now);
        self.expire_calls(now);
        let settings = &self.deployment.settings;
        let mut state = self.lock();
        if let Some(reason) = state.ended {
            return Some(reason);
        }
        state.forget_old_streams(now);
        let is_in_use = !state.calls.is_empty()
            || self.standalone.has_reader()
            || state.resumable.values().any(|(stream, _)| stream.has_reader());
        if is_in_use {
            state.last_used = now;
        }
        let (age, unused) = (now.duration_since(self.opened), now.duration_since(state.last_used));
        if settings.max_age.is_some_and(|limit| age >= limit) {
            Some(EndReason::Expired)
        } else if !state.is_initialized && unused >= settings.handshake_timeout {
            Some(EndReason::NeverInitialized)
        } else {
            (unused >= settings.idle_timeout).then_some(EndReason::Idle)
        }
    }

    fn expire_calls(&self, now: Instant) {
        let (calls, is_asked) = {
            let state = self.lock();
            let is_asked = state.asks.values().any(|ask| matches!(ask.kind, AskKind::Upstream { .. }));
            (state.calls.values().cloned().collect::<Vec<_>>(), is_asked)
        };
        for call in calls {
            if now.saturating_duration_since(call.began) >= ANSWERED_SOON {
                call.stream.run_late();
            }
            // A person may take a while to answer: time does not count against the call meanwhile.
            if is_asked {
                call.clock().refresh();
            }
            let error = match call.clock().overdue(now, &self.deployment.settings) {
                None => continue,
                Some(Overdue::NoProgress) => {
                    timed_out(self.deployment.settings.timeout, "--timeout", "no answer and no progress for")
                }
                Some(Overdue::TooLong) => {
                    timed_out(self.deployment.settings.max_timeout, "--max-timeout", "it ran for more than")
                }
            };
            self.deployment.counters.timeouts.add();
            tracing::warn!(session = %self.handle, id = ?call.client_id, "{}", error.message);
            if let Some(worker) = call.worker() {
                worker.withdraw(&call, |id| cancellation(id, "timeout"));
            }
            call.fail_as(&error, CallOutcome::Timeout);
        }
    }

    fn expire_asks(self: &Arc<Self>, now: Instant) {
        let limit = |ask: &Ask| match ask.kind {
            AskKind::Roots(RootsPurpose::Compare) => self.deployment.settings.scope_timeout,
            _ => self.deployment.settings.max_timeout,
        };
        let is_old = |ask: &Ask| now.saturating_duration_since(ask.asked) >= limit(ask);
        let old: Vec<u64> =
            self.lock().asks.iter().filter(|(_, ask)| is_old(ask)).map(|(&number, _)| number).collect();
        for number in old {
            let ask = self.lock().asks.remove(&number);
            match ask.map(|ask| ask.kind) {
                Some(AskKind::Upstream { worker, id, .. }) => {
                    let error = ErrorReply::new(code::SERVER_ERROR, "the client did not answer in time");
                    if let Some(worker) = worker.upgrade() {
                        worker.answer_ask(&id, &error.to_message(Some(&id)));
                    }
                }
                Some(AskKind::Roots(RootsPurpose::Compare)) => {
                    let session = Arc::clone(self);
                    tokio::spawn(
                        async move { session.reject_roots_change("roots/list was not answered").await },
                    );
                }
                Some(AskKind::Roots(RootsPurpose::Lock)) | None => {}
            }
        }
    }

    /// Refuses a scope in which another user's session works. One's own may share, and is told so.
    pub(crate) fn check_neighbours(&self, scope: Scope) -> Result<Scope, ScopeRefusal> {
        self.place.check_neighbours(&self.key, scope)
    }

    /// Ends the session: calls in flight get an error, streams end, its processes go.
    pub async fn end(self: &Arc<Self>, reason: EndReason) {
        self.end_with(reason, None).await;
    }

    /// The same, with an error for whoever still uses the session.
    pub(crate) async fn end_with(self: &Arc<Self>, reason: EndReason, last_words: Option<ErrorReply>) {
        let error = last_words.clone().unwrap_or_else(session_ended);
        let (calls, streams) = {
            let mut state = self.lock();
            if state.ended.is_some() {
                return;
            }
            state.ended = Some(reason);
            state.last_words = last_words;
            state.asks.clear();
            (std::mem::take(&mut state.calls), std::mem::take(&mut state.resumable))
        };
        self.gate.close();
        for call in calls.into_values() {
            call.close(error.to_message(Some(&call.client_id)).into(), CallOutcome::Error);
        }
        for (stream, _) in streams.into_values() {
            stream.end();
        }
        self.standalone.end();
        // To the end, also if whoever asked for it does not wait: a process must not be left half-ended.
        let session = Arc::clone(self);
        let _ = tokio::spawn(async move { session.depart(reason).await }).await;
    }

    async fn depart(&self, reason: EndReason) {
        self.leave_seat().await;
        tracing::info!(session = %self.handle, reason = reason.as_str(), "session ended");
        // One that its client never heard of was not opened either.
        if self.version.get().is_none() {
            return;
        }
        self.deployment.record(|| {
            let facts = self.facts();
            AuditEntry::SessionEnded {
                session: self.handle,
                reason: reason.as_str().into(),
                calls: facts.calls,
                errors: facts.errors,
                seconds: self.age().as_secs_f64(),
            }
        });
    }

    async fn leave_seat(&self) {
        match self.seat.get() {
            Some(Seat::Worker(worker)) => worker.leave(self).await,
            Some(Seat::PerCall { running, .. }) => {
                let running = std::mem::take(&mut *running.lock().unwrap_or_else(PoisonError::into_inner));
                for worker in running.iter().filter_map(Weak::upgrade) {
                    worker.stop().await;
                }
            }
            None => {}
        }
    }

    /// What a user of a session that is over hears.
    pub(crate) fn epitaph(&self) -> Option<Refusal> {
        let state = self.lock();
        state.ended?;
        Some(
            state
                .last_words
                .clone()
                .map_or(Refusal::SessionNotFound, |reply| Refusal::Terminated(Box::new(reply))),
        )
    }

    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.lock().ended
    }

    pub(crate) fn last_words(&self) -> Option<ErrorReply> {
        self.lock().last_words.clone()
    }

    pub fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }
}

impl State {
    fn add_ask(&mut self, kind: AskKind, stream: Arc<Stream>) -> u64 {
        let number = self.next_ask;
        self.next_ask += 1;
        self.asks.insert(number, Ask { kind, stream, asked: Instant::now() });
        number
    }

    /// Keeps ended streams for a while, as long as they are few and small.
    fn forget_old_streams(&mut self, now: Instant) {
        for (stream, ended) in self.resumable.values_mut() {
            // A call may have been answered just before its stream was made resumable.
            if ended.is_none() && stream.is_ended() {
                *ended = Some(now);
            }
        }
        let is_old = |ended: Option<Instant>| {
            ended.is_some_and(|ended| now.saturating_duration_since(ended) >= ENDED_STREAM_AGE)
        };
        self.resumable.retain(|_, (_, ended)| !is_old(*ended));
        let (mut count, mut bytes) = (0, 0);
        for (stream, ended) in self.resumable.values() {
            if ended.is_some() {
                count += 1;
                bytes += stream.kept_bytes();
            }
        }
        while count > MAX_ENDED_STREAMS || bytes > MAX_ENDED_BYTES {
            let Some((&oldest, _)) = self.resumable.iter().find(|(_, (_, ended))| ended.is_some()) else {
                return;
            };
            if let Some((stream, _)) = self.resumable.remove(&oldest) {
                count -= 1;
                bytes -= stream.kept_bytes();
            }
        }
    }
}
