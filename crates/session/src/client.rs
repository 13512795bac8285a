//! One client as its workers see it: the calls in flight, what it was asked, and the streams it reads.
//!
//! This is the narrow handle between the two halves of a session. A worker answers calls and delivers messages here;
//! it knows nothing of gates, routes or scopes. A client knows workers by id only.

mod attachment_slot;
mod call;
mod call_record;
mod context;
mod keeping;
mod restored;
mod server_requests;
mod state;
mod streams;
mod verbose_meta;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use audit::CallOutcome;
use bytes::Bytes;
use identity::{Handle, Instance, RecordKey, SessionId};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use upstream::{Attachment, Owner};
use wire::sse::EventId;
use wire::{ClientCapabilities, ErrorReply, Id, InitializeParams, Request, Response, Text, code, method};

use self::attachment_slot::AttachmentSlot;
use self::call::Overdue;
pub(crate) use self::call::{Assignment, Call};
pub(crate) use self::call_record::{ReportedFiles, outcome_of};
pub use self::context::ContextReport;
pub(crate) use self::context::update_context;
use self::keeping::note_agent;
pub(crate) use self::keeping::{note, note_log_level, save, state_place};
pub(crate) use self::restored::{Restored, take_over};
use self::server_requests::RequestLimits;
pub(crate) use self::server_requests::{Answered, RootsPurpose, ServerRequest, ServerRequestKind};
use self::state::State;
pub(crate) use self::verbose_meta::with_instance;
use crate::error::{Refusal, cancelled, session_ended, timed_out};
use crate::gateway_context::GatewayContext;
use crate::messages::request_withdrawn;
use crate::record::{EndReason, SessionEnd, SessionRecord, Subscription};
use crate::scope::Scope;
use crate::settings::{ANSWERED_SOON, MAX_SERVER_REQUESTS, Settings};
use crate::stream::{Keep, Stream, StreamReader};
use crate::worker_id::WorkerId;

/// Which stream a message without a call of its own goes to first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// The newest call, to which it probably belongs.
    Call,
    Standalone,
}

#[derive(Debug)]
pub(crate) struct Client {
    context: Arc<GatewayContext>,
    id: SessionId,
    handle: Handle,
    /// The name of the session in the store.
    pub(crate) record_key: RecordKey,
    instance: Instance,
    opened: Instant,
    record: Mutex<SessionRecord>,
    /// What the client can be asked. One whose session was opened for it may still say so.
    capabilities: Mutex<ClientCapabilities>,
    /// The client's machine, while it is connected.
    attachment: AttachmentSlot,
    calls: AtomicU64,
    errors: AtomicU64,
    state: Mutex<State>,
}

/// What changes all the time, at one moment.
pub(crate) struct Activity {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) in_flight: usize,
    pub(crate) idle: Duration,
    pub(crate) age: Duration,
}

/// What one look at the deadlines found.
#[derive(Debug, Default)]
pub(crate) struct Overdues {
    /// Calls that were given up, each with its error.
    pub(crate) calls: Vec<(Arc<Call>, ErrorReply)>,
    pub(crate) server_requests: Vec<ServerRequestKind>,
    /// Why the session must end.
    pub(crate) end: Option<EndReason>,
    /// The client seems to be gone.
    pub(crate) is_deserted: bool,
    /// The client was there since the store was last told of it.
    pub(crate) is_use_news: bool,
}

impl Client {
    pub(crate) fn new(
        context: &Arc<GatewayContext>,
        record: SessionRecord,
        capabilities: ClientCapabilities,
        now: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            id: record.key.id,
            handle: record.key.id.handle(),
            record_key: record.key.record_key(),
            instance: record.instance.clone(),
            opened: opened_at(&record, now),
            state: Mutex::new(State::new(&context.counters, record.epoch, now)),
            record: Mutex::new(record),
            capabilities: Mutex::new(capabilities),
            attachment: AttachmentSlot::default(),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        })
    }

    pub(crate) fn context(&self) -> &Arc<GatewayContext> {
        &self.context
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// The session as its own processes are told of it.
    pub(crate) fn as_owner(&self) -> Owner {
        let principal = self.record().key.principal.clone();
        let scope_source = self.scope().map(|scope| scope.source().as_str());
        Owner { principal, session: self.handle, instance: self.instance.clone(), scope_source }
    }

    pub(crate) fn instance(&self) -> &Instance {
        &self.instance
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, SessionRecord> {
        self.record.lock()
    }

    pub(crate) fn scope(&self) -> Option<Arc<Scope>> {
        self.record.lock().scope.clone()
    }

    pub(crate) fn attachment(&self) -> Option<Arc<Attachment>> {
        self.attachment.get()
    }

    pub(crate) fn attachment_slot(&self) -> &AttachmentSlot {
        &self.attachment
    }

    /// Lets the client say `initialize` once more.
    pub(crate) fn expect_initialize(&self) {
        *self.capabilities.lock() = ClientCapabilities::default();
        self.record.lock().expects_initialize = true;
    }

    /// Takes the `initialize` of a client whose session was opened before.
    pub(crate) fn initialize_late(&self, request: &Request) -> Result<InitializeParams, Refusal> {
        let params = InitializeParams::read(request.params()).map_err(Refusal::BadInitialize)?;
        if !std::mem::take(&mut self.record.lock().expects_initialize) {
            return Err(Refusal::AlreadyInitialized);
        }
        note_agent(self, &params.client);
        *self.capabilities.lock() = params.capabilities;
        Ok(params)
    }

    pub(crate) fn note_initialized(&self) {
        self.state.lock().is_initialized = true;
    }

    /// Takes a request of the client; its messages and its answer arrive at the reader.
    pub(crate) fn begin_call(
        self: &Arc<Self>,
        request: &Request,
        answer_only: bool,
    ) -> Result<(Arc<Call>, StreamReader), Refusal> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if let Some(end) = &state.end {
            return Err(end.refusal());
        }
        let limit = self.context.settings.max_calls;
        if state.calls.len() >= limit {
            return Err(Refusal::TooManyCalls { limit });
        }
        if state.calls.contains_key(&request.id) {
            return Err(Refusal::IdInUse(request.id.clone()));
        }
        let stream = state.streams.for_call(answer_only);
        let reader = stream.attach(None);
        let call = Arc::new(Call::new(self, request, stream, now));
        state.last_used = now;
        state.calls.insert(request.id.clone(), Arc::clone(&call));
        drop(state);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.context.counters.calls.add();
        Ok((call, reader))
    }

    /// A stream that holds nothing but an answer.
    pub(crate) fn answered(&self, text: Text) -> StreamReader {
        let stream = self.state.lock().streams.for_call(true);
        let reader = stream.attach(None);
        stream.answer(text);
        reader
    }

    pub(crate) fn is_open(&self, call: &Arc<Call>) -> bool {
        self.state.lock().is_open(call)
    }

    /// Answers a call, unless it was answered or given up before.
    pub(crate) fn answer(&self, call: &Arc<Call>, text: Text, outcome: CallOutcome) {
        let mut state = self.state.lock();
        if !state.is_open(call) {
            return;
        }
        state.calls.remove(&call.client_id);
        let number = call.stream.number;
        if state.streams.is_of_a_call(number) {
            if note_answer(call, &text) {
                state.streams.note_stored(number);
            }
            state.streams.call_ended(number, Instant::now());
        }
        let text = if outcome == CallOutcome::Ok { state.with_restored_note(text) } else { text };
        drop(state);
        self.close_call(call, text, outcome);
    }

    /// Gives the answer of a call that was taken off the table.
    fn close_call(&self, call: &Call, text: Text, outcome: CallOutcome) {
        let took = call.began.elapsed();
        self.context.counters.call_times.observe(took);
        if matches!(outcome, CallOutcome::Error | CallOutcome::Timeout) {
            self.errors.fetch_add(1, Ordering::Relaxed);
            self.context.counters.call_errors.add();
        }
        if let Some(record) = call.record() {
            let upstream = call.assignment().map(|assignment| &*assignment.upstream);
            self.context.record(|| record.entry(self.handle, upstream, outcome, took, text.len()));
        }
        call.stream.answer(text);
    }

    /// Takes back the call that the client names, and answers it. Returns it so that its worker can be told.
    pub(crate) fn cancel(&self, id: &Id) -> Option<Arc<Call>> {
        let call = self.state.lock().calls.remove(id)?;
        self.context.durable.call_over(self.record_key, call.stream.number);
        self.close_call(&call, cancelled().to_message(Some(id)).into(), CallOutcome::Cancelled);
        Some(call)
    }

    /// Keeps the stream of a call for a client that learns its event ids.
    pub(crate) fn make_resumable(&self, reader: &StreamReader) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        let stream = reader.stream();
        state.streams.make_resumable(stream);
        let running = state.calls.values().find(|call| Arc::ptr_eq(&call.stream, stream));
        if let Some(lost) = running.and_then(|call| call.as_lost()) {
            self.context.durable.call_streams(self.record_key, stream.number, lost);
        }
    }

    /// Opens the stream of messages that belong to no call, or resumes any stream after an event.
    pub(crate) fn listen(
        &self,
        client: Option<&Instance>,
        after: Option<EventId>,
    ) -> Result<StreamReader, Refusal> {
        if let Some(other) = client.filter(|other| **other != self.instance) {
            note_agent(self, &format!("window {other}"));
        }
        let is_opener =
            client == Some(&self.instance) || client.is_none() && !self.record.lock().is_instance_named;
        let now = Instant::now();
        let mut state = self.state.lock();
        state.last_used = now;
        if let Some(event) = after {
            let stream = state.streams.resume(event.stream).ok_or(Refusal::UnknownEvent)?;
            return Ok(stream.attach(Some(event.sequence)));
        }
        Ok(state.streams.listen(client, is_opener, now)?.attach(None))
    }

    pub(crate) fn is_of_a_call(&self, stream: u64) -> bool {
        self.state.lock().streams.is_of_a_call(stream)
    }

    /// Where the client is most likely to hear what belongs to no call.
    pub(crate) fn standalone(&self) -> Arc<Stream> {
        self.state.lock().streams.standalone(Instant::now())
    }

    /// Puts a message where the client will see it soonest.
    pub(crate) fn deliver(&self, text: Text, keep: Keep, prefer: Prefer) {
        let state = self.state.lock();
        let is_news = (prefer, keep) == (Prefer::Standalone, Keep::IfRoom);
        if is_news && state.streams.has_others() {
            return state.streams.broadcast(&text);
        }
        let stream = state.choose_stream(prefer);
        drop(state);
        stream.push(text, keep);
    }

    /// Asks the client for its roots on a stream.
    pub(crate) fn request_roots(&self, stream: Option<Arc<Stream>>, purpose: RootsPurpose) {
        let mut state = self.state.lock();
        let stream = stream.unwrap_or_else(|| state.choose_stream(Prefer::Call));
        let kind = ServerRequestKind::Roots(purpose);
        let number = state.server_requests.add(kind, Arc::clone(&stream), Instant::now());
        drop(state);
        let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{}"}}"#, method::ROOTS_LIST);
        stream.push(Bytes::from(text).into(), Keep::Always);
    }

    /// Makes room for a request of a worker's upstream. Returns the id that the client will know it by.
    pub(crate) fn accept_request(&self, worker: WorkerId, request: &Request) -> Result<u64, ErrorReply> {
        if !self.capabilities.lock().allow(&request.method) {
            let message = format!("the client did not declare the capability for {}", request.method);
            return Err(ErrorReply::new(code::METHOD_NOT_FOUND, message));
        }
        let progress_token = request
            .wants_progress()
            .and_then(|token| Id::from_raw(serde_json::from_slice(&token).ok()?).ok());
        let mut state = self.state.lock();
        if state.end.is_some() {
            return Err(session_ended());
        }
        if state.server_requests.len() >= MAX_SERVER_REQUESTS {
            return Err(ErrorReply::new(code::SERVER_ERROR, "the client has too many unanswered requests"));
        }
        let stream = state.stream_of(worker);
        let kind = ServerRequestKind::Upstream { worker, id: request.id.clone(), progress_token };
        Ok(state.server_requests.add(kind, stream, Instant::now()))
    }

    /// Sends a request for which [`Client::accept_request`] made room.
    pub(crate) fn send_request(&self, number: u64, request: &Request) {
        let stream = self.state.lock().server_requests.stream_of(number).cloned();
        if let Some(stream) = stream {
            stream.push(request.with_id(&Id::number(number)), Keep::Always);
        }
    }

    /// Takes a request back and tells the client so, where it heard the request. Without a `notice`, its worker is
    /// gone.
    pub(crate) fn withdraw_request(&self, number: u64, notice: Option<Text>) {
        let mut state = self.state.lock();
        let Some(ServerRequest { stream, .. }) = state.server_requests.withdraw(number) else { return };
        let stream = if stream.is_ended() { state.streams.standalone(Instant::now()) } else { stream };
        drop(state);
        stream.push(notice.unwrap_or_else(|| request_withdrawn(number)), Keep::IfRoom);
    }

    /// Takes the client's answer to a request.
    pub(crate) fn take_answer(&self, response: &Response) -> Answered {
        self.touch();
        self.state.lock().server_requests.answer(&response.id)
    }

    pub(crate) fn worker_for_progress(&self, token: &Id) -> Option<WorkerId> {
        self.state.lock().server_requests.worker_for_progress(token)
    }

    pub(crate) fn is_asked_for(&self, purpose: RootsPurpose) -> bool {
        self.state.lock().server_requests.is_asked_for(purpose)
    }

    pub(crate) fn forget_lock_requests(&self) {
        self.state.lock().server_requests.forget_lock_requests();
    }

    /// Notes that the client is there.
    pub(crate) fn touch(&self) {
        self.state.lock().last_used = Instant::now();
    }

    pub(crate) fn activity(&self) -> Activity {
        let state = self.state.lock();
        Activity {
            calls: self.calls.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            in_flight: state.calls.len(),
            idle: state.last_used.elapsed(),
            age: self.opened.elapsed(),
        }
    }

    /// Remembers a subscription, for as long as the session lasts.
    pub(crate) fn note_subscription(&self, server: &str, uri: &str, is_on: bool) {
        let subscription = Subscription { server: server.to_owned(), uri: uri.to_owned() };
        let mut record = self.record.lock();
        if is_on {
            record.subscriptions.insert(subscription);
        } else {
            record.subscriptions.remove(&subscription);
        }
        drop(record);
        note(self);
    }

    /// Looks at every deadline. Answering overdue calls and telling their workers is left to the caller.
    pub(crate) fn expire(&self, now: Instant) -> Overdues {
        let settings = &self.context.settings;
        let limits = RequestLimits { upstream: settings.max_timeout, compare: settings.scope_timeout };
        let mut state = self.state.lock();
        let server_requests = state.server_requests.expire(now, limits);
        let is_asked = state.server_requests.has_upstream_request();
        let calls: Vec<_> = state.calls.values().cloned().collect();
        let end = state.overdue_end(now, self.opened, settings);
        let is_deserted = state.is_deserted(now, settings);
        let is_use_news = state.take_use_news();
        for number in state.streams.take_forgotten() {
            self.context.durable.call_over(self.record_key, number);
        }
        drop(state);
        let overdue = calls.into_iter().filter_map(|call| {
            let error = overdue(&call, is_asked, settings, now)?;
            self.context.counters.timeouts.add();
            tracing::warn!(session = %self.handle, id = ?call.client_id, "{}", error.message);
            Some((call, error))
        });
        Overdues { calls: overdue.collect(), server_requests, end, is_deserted, is_use_news }
    }

    /// Lets go of what a client that seems to be gone can do without. Returns false if there is nothing to do.
    pub(crate) fn shed(&self, now: Instant) -> bool {
        self.state.lock().shed(now, &self.context.settings)
    }

    /// Ends the conversation: calls in flight get an error, streams end. Returns false if it had ended before.
    pub(crate) fn end(&self, end: SessionEnd) -> bool {
        let error = end.error.clone().unwrap_or_else(session_ended);
        let mut state = self.state.lock();
        if state.end.is_some() {
            return false;
        }
        state.end = Some(end.clone());
        state.server_requests.clear();
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        for call in calls.into_values() {
            self.close_call(&call, error.to_message(Some(&call.client_id)).into(), CallOutcome::Error);
        }
        self.state.lock().streams.end_all();
        self.record.lock().end = Some(end);
        if let Some(attachment) = self.attachment() {
            attachment.close();
        }
        true
    }

    pub(crate) fn ended(&self) -> Option<SessionEnd> {
        self.state.lock().end.clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().end.is_some()
    }
}

/// When a session was opened, on the clock that its deadlines go by.
fn opened_at(record: &SessionRecord, now: Instant) -> Instant {
    if record.epoch == 0 {
        return now;
    }
    let age = Timestamp::now().duration_since(record.opened);
    let age = Duration::try_from(age).unwrap_or_default();
    now.checked_sub(age).unwrap_or(now)
}

/// Tells the store that a call is over, or has it keep the answer for a client that does not read it now. Returns
/// whether it keeps it.
fn note_answer(call: &Call, answer: &Text) -> bool {
    let (client, number) = (&call.client, call.stream.number);
    match call.as_lost() {
        Some(lost) if !call.stream.has_reader(Instant::now()) => {
            client.context.durable.call_answered_unread(client.record_key, number, lost, answer);
            true
        }
        _ => {
            client.context.durable.call_over(client.record_key, number);
            false
        }
    }
}

/// Why a call is given up, if it is.
fn overdue(call: &Call, is_asked: bool, settings: &Settings, now: Instant) -> Option<ErrorReply> {
    if now.saturating_duration_since(call.began) >= ANSWERED_SOON {
        call.stream.run_late();
    }
    // A person may take a while to answer: time does not count against the call meanwhile.
    if is_asked {
        call.clock().refresh(now);
    }
    let (timeout, longest) = call
        .assignment()
        .map_or((settings.timeout, settings.max_timeout), |own| (own.timeout, own.max_timeout));
    Some(match call.clock().overdue(now, timeout, longest)? {
        Overdue::NoProgress => timed_out(timeout, "--timeout", "no answer and no progress for"),
        Overdue::TooLong => timed_out(longest, "--max-timeout", "it ran for more than"),
    })
}

impl SessionEnd {
    /// What a client that still uses the session hears.
    pub(crate) fn refusal(&self) -> Refusal {
        let error = self.error.clone();
        error.map_or(Refusal::SessionNotFound, |reply| Refusal::Terminated(Box::new(reply)))
    }
}

#[cfg(test)]
mod tests;
