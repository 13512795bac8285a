//! From an open session to a locked scope: requests that come early wait in order, the client is asked for
//! its roots, and the first answer decides, once.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use wire::{ErrorReply, Request, Response, code};

use crate::aggregate::{Aggregate, Member, Placing};
use crate::call::Call;
use crate::capability_cache::Advertised;
use crate::scope::{RootsAnswer, Scope, ScopeRefusal};
use crate::server::Route;
use crate::session::{RootsPurpose, ServerRequestKind};
use crate::settings::MAX_WAITING;
use crate::stream::{Keep, Stream};
use crate::worker::Greeting;
use crate::{EndReason, Session};
use audit::AuditEntry;
use upstream::{MAX_OUTBOX_BYTES, StartError};

/// A request that has waited so long is asked on too, in case the client does not read the other stream.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a client is asked before its requests fail.
const MAX_ROOTS_REQUESTS: usize = 3;

/// What a session holds until its scope is locked.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<GateState>);

#[derive(Debug)]
struct GateState {
    stage: Stage,
    /// The client's `initialize`, with our roots in it.
    handshake: Arc<Request>,
    advertised: Option<Advertised>,
    initialized: Option<Bytes>,
    queue: Vec<Queued>,
    bytes: usize,
    requests: Vec<RootsRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// An answer has won; what it names is being looked at.
    Locking,
    Open,
}

#[derive(Debug)]
struct Queued {
    call: Arc<Call>,
    request: Box<Request>,
}

#[derive(Debug)]
struct RootsRequest {
    stream: Arc<Stream>,
    at: Instant,
}

impl Gate {
    pub(crate) fn new(handshake: Arc<Request>, told: Option<Advertised>) -> Self {
        Self(Mutex::new(GateState {
            stage: Stage::Waiting,
            handshake,
            advertised: told,
            initialized: None,
            queue: Vec::new(),
            bytes: 0,
            requests: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock()
    }

    /// What the session is waiting for, for people.
    pub(crate) fn describe(&self) -> &'static str {
        let state = self.lock();
        match state.stage {
            Stage::Waiting if state.initialized.is_none() => "opening",
            Stage::Waiting => "awaiting_scope",
            Stage::Locking => "locking",
            Stage::Open => "ready",
        }
    }

    /// A call that was cancelled while it waited makes room.
    pub(crate) fn forget(&self, call: &Arc<Call>) {
        let mut state = self.lock();
        let mut freed = 0;
        state.queue.retain(|queued| {
            let is_other = !Arc::ptr_eq(&queued.call, call);
            freed += if is_other { 0 } else { queued.request.size() };
            is_other
        });
        state.bytes -= freed;
    }

    /// Empties the queue: the session is over.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.stage = Stage::Open;
        state.queue.clear();
        state.requests.clear();
    }
}

impl GateState {
    fn add(&mut self, call: Arc<Call>, request: Box<Request>) -> Result<(), Arc<Call>> {
        let bytes = self.bytes + request.size();
        if self.queue.len() >= MAX_WAITING || bytes > MAX_OUTBOX_BYTES {
            return Err(call);
        }
        self.bytes = bytes;
        self.queue.push(Queued { call, request });
        Ok(())
    }

    /// Where the client is to be asked now, if it is to be asked.
    fn next_stream(
        &self,
        standalone: &Arc<Stream>,
        now: Instant,
        may_ask_again: bool,
    ) -> Option<Arc<Stream>> {
        if self.stage != Stage::Waiting
            || self.initialized.is_none()
            || self.requests.len() >= MAX_ROOTS_REQUESTS
        {
            return None;
        }
        let is_read =
            |stream: &&Arc<Stream>| !stream.answer_only && !stream.is_ended() && stream.has_reader();
        let mut waiting = self.queue.iter().map(|queued| &queued.call.stream).filter(is_read);
        let standalone = Some(standalone).filter(is_read);
        let Some(last) = self.requests.last() else {
            return waiting.next().or(standalone).cloned();
        };
        if last.stream.is_ended() || !last.stream.has_reader() {
            return waiting.next().or(standalone).cloned();
        }
        let was_asked_on =
            |stream: &Arc<Stream>| self.requests.iter().any(|ask| Arc::ptr_eq(&ask.stream, stream));
        let is_due = may_ask_again && now.saturating_duration_since(last.at) >= ASK_AGAIN_AFTER;
        is_due.then(|| waiting.find(|stream| !was_asked_on(stream)).cloned()).flatten()
    }

    /// Which step of the client is missing.
    fn missing_step(&self) -> (&'static str, &'static str) {
        if self.initialized.is_none() {
            ("initialized", "the client has not sent notifications/initialized")
        } else if self.requests.is_empty() {
            (
                "stream",
                "the client reads no stream on which it could be asked for its roots; it must open one with GET, or POST requests one by one",
            )
        } else {
            ("roots", "the client did not answer roots/list")
        }
    }
}

impl Session {
    /// Takes a call: to its worker, or to wait until there may be one.
    pub(crate) fn submit(self: &Arc<Self>, call: Arc<Call>, request: Box<Request>) {
        if let Some(route) = self.route() {
            return self.hand_over(route, call, request);
        }
        let mut gate = self.gate.lock();
        if let Some(route) = self.route() {
            drop(gate);
            return self.hand_over(route, call, request);
        }
        // The session ended meanwhile, and has answered the call.
        if self.has_ended() {
            return;
        }
        if let Err(call) = gate.add(call, request) {
            drop(gate);
            return call.fail(&StartError::TooManyWaiting.reply());
        }
        drop(gate);
        self.request_roots();
    }

    fn hand_over(self: &Arc<Self>, route: &Route, call: Arc<Call>, request: Box<Request>) {
        if let Route::Many(aggregate) = route {
            return aggregate.call(self, call, request);
        }
        if let Some(worker) = route.worker_for(self) {
            call.give_to(&worker);
            worker.call(call, request);
        }
    }

    /// The client has finished its handshake, and may be asked.
    pub(crate) fn note_initialized(self: &Arc<Self>, text: Bytes) {
        self.gate.lock().initialized.get_or_insert(text);
        self.request_roots();
    }

    /// Asks where the client will see it, if now is the time.
    pub(crate) fn request_roots(&self) {
        let may_ask_again = self.context().settings.has_many_streams;
        let mut gate = self.gate.lock();
        let now = Instant::now();
        let Some(stream) = gate.next_stream(&self.standalone(), now, may_ask_again) else { return };
        gate.requests.push(RootsRequest { stream: Arc::clone(&stream), at: now });
        drop(gate);
        self.send_roots_request(&stream, RootsPurpose::Lock);
    }

    pub(crate) fn send_roots_request(&self, stream: &Arc<Stream>, purpose: RootsPurpose) {
        let number = self.add_server_request(ServerRequestKind::Roots(purpose), stream);
        let text = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"roots/list"}}"#);
        stream.push(Bytes::from(text).into(), Keep::Always);
    }

    /// The client answered what we asked. The first answer wins.
    pub(crate) fn take_roots(self: &Arc<Self>, response: &Response) {
        let mut gate = self.gate.lock();
        if gate.stage != Stage::Waiting {
            tracing::info!(session = %self.handle(), "one more answer to roots/list; the first one counts");
            return;
        }
        gate.stage = Stage::Locking;
        drop(gate);
        self.forget_roots_requests();
        let answer = RootsAnswer::read(response);
        let session = Arc::clone(self);
        tokio::spawn(async move {
            let scope = session.context().look_at_files(move |rules| rules.of_roots(answer)).await;
            let locked = match scope.and_then(|scope| session.check_neighbours(scope)) {
                Ok(scope) => session.lock_scope(scope).await,
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = locked {
                session.refuse_scope(&refusal).await;
            }
        });
    }

    /// Sets the scope for good and lets the waiting requests through, in their order.
    pub(crate) async fn lock_scope(self: &Arc<Self>, scope: Scope) -> Result<(), ScopeRefusal> {
        let scope = Arc::new(scope);
        let members = self.place_members(&scope).await?;
        if !self.note_scope(&scope) {
            return Ok(());
        }
        let mut gate = self.gate.lock();
        if self.has_ended() {
            return Ok(());
        }
        let greeting = Greeting {
            handshake: Arc::clone(&gate.handshake),
            initialized: gate.initialized.clone(),
            advertised: gate.advertised.take(),
        };
        let told = greeting.advertised.clone().filter(|_| self.serves_many());
        let route = match members {
            Some(members) => Route::Many(Aggregate::new(self, members)),
            None => self.sole_route(&scope, greeting),
        };
        let queue = std::mem::take(&mut gate.queue);
        gate.bytes = 0;
        gate.requests.clear();
        gate.stage = Stage::Open;
        for Queued { call, request } in queue {
            self.context().counters.queue_waits.observe(call.began.elapsed());
            self.hand_over(&route, call, request);
        }
        if let Route::Worker(worker) = &route {
            // The first call finds it running.
            let (worker, session) = (Arc::clone(worker), Arc::clone(self));
            tokio::spawn(async move {
                // A worker of several sessions does not know what each of them was told.
                if let (Ok(result), Some(told)) = (worker.ready().await, told)
                    && !told.holds_for(&result)
                {
                    session.end(EndReason::UpstreamChanged).await;
                }
            });
        }
        self.set_route(route);
        Ok(())
    }

    /// Where each of several servers is to run. That takes a look at files, so nothing is locked meanwhile.
    async fn place_members(&self, scope: &Arc<Scope>) -> Result<Option<Vec<Member>>, ScopeRefusal> {
        if self.roster().terms.is_none() {
            return Ok(None);
        }
        let placing = Placing {
            roster: Arc::clone(self.roster()),
            key: self.key().clone(),
            instance: self.instance().clone(),
            contexts: self.contexts().clone(),
            scope: Arc::clone(scope),
            handshake: Arc::clone(&self.gate.lock().handshake),
        };
        self.context().look_at_files(move |_| Ok(Some(placing.members()))).await
    }

    /// With the one server that is passed through.
    fn sole_route(self: &Arc<Self>, scope: &Arc<Scope>, greeting: Greeting) -> Route {
        let server = &self.roster().servers[0];
        server.route(self, &server.plan.upstream, scope, greeting)
    }

    /// Whether the one server that is passed through serves others, too.
    pub(crate) fn serves_many(&self) -> bool {
        self.roster().sole().is_some_and(|server| server.lifecycle().serves_many())
    }

    async fn refuse_scope(self: &Arc<Self>, refusal: &ScopeRefusal) {
        tracing::warn!(session = %self.handle(), "no scope: {refusal}");
        self.context().counters.denials.add("scope");
        let session = self.handle();
        self.context().record(|| AuditEntry::ScopeRefused { session, reason: refusal.to_string().into() });
        let message = format!("Session refused: {refusal}; {}", refusal.hint());
        let reply = ErrorReply::new(code::INVALID_REQUEST, message)
            .with_data(json!({ "reason": EndReason::ScopeRefused.as_str(), "hint": refusal.hint() }));
        self.end_with(EndReason::ScopeRefused, Some(reply)).await;
    }

    /// Asks again where that is due; fails requests that have waited for too long.
    pub(crate) fn tick_gate(self: &Arc<Self>, now: Instant) {
        if self.route().is_some() {
            return;
        }
        self.request_roots();
        let limit = self.context().settings.scope_timeout;
        let mut gate = self.gate.lock();
        let is_overdue = |queued: &Queued| now.saturating_duration_since(queued.call.began) >= limit;
        if gate.stage != Stage::Waiting || !gate.queue.iter().any(is_overdue) {
            return;
        }
        let (step, explanation) = gate.missing_step();
        let queue = std::mem::take(&mut gate.queue);
        gate.bytes = 0;
        // Whoever tries again is asked again.
        gate.requests.clear();
        drop(gate);
        let message = format!(
            "The workspace of this session is not known after {} s: {explanation}",
            limit.as_secs_f32()
        );
        let reply = ErrorReply::new(code::SERVER_ERROR, message)
            .with_data(json!({ "reason": "scope_timeout", "missing": step }));
        tracing::warn!(session = %self.handle(), missing = step, "{}", reply.message);
        for queued in queue {
            queued.call.fail(&reply);
        }
    }
}
