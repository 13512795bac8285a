//! One client's conversation: its calls in flight, what it was asked, and the streams it reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use wire::sse::EventId;
use wire::{
    ClientCapabilities, ErrorReply, Id, InitializeParams, Notification, Request, Response, Text, Version,
    code, method,
};

use crate::call::{Call, Overdue, Purpose};
use crate::counters::Counters;
use crate::error::{cancelled, session_ended, timed_out};
use crate::inbound::{ask_withdrawn, empty_result};
use crate::pulse::Pulse;
use crate::settings::{
    ANSWERED_SOON, ENDED_STREAM_AGE, MAX_ASKS, MAX_CALLS, MAX_ENDED_BYTES, MAX_ENDED_STREAMS, Settings,
};
use crate::shared_view::Admission;
use crate::stream::{Keep, Stream, StreamReader};
use crate::worker::{Sending, Worker, cancellation};
use crate::{Handle, Refusal, SessionId, SessionKey};

/// The stream of messages that belong to no call, which a client reads by GET.
const STANDALONE: u64 = 0;

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    Deleted,
    Idle,
    /// The client went away before it had its session id.
    Abandoned,
    UpstreamChanged,
    Shutdown,
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
    /// `name/version` of the client, for logs.
    client: String,
    capabilities: ClientCapabilities,
    /// Set once `initialize` was answered; `None` inside if the revision is not one that we know.
    version: OnceLock<Option<Version>>,
    worker: Arc<Worker>,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    pulse: Arc<Pulse>,
    standalone: Arc<Stream>,
    next_stream: AtomicU64,
    state: Mutex<State>,
    /// The place that this session takes among the allowed number.
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct State {
    calls: HashMap<Id, Arc<Call>>,
    /// Streams of calls that a client may resume, by number, with the time of their end.
    resumable: BTreeMap<u64, (Arc<Stream>, Option<Instant>)>,
    asks: HashMap<u64, Ask>,
    next_ask: u64,
    last_used: Instant,
    ended: Option<EndReason>,
}

/// A request of the upstream that the client has not answered.
#[derive(Debug)]
struct Ask {
    upstream_id: Id,
    /// The upstream's progress token, if the client may report progress on it.
    progress_token: Option<Id>,
    stream: Arc<Stream>,
    asked: Instant,
}

impl Session {
    pub(crate) fn new(
        key: SessionKey,
        params: &InitializeParams,
        worker: Arc<Worker>,
        pulse: Arc<Pulse>,
        permit: OwnedSemaphorePermit,
    ) -> Arc<Self> {
        let state = State {
            calls: HashMap::new(),
            resumable: BTreeMap::new(),
            asks: HashMap::new(),
            next_ask: 1,
            last_used: Instant::now(),
            ended: None,
        };
        Arc::new(Self {
            handle: key.id.handle(),
            key,
            client: params.client.clone(),
            capabilities: params.capabilities,
            version: OnceLock::new(),
            settings: Arc::clone(&worker.settings),
            counters: Arc::clone(&worker.counters),
            pulse,
            standalone: Stream::new(STANDALONE, false, &worker.counters),
            worker,
            next_stream: AtomicU64::new(STANDALONE + 1),
            state: Mutex::new(state),
            _permit: permit,
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
        let (purpose, sending) = match self.worker.admit(self.id(), &request) {
            Admission::Forward(purpose) => (purpose, Sending::AsIs),
            Admission::ForwardLevel(level) => (Purpose::Plain, Sending::WithLevel(level)),
            Admission::AnswerEmpty => return Ok(self.answered(empty_result(&request.id).into())),
            Admission::Refuse(error) => return Ok(self.answered(error.to_message(Some(&request.id)).into())),
        };
        let stream = self.new_stream(answer_only);
        let reader = stream.attach(None);
        let call = Arc::new(Call::new(self, &request, stream, purpose));
        self.register(&call)?;
        self.counters.calls.add();
        self.pulse.call_began();
        self.worker.call(call, Box::new(request), sending);
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
        Stream::new(self.next_stream.fetch_add(1, Ordering::Relaxed), answer_only, &self.counters)
    }

    fn register(&self, call: &Arc<Call>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.ended.is_some() {
            return Err(Refusal::SessionNotFound);
        }
        if state.calls.len() >= MAX_CALLS {
            return Err(Refusal::TooManyCalls { limit: MAX_CALLS });
        }
        if state.calls.contains_key(&call.client_id) {
            return Err(Refusal::IdInUse(call.client_id.clone()));
        }
        state.last_used = Instant::now();
        state.calls.insert(call.client_id.clone(), Arc::clone(call));
        Ok(())
    }

    /// Takes a notification of the client.
    pub fn notify(&self, notification: &Notification) {
        self.touch();
        match notification.method.as_str() {
            method::INITIALIZED => self.worker.finish_handshake(notification),
            method::CANCELLED => self.cancel(notification),
            method::PROGRESS if !self.is_asked_for(notification) => {}
            // The roots of one client say nothing about a process that serves all of them.
            method::ROOTS_CHANGED if self.worker.is_shared() => {}
            _ => self.worker.send_if_up(&notification.text()),
        }
    }

    fn is_asked_for(&self, progress: &Notification) -> bool {
        let token = progress.progress_token();
        token.is_some() && self.lock().asks.values().any(|ask| ask.progress_token == token)
    }

    /// Cancels the one call that the client names; the upstream hears its own id of it.
    fn cancel(&self, notification: &Notification) {
        let Some(id) = notification.cancelled_request() else { return };
        let Some(call) = self.lock().calls.remove(&id) else { return };
        self.worker.withdraw(&call, |id| notification.with_cancelled_request(&Id::number(id)).into_bytes());
        call.stream.answer(cancelled().to_message(Some(&call.client_id)).into());
    }

    /// Takes the client's answer to something that it was asked. Anything else is dropped and counted.
    pub fn answer(&self, response: &Response) {
        self.touch();
        let ask = response.id.as_number().and_then(|number| self.lock().asks.remove(&number));
        if let Some(ask) = ask {
            self.worker.answer_ask(&ask.upstream_id, &response.with_id(&ask.upstream_id).into_bytes());
        } else if self.counters.stray_answers.add_and_should_log() {
            tracing::warn!(session = %self.handle, id = ?response.id, "the client answered what it was not asked");
        }
    }

    /// Opens the stream of messages that belong to no call, or resumes any stream after an event.
    pub fn listen(&self, after: Option<EventId>) -> Result<StreamReader, Refusal> {
        self.touch();
        match after {
            None => Ok(self.standalone.attach(None)),
            Some(event) if event.stream == STANDALONE => Ok(self.standalone.attach(Some(event.sequence))),
            Some(event) => {
                let state = self.lock();
                let (stream, _) = state.resumable.get(&event.stream).ok_or(Refusal::UnknownEvent)?;
                Ok(stream.attach(Some(event.sequence)))
            }
        }
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

    fn choose_stream(&self, prefer: Prefer) -> Arc<Stream> {
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
    pub(crate) fn prepare_ask(&self, request: &Request) -> Result<u64, ErrorReply> {
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
        let number = state.next_ask;
        state.next_ask += 1;
        let upstream_id = request.id.clone();
        let ask = Ask { upstream_id, progress_token, stream, asked: Instant::now() };
        state.asks.insert(number, ask);
        Ok(number)
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

    pub fn calls_in_flight(&self) -> usize {
        self.lock().calls.len()
    }

    /// Looks at every deadline of the session. True: it has been idle for too long.
    pub(crate) fn tick(&self, now: Instant) -> bool {
        self.expire_asks(now);
        self.expire_calls(now);
        let mut state = self.lock();
        state.forget_old_streams(now);
        let is_in_use = !state.calls.is_empty()
            || self.standalone.has_reader()
            || state.resumable.values().any(|(stream, _)| stream.has_reader());
        if is_in_use {
            state.last_used = now;
        }
        now.duration_since(state.last_used) >= self.settings.idle_timeout
    }

    fn expire_calls(&self, now: Instant) {
        let (calls, is_asked) = {
            let state = self.lock();
            (state.calls.values().cloned().collect::<Vec<_>>(), !state.asks.is_empty())
        };
        for call in calls {
            if now.saturating_duration_since(call.began) >= ANSWERED_SOON {
                call.stream.run_late();
            }
            // A person may take a while to answer: time does not count against the call meanwhile.
            if is_asked {
                call.clock().refresh();
            }
            let error = match call.clock().overdue(now, &self.settings) {
                None => continue,
                Some(Overdue::NoProgress) => {
                    timed_out(self.settings.timeout, "--timeout", "no answer and no progress for")
                }
                Some(Overdue::TooLong) => {
                    timed_out(self.settings.max_timeout, "--max-timeout", "it ran for more than")
                }
            };
            self.counters.timeouts.add();
            tracing::warn!(session = %self.handle, id = ?call.client_id, "{}", error.message);
            self.worker.withdraw(&call, |id| cancellation(id, "timeout"));
            call.fail(&error);
        }
    }

    fn expire_asks(&self, now: Instant) {
        let is_old = |ask: &Ask| now.duration_since(ask.asked) >= self.settings.max_timeout;
        let old: Vec<u64> =
            self.lock().asks.iter().filter(|(_, ask)| is_old(ask)).map(|(&number, _)| number).collect();
        for number in old {
            let ask = self.lock().asks.remove(&number);
            if let Some(ask) = ask {
                let error = ErrorReply::new(code::SERVER_ERROR, "the client did not answer in time");
                self.worker.answer_ask(&ask.upstream_id, &error.to_message(Some(&ask.upstream_id)));
            }
        }
    }

    /// Ends the session: calls in flight get an error, streams end, its processes go.
    pub async fn end(&self, reason: EndReason) {
        let (calls, streams) = {
            let mut state = self.lock();
            if state.ended.is_some() {
                return;
            }
            state.ended = Some(reason);
            state.asks.clear();
            (std::mem::take(&mut state.calls), std::mem::take(&mut state.resumable))
        };
        for call in calls.into_values() {
            call.stream.answer(session_ended().to_message(Some(&call.client_id)).into());
        }
        for (stream, _) in streams.into_values() {
            stream.end();
        }
        self.standalone.end();
        self.worker.leave(self).await;
        tracing::info!(session = %self.handle, ?reason, "session ended");
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }
}

impl State {
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
