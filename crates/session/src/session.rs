//! One client conversation: its record, the client's side of it, the gate before its scope is locked, and the route
//! behind.
//!
//! ```text
//! Session::call ─► Client::begin_call ─► Gate (until the scope is locked) ─► Route::call ─► Worker::call
//! ```

mod client_handshake;
mod context;
mod copy;
mod ending;
mod gate_driver;
mod locking;
mod overview;
mod reports;
mod restoring;
mod roots_change;
mod ticking;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use identity::{Handle, Instance, SessionId, SessionKey};
use parking_lot::Mutex;
use upstream::Attachment;
use wire::sse::EventId;
use wire::{
    ClientCapabilities, Id, InitializeResult, Notification, Request, Response, Text, Version, method,
};

use self::client_handshake::ClientHandshake;
pub use self::context::update_session_context;
pub use self::copy::{CopyError, SessionCopy};
pub use self::overview::{SessionOverview, WorkerOverview};
pub use self::reports::ToolReport;
pub(crate) use self::restoring::resume;
use crate::client::{Answered, Client, RootsPurpose, ServerRequestKind};
use crate::error::Refusal;
use crate::gate::{Gate, GateEvent, GateSettings, Queued};
use crate::gateway_context::GatewayContext;
use crate::messages::empty_result;
use crate::probe::Advertised;
use crate::record::SessionRecord;
use crate::registry::Place;
use crate::rights::Rights;
use crate::roster::Roster;
use crate::route::Route;
use crate::scope::{RootsAnswer, Scope};
use crate::stream::StreamReader;

#[derive(Debug)]
pub struct Session {
    key: SessionKey,
    client: Arc<Client>,
    context: Arc<GatewayContext>,
    roster: Arc<Roster>,
    handshake: ClientHandshake,
    gate: Mutex<Gate>,
    /// Set once, when the scope is locked.
    route: OnceLock<Route>,
    /// The place that this session takes among the allowed number.
    place: Place,
}

/// What a session begins with.
pub(crate) struct Beginning {
    pub(crate) record: SessionRecord,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) handshake: Arc<Request>,
    pub(crate) advertised: Option<Advertised>,
    pub(crate) place: Place,
}

impl Session {
    pub(crate) fn new(
        context: &Arc<GatewayContext>,
        roster: &Arc<Roster>,
        beginning: Beginning,
    ) -> Arc<Self> {
        let Beginning { record, capabilities, handshake, advertised, place } = beginning;
        let settings = GateSettings {
            deadline: context.settings.scope_timeout,
            has_many_streams: context.settings.has_many_streams,
        };
        Arc::new(Self {
            key: record.key.clone(),
            client: Client::new(context, record, capabilities, Instant::now()),
            context: Arc::clone(context),
            roster: Arc::clone(roster),
            handshake: ClientHandshake::new(handshake, advertised),
            gate: Mutex::new(Gate::new(settings)),
            route: OnceLock::new(),
            place,
        })
    }

    pub fn id(&self) -> SessionId {
        self.key.id
    }

    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    pub fn handle(&self) -> Handle {
        self.client.handle()
    }

    pub fn instance(&self) -> &Instance {
        self.client.instance()
    }

    pub(crate) fn rights(&self) -> &Arc<Rights> {
        self.place.rights()
    }

    /// Where the session may write, once that is locked.
    pub fn scope(&self) -> Option<Arc<Scope>> {
        self.client.scope()
    }

    /// The negotiated revision, if it is one that we know.
    pub fn version(&self) -> Option<Version> {
        self.client.record().version
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn route(&self) -> Option<&Route> {
        self.route.get()
    }

    /// Takes a request of the client; its messages and its answer arrive at the reader.
    pub fn call(self: &Arc<Self>, request: Request) -> Result<StreamReader, Refusal> {
        self.begin_call(request, false)
    }

    /// The same for a request that is answered together with others: only the answer arrives here.
    pub fn call_in_batch(self: &Arc<Self>, request: Request) -> Result<StreamReader, Refusal> {
        self.begin_call(request, true)
    }

    fn begin_call(self: &Arc<Self>, request: Request, answer_only: bool) -> Result<StreamReader, Refusal> {
        if request.method == method::INITIALIZE {
            return Err(Refusal::AlreadyInitialized);
        }
        if request.method == method::PING && self.route().is_none() && !self.has_ended() {
            return Ok(self.client.answered(empty_result(&request.id).into()));
        }
        self.place.admit_call()?;
        let (call, reader) = self.client.begin_call(&request, answer_only)?;
        self.context.ticker.call_began();
        self.submit(Queued { call, request: Box::new(request) });
        Ok(reader)
    }

    /// Takes a notification of the client.
    pub async fn notify(self: &Arc<Self>, notification: &Notification) -> Result<(), Refusal> {
        self.client.touch();
        match notification.method.as_str() {
            method::INITIALIZED => self.finish_handshake(notification),
            method::CANCELLED => self.cancel(notification),
            method::PROGRESS => self.pass_on_progress(notification),
            method::ROOTS_CHANGED => return roots_change::take(self, notification).await,
            _ => {
                if let Some(route) = self.route() {
                    route.notify(&notification.text());
                }
            }
        }
        Ok(())
    }

    fn finish_handshake(self: &Arc<Self>, notification: &Notification) {
        self.client.note_initialized();
        // The lock decides whether the route gets it, or the gate hands it on when the route is made.
        let gate = self.gate.lock();
        let is_first = self.handshake.finish(&notification.text());
        drop(gate);
        match self.route() {
            Some(route) => {
                if let Some(worker) = route.sole_worker() {
                    worker.finish_handshake(notification);
                }
            }
            None if is_first => self.step_gate(GateEvent::Initialized, Instant::now()),
            None => {}
        }
    }

    /// Cancels the one call that the client names; the upstream hears its own id of it.
    fn cancel(self: &Arc<Self>, notification: &Notification) {
        let Some(call) = notification.cancelled_request().and_then(|id| self.client.cancel(&id)) else {
            return;
        };
        let worker = call.assignment().and_then(|assigned| self.route()?.worker(assigned.worker));
        match worker {
            Some(worker) => {
                worker
                    .withdraw(&call, |id| notification.with_cancelled_request(&Id::number(id)).into_bytes());
            }
            None => self.step_gate(GateEvent::Cancelled(call), Instant::now()),
        }
    }

    /// Progress on a request of an upstream goes to that upstream.
    fn pass_on_progress(&self, progress: &Notification) {
        let worker = progress.progress_token().and_then(|token| self.client.worker_for_progress(&token));
        if let Some(worker) = worker.and_then(|id| self.route()?.worker(id)) {
            worker.send_if_up(progress.text());
        }
    }

    /// Takes the client's answer to a request of its servers or of the gateway.
    pub fn answer(self: &Arc<Self>, response: &Response) {
        let counters = &self.context.counters;
        let request = match self.client.take_answer(response) {
            Answered::Request(request) => request,
            Answered::Late => {
                counters.late_answers.add();
                let id = &response.id;
                tracing::info!(session = %self.handle(), ?id, "the client answered too late, or twice");
                return;
            }
            Answered::Stray => {
                if counters.stray_answers.add_and_should_log() {
                    let id = &response.id;
                    tracing::warn!(session = %self.handle(), ?id, "the client answered what it was not asked");
                }
                return;
            }
        };
        match request.kind {
            ServerRequestKind::Upstream { worker, id, .. } => {
                if let Some(worker) = self.route().and_then(|route| route.worker(worker)) {
                    worker.answer_request(&id, response.with_id(&id).into_bytes());
                }
            }
            // The first answer decides the scope.
            ServerRequestKind::Roots(RootsPurpose::Lock) => {
                let roots = RootsAnswer::read(response);
                self.step_gate(GateEvent::RootsAnswered(roots), Instant::now());
            }
            ServerRequestKind::Roots(RootsPurpose::Compare) => roots_change::compare(self, response),
        }
    }

    /// Opens the stream of messages that belong to no call, or resumes any stream after an event.
    pub fn listen(
        self: &Arc<Self>,
        client: Option<&Instance>,
        after: Option<EventId>,
    ) -> Result<StreamReader, Refusal> {
        let reader = self.client.listen(client, after)?;
        if self.route().is_none() {
            self.step_gate(GateEvent::Listening, Instant::now());
        }
        Ok(reader)
    }

    /// Whether a stream with this number is that of a call.
    pub fn is_of_a_call(&self, number: u64) -> bool {
        self.client.is_of_a_call(number)
    }

    /// Keeps the stream of a call for a client that learns its event ids.
    pub fn make_resumable(&self, reader: &StreamReader) {
        self.client.make_resumable(reader);
    }

    /// Notes that the client is there, though it asks nothing.
    pub fn keep_alive(&self) {
        self.client.touch();
    }

    /// Answers an `initialize` that came after the session was opened, once.
    pub fn initialize_late(&self, request: &Request) -> Result<Text, Refusal> {
        let params = self.client.initialize_late(request)?;
        let mut record = self.client.record();
        record.initialize = Arc::new(request.clone());
        let mut answer = record.answer.clone().unwrap_or_default();
        if self.roster.answers_for_itself()
            && let Ok(result) = InitializeResult::read(&answer)
        {
            answer = result.with_version(params.version());
            record.version = Some(params.version());
            record.answer = Some(answer.clone());
        }
        Ok(Text::result(&request.id, answer.into()))
    }

    /// The client's machine has connected; of several, the last one counts.
    pub fn attach(&self, attachment: &Arc<Attachment>) {
        if let Some(before) = self.client.attachment_slot().set(Arc::clone(attachment)) {
            before.close();
        }
        tracing::info!(session = %self.handle(), "the client's machine is attached");
        if let Some(route) = self.route() {
            route.attachment_changed(Some(attachment));
        }
    }

    /// The connection to the client's machine is gone.
    pub fn detach(&self, attachment: &Arc<Attachment>) {
        attachment.close();
        if !self.client.attachment_slot().clear(attachment) {
            return;
        }
        tracing::info!(session = %self.handle(), "the client's machine is gone");
        if let Some(route) = self.route() {
            route.attachment_changed(None);
        }
    }

    pub fn is_attached(&self) -> bool {
        self.client.attachment().is_some()
    }

    /// The id that a server at a URL knows this session by.
    pub fn session_id_at(&self, server: &str) -> Option<String> {
        self.route()?.session_id_at(server)
    }

    /// Sees again whether a server can be used that could not.
    pub fn try_again(&self, server: &str) {
        if let Some(route) = self.route() {
            route.try_again(server);
        }
    }

    pub fn calls_in_flight(&self) -> usize {
        self.client.activity().in_flight
    }

    pub fn has_ended(&self) -> bool {
        self.client.has_ended()
    }
}

#[cfg(test)]
mod tests;
