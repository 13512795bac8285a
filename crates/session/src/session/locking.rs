//! Locks the scope of a session: performs what the [`Gate`](crate::gate::Gate) says, vets directories, and puts the
//! route behind the gate.

use std::sync::Arc;
use std::time::Instant;

use audit::AuditEntry;
use serde_json::json;
use upstream::StartError;
use wire::{ErrorReply, Response, code};

use super::Session;
use crate::client::RootsPurpose;
use crate::gate::{GateAction, GateEvent, Queued};
use crate::record::EndReason;
use crate::route::{Aggregate, Member, PassThrough, Placing, Route};
use crate::scope::{RootsAnswer, Scope, ScopeRefusal};
use crate::server::Server;
use crate::worker::{ClientHandle, Greeting, WorkerEvent};

impl Session {
    /// Takes a call: to its route, or to wait until there is one.
    pub(super) fn submit(self: &Arc<Self>, queued: Queued) {
        if let Some(route) = self.route() {
            return route.call(queued.call, queued.request);
        }
        let standalone = self.client.standalone();
        let mut gate = self.gate.lock();
        if let Some(route) = self.route() {
            drop(gate);
            return route.call(queued.call, queued.request);
        }
        // A session that ended meanwhile has answered the call.
        if self.has_ended() {
            return;
        }
        let actions = gate.step(GateEvent::Call(queued), &standalone, Instant::now());
        drop(gate);
        self.perform_gate(actions);
    }

    /// Gives the gate an event and performs what follows.
    pub(super) fn step_gate(self: &Arc<Self>, event: GateEvent) {
        let standalone = self.client.standalone();
        let actions = self.gate.lock().step(event, &standalone, Instant::now());
        self.perform_gate(actions);
    }

    fn perform_gate(self: &Arc<Self>, actions: Vec<GateAction>) {
        for action in actions {
            match action {
                GateAction::RequestRoots(stream) => {
                    self.client.request_roots(Some(stream), RootsPurpose::Lock);
                }
                GateAction::Vet(answer) => self.vet(answer),
                GateAction::Release(queue) => {
                    if let Some(route) = self.route() {
                        release(route, queue, self);
                    }
                }
                GateAction::Fail(calls, reply) => {
                    tracing::warn!(session = %self.handle(), "{}", reply.message);
                    for call in calls {
                        call.fail(&reply);
                    }
                }
                GateAction::RefuseOverflow(call) => call.fail(&StartError::TooManyWaiting.reply()),
                GateAction::IgnoreLateAnswer => {
                    tracing::info!(session = %self.handle(), "one more answer to roots/list; the first one counts");
                }
            }
        }
    }

    /// The client answered the gateway's `roots/list`. The first answer wins.
    pub(super) fn take_roots(self: &Arc<Self>, response: &Response) {
        self.step_gate(GateEvent::RootsAnswered(RootsAnswer::read(response)));
    }

    /// Vets what the client named, and locks the scope to it or ends the session.
    fn vet(self: &Arc<Self>, answer: RootsAnswer) {
        self.client.forget_lock_requests();
        let session = Arc::clone(self);
        self.context.tasks.spawn(async move {
            let scope = session.context.look_at_files(move |rules| rules.of_roots(answer)).await;
            let locked = match scope.and_then(|scope| session.check_neighbours(scope)) {
                Ok(scope) => session.lock_scope(scope).await,
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = locked {
                session.refuse_scope(&refusal).await;
            }
        });
    }

    /// Refuses a scope in which another principal's session works.
    pub(crate) fn check_neighbours(&self, scope: Scope) -> Result<Scope, ScopeRefusal> {
        self.place.check_neighbours(scope)
    }

    /// Sets the scope for good and lets the waiting requests through, in their order.
    pub(crate) async fn lock_scope(self: &Arc<Self>, scope: Scope) -> Result<(), ScopeRefusal> {
        let scope = Arc::new(scope);
        let members = self.place_members(&scope).await?;
        if !self.note_scope(&scope) {
            return Ok(());
        }
        let standalone = self.client.standalone();
        let mut gate = self.gate.lock();
        if self.has_ended() {
            return Ok(());
        }
        let route = self.make_route(&scope, members);
        for action in gate.step(GateEvent::Locked, &standalone, Instant::now()) {
            if let GateAction::Release(queue) = action {
                release(&route, queue, self);
            }
        }
        // Set after the queue was handed over and before the gate is unlocked: a call that sees the route overtakes
        // none that waited.
        let _ = self.route.set(route);
        drop(gate);
        self.start_worker();
        Ok(())
    }

    /// Locks the scope in the record. Returns false if another one was locked before.
    fn note_scope(&self, scope: &Arc<Scope>) -> bool {
        let mut record = self.client.record();
        if record.scope.is_some() {
            return false;
        }
        record.scope = Some(Arc::clone(scope));
        drop(record);
        self.context.counters.lock_times.observe(self.client.activity().age);
        let source = scope.source().as_str();
        tracing::info!(session = %self.handle(), scope = ?scope.paths(), source, "scope locked");
        self.context.record(|| AuditEntry::ScopeLocked {
            session: self.handle(),
            scope: scope.paths().iter().map(|path| path.to_string_lossy().into_owned().into()).collect(),
            source: source.into(),
        });
        true
    }

    /// Decides where each of several servers runs. That looks at files, so nothing is locked meanwhile.
    async fn place_members(&self, scope: &Arc<Scope>) -> Result<Vec<Member>, ScopeRefusal> {
        if self.roster.sole().is_some() {
            return Ok(Vec::new());
        }
        let placing = Placing {
            roster: Arc::clone(&self.roster),
            key: self.key.clone(),
            instance: self.instance().clone(),
            contexts: self.client.record().contexts.clone(),
            scope: Arc::clone(scope),
            handshake: Arc::clone(&self.handshake),
        };
        self.context.look_at_files(move |_| Ok(placing.members())).await
    }

    fn make_route(self: &Arc<Self>, scope: &Arc<Scope>, members: Vec<Member>) -> Route {
        match self.roster.sole() {
            Some(server) => Route::PassThrough(self.pass_through(server, scope)),
            None => Route::Merged(Aggregate::new(&self.client, &self.roster, members)),
        }
    }

    fn pass_through(self: &Arc<Self>, server: &Arc<Server>, scope: &Arc<Scope>) -> PassThrough {
        let greeting = Greeting {
            handshake: Arc::clone(&self.handshake),
            initialized: self.initialized.get().cloned(),
            // A worker of several sessions does not know what each of them was told.
            advertised: if server.lifecycle().serves_many() { None } else { self.advertised.lock().take() },
        };
        let session = Arc::downgrade(self);
        let client = ClientHandle::new(&self.client, move |event| {
            if let (WorkerEvent::Contradicted, Some(session)) = (event, session.upgrade()) {
                session.start_over();
            }
        });
        let workers = server.workers_for(client, &server.plan.upstream, scope, greeting);
        PassThrough { server: Arc::clone(server), workers, scope: Arc::clone(scope) }
    }

    /// The upstream is not what the client was told: the session ends, and the client begins a new one.
    fn start_over(self: &Arc<Self>) {
        let session = Arc::clone(self);
        self.context.tasks.spawn(async move { session.end(EndReason::UpstreamChanged).await });
    }

    /// Starts the one worker, so that the first call finds it running.
    fn start_worker(self: &Arc<Self>) {
        let Some(worker) = self.route().and_then(Route::sole_worker).map(Arc::clone) else { return };
        let (session, advertised) = (Arc::clone(self), self.advertised.lock().take());
        self.context.tasks.spawn(async move {
            if let (Ok(result), Some(advertised)) = (worker.ready().await, advertised)
                && !advertised.holds_for(&result)
            {
                session.start_over();
            }
        });
    }

    async fn refuse_scope(self: &Arc<Self>, refusal: &ScopeRefusal) {
        tracing::warn!(session = %self.handle(), "no scope: {refusal}");
        self.context.counters.denials.add("scope");
        let session = self.handle();
        self.context.record(|| AuditEntry::ScopeRefused { session, reason: refusal.to_string().into() });
        let message = format!("Session refused: {refusal}; {}", refusal.hint());
        let reply = ErrorReply::new(code::INVALID_REQUEST, message)
            .with_data(json!({ "reason": EndReason::ScopeRefused.as_str(), "hint": refusal.hint() }));
        self.end_with(EndReason::ScopeRefused, Some(reply)).await;
    }
}

/// Hands waiting requests over, in their order.
fn release(route: &Route, queue: Vec<Queued>, session: &Session) {
    for Queued { call, request } in queue {
        session.context.counters.queue_waits.observe(call.began.elapsed());
        route.call(call, request);
    }
}
