//! One client's conversation: its calls in flight, what it was asked, and the streams it reads.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use config::ExecutionContext;
use wire::{
    ClientCapabilities, ErrorReply, Id, InitializeParams, InitializeResult, Notification, Request, Text,
    Version, method,
};

use crate::aggregate::Aggregate;
use crate::call::Call;
use crate::error::cancelled;
use crate::gate::Gate;
use crate::gateway_context::GatewayContext;
use crate::inbound::empty_result;
use crate::quota::Place;
use crate::roster::Roster;
use crate::scope::{Scope, ScopeRefusal};
use crate::server::Route;
use crate::stream::{Stream, StreamReader};
use crate::{Handle, Instance, Refusal, SessionId, SessionKey};
use audit::{AuditEntry, CallOutcome};
use upstream::Attachment;

mod deadlines;
mod ending;
mod listeners;
mod reports;
mod server_requests;

pub use ending::EndReason;
use listeners::Other;
pub use reports::ToolReport;
use server_requests::ServerRequest;
pub(crate) use server_requests::{RootsPurpose, ServerRequestKind};

/// The stream of messages that belong to no call, which a client reads by GET.
const STANDALONE: u64 = 0;

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
    /// Whether the client named it.
    is_named: bool,
    /// `name/version` of the client, for logs.
    client: String,
    /// What the client can be asked; one that was opened for may still say so.
    capabilities: Mutex<ClientCapabilities>,
    /// The revision of a client that said `initialize` late.
    late_version: OnceLock<Version>,
    /// The answer for a client that says `initialize` after its session was opened.
    belated: Mutex<Option<String>>,
    /// Set once `initialize` was answered; `None` inside if the revision is not one that we know.
    version: OnceLock<Option<Version>>,
    opened: Instant,
    context: Arc<GatewayContext>,
    roster: Arc<Roster>,
    contexts: Contexts,
    /// The client's machine, while it is connected.
    attachment: Mutex<Option<Arc<Attachment>>>,
    pub(crate) gate: Gate,
    /// Set once and never again.
    scope: OnceLock<Arc<Scope>>,
    route: OnceLock<Route>,
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
    /// Clients that listen beside the one that opened the session.
    others: Vec<Other>,
    server_requests: HashMap<u64, ServerRequest>,
    next_ask: u64,
    is_initialized: bool,
    last_used: Instant,
    ended: Option<EndReason>,
    /// What whoever still uses the session is told, if not that it is unknown.
    end_error: Option<ErrorReply>,
}

/// What changes all the time, at one moment.
pub(crate) struct Facts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) in_flight: usize,
    pub(crate) idle: Duration,
    pub(crate) has_ended: bool,
}

/// What a client wants about where servers run.
#[derive(Clone, Debug)]
pub struct Contexts {
    pub wanted: BTreeMap<String, ExecutionContext>,
    /// Whether the client takes servers that work on its own files.
    pub takes_local: bool,
}

impl Default for Contexts {
    fn default() -> Self {
        Self { wanted: BTreeMap::new(), takes_local: true }
    }
}

/// What a session begins with.
pub(crate) struct Beginning {
    pub(crate) key: SessionKey,
    pub(crate) instance: Instance,
    /// Whether the client named it.
    pub(crate) is_named: bool,
    pub(crate) params: InitializeParams,
    pub(crate) gate: Gate,
    pub(crate) place: Place,
    pub(crate) contexts: Contexts,
}

impl Session {
    pub(crate) fn new(
        context: &Arc<GatewayContext>,
        roster: &Arc<Roster>,
        beginning: Beginning,
    ) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            calls: HashMap::new(),
            resumable: BTreeMap::new(),
            others: Vec::new(),
            server_requests: HashMap::new(),
            next_ask: 1,
            is_initialized: false,
            last_used: now,
            ended: None,
            end_error: None,
        };
        let Beginning { key, instance, is_named, params, gate, place, contexts } = beginning;
        Arc::new(Self {
            handle: key.id.handle(),
            key,
            instance,
            is_named,
            client: params.client,
            capabilities: Mutex::new(params.capabilities),
            late_version: OnceLock::new(),
            belated: Mutex::default(),
            version: OnceLock::new(),
            opened: now,
            standalone: Stream::new(STANDALONE, false, &context.counters),
            context: Arc::clone(context),
            roster: Arc::clone(roster),
            contexts,
            attachment: Mutex::default(),
            gate,
            scope: OnceLock::new(),
            route: OnceLock::new(),
            next_stream: AtomicU64::new(STANDALONE + 1),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            state: Mutex::new(state),
            place,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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

    pub(crate) fn context(&self) -> &Arc<GatewayContext> {
        &self.context
    }

    pub(crate) fn route(&self) -> Option<&Route> {
        self.route.get()
    }

    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    pub(crate) fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    /// What tells its servers apart, if there are several.
    pub(crate) fn aggregate(&self) -> Option<&Arc<Aggregate>> {
        match self.route.get() {
            Some(Route::Many(aggregate)) => Some(aggregate),
            _ => None,
        }
    }

    /// The id that a server at a URL knows this session by.
    pub fn session_id_at(&self, server: &str) -> Option<String> {
        self.aggregate()?.session_id_at(server)
    }

    /// Sees again whether a server can be used that could not.
    pub fn try_again(&self, server: &str) {
        if let Some(aggregate) = self.aggregate() {
            aggregate.try_again(server);
        }
    }

    pub(crate) fn attachment(&self) -> Option<Arc<Attachment>> {
        self.attachment.lock().clone()
    }

    /// The client's machine has connected; of several, the last one counts.
    pub fn attach(&self, attachment: &Arc<Attachment>) {
        let before = self.attachment.lock().replace(Arc::clone(attachment));
        if let Some(before) = before {
            before.close();
        }
        tracing::info!(session = %self.handle, "the client's machine is attached");
        if let Some(aggregate) = self.aggregate() {
            aggregate.attachment_changed(Some(attachment));
        }
    }

    /// The connection to the client's machine is gone.
    pub fn detach(&self, attachment: &Arc<Attachment>) {
        attachment.close();
        let mut current = self.attachment.lock();
        if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, attachment)) {
            return;
        }
        *current = None;
        drop(current);
        tracing::info!(session = %self.handle, "the client's machine is gone");
        if let Some(aggregate) = self.aggregate() {
            aggregate.attachment_changed(None);
        }
    }

    pub(crate) fn set_route(&self, route: Route) {
        let _ = self.route.set(route);
    }

    /// Locks the scope. False: another one was locked before.
    pub(crate) fn note_scope(&self, scope: &Arc<Scope>) -> bool {
        let is_first = self.scope.set(Arc::clone(scope)).is_ok();
        if is_first {
            self.context.counters.lock_times.observe(self.opened.elapsed());
            tracing::info!(
                session = %self.handle,
                scope = ?scope.paths(),
                source = scope.source().as_str(),
                "scope locked"
            );
            self.context.record(|| AuditEntry::ScopeLocked {
                session: self.handle,
                scope: scope.paths().iter().map(|path| path.to_string_lossy().into_owned().into()).collect(),
                source: scope.source().as_str().into(),
            });
        }
        is_first
    }

    /// The negotiated revision, if it is one that we know.
    pub fn version(&self) -> Option<Version> {
        self.late_version.get().copied().or_else(|| self.version.get().copied().flatten())
    }

    pub(crate) fn set_version(&self, version: Option<Version>) {
        let _ = self.version.set(version);
    }

    /// Lets the client say `initialize` once more, because it has not said it yet.
    pub(crate) fn expect_initialize(&self, answer: String) {
        *self.capabilities.lock() = ClientCapabilities::default();
        *self.belated.lock() = Some(answer);
    }

    /// Answers an `initialize` that came after the session was opened, once.
    pub fn initialize_late(&self, request: &Request) -> Result<Text, Refusal> {
        let params = InitializeParams::read(request.params()).map_err(Refusal::BadInitialize)?;
        let answer = self.belated.lock().take();
        let mut answer = answer.ok_or(Refusal::AlreadyInitialized)?;
        // Several servers are answered for by the gateway, which speaks them all; one has decided.
        if self.roster.terms.is_some()
            && let Ok(result) = InitializeResult::read(&answer)
        {
            answer = result.with_version(params.version());
            let _ = self.late_version.set(params.version());
        }
        *self.capabilities.lock() = params.capabilities;
        Ok(Text::result(&request.id, answer.into()))
    }

    pub(crate) fn may_be_asked(&self, method: &str) -> bool {
        self.capabilities.lock().allow(method)
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
        if request.method == method::PING && self.route().is_none() && !self.has_ended() {
            return Ok(self.answered(empty_result(&request.id).into()));
        }
        self.place.admit_call()?;
        let stream = self.new_stream(answer_only);
        let reader = stream.attach(None);
        let call = Arc::new(Call::new(self, &request, stream));
        self.register(&call)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.context.counters.calls.add();
        self.context.ticker.call_began();
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
        Stream::new(self.next_stream.fetch_add(1, Ordering::Relaxed), answer_only, &self.context.counters)
    }

    fn register(&self, call: &Arc<Call>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if state.ended.is_some() {
            drop(state);
            return Err(self.end_refusal().unwrap_or(Refusal::SessionNotFound));
        }
        let limit = self.context.settings.max_calls;
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
                for worker in self.route().map(Route::workers).unwrap_or_default() {
                    worker.send_if_up(&notification.text());
                }
            }
        }
        Ok(())
    }

    fn finish_handshake(self: &Arc<Self>, notification: &Notification) {
        self.lock().is_initialized = true;
        match self.route.get() {
            Some(Route::Worker(worker)) => worker.finish_handshake(notification),
            Some(Route::PerCall { .. } | Route::Many(_)) => {}
            None => self.note_initialized(notification.text()),
        }
    }

    /// Cancels the one call that the client names; the upstream hears its own id of it.
    fn cancel(&self, notification: &Notification) {
        let Some(id) = notification.cancelled_request() else { return };
        let Some(call) = self.lock().calls.remove(&id) else { return };
        match call.worker() {
            Some(worker) => {
                worker
                    .withdraw(&call, |id| notification.with_cancelled_request(&Id::number(id)).into_bytes());
            }
            None => self.gate.forget(&call),
        }
        call.close(cancelled().to_message(Some(&call.client_id)).into(), CallOutcome::Cancelled);
    }

    /// Keeps the stream of a call for a client that learns its event ids.
    pub fn make_resumable(&self, reader: &StreamReader) {
        let stream = reader.stream();
        let mut state = self.lock();
        if state.ended.is_none() {
            state.resumable.insert(stream.number, (Arc::clone(stream), None));
        }
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

    /// Somebody is there, though nothing is asked.
    pub fn keep_alive(&self) {
        self.touch();
    }

    pub fn is_attached(&self) -> bool {
        self.attachment().is_some()
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
        self.context.counters.call_errors.add();
    }

    pub fn calls_in_flight(&self) -> usize {
        self.lock().calls.len()
    }

    /// Refuses a scope in which another user's session works. One's own may share, and is told so.
    pub(crate) fn check_neighbours(&self, scope: Scope) -> Result<Scope, ScopeRefusal> {
        self.place.check_neighbours(scope)
    }
}
