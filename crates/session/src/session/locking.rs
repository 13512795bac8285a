//! Locks the scope of a session: vets the directories that its client named, and puts the route behind the gate.

use std::sync::Arc;
use std::time::Instant;

use audit::AuditEntry;
use serde_json::json;
use wire::{ErrorReply, code};

use super::Session;
use super::gate_driver::release;
use crate::client;
use crate::gate::{GateAction, GateEvent};
use crate::plan::Beneficiary;
use crate::record::EndReason;
use crate::route::{Aggregate, PassThrough, Placed, Placing, Route};
use crate::scope::{CopyUser, RootsAnswer, Scope, ScopeRefusal};
use crate::server::Server;
use crate::worker::{ClientHandle, WorkerEvent};

impl Session {
    /// Sets the scope for good and lets the waiting requests through, in their order.
    pub(crate) async fn lock_scope(self: &Arc<Self>, scope: Scope) -> Result<(), ScopeRefusal> {
        // All sessions of a shared worker have its scope; any other scope is one principal's alone.
        let scope = if self.roster.shares_scope() {
            scope
        } else {
            self.place.check_neighbours(staged(self, scope).await?)?
        };
        let scope = Arc::new(scope);
        let placed = place(self, &scope).await?;
        if !note_scope(self, &scope) {
            return Ok(());
        }
        // No call has an effect before it is certain where the session works.
        client::save(&self.client).await;
        let standalone = self.client.standalone();
        let mut gate = self.gate.lock();
        if self.has_ended() {
            return Ok(());
        }
        let route = make_route(self, placed);
        for action in gate.step(GateEvent::Locked, &standalone, Instant::now()) {
            if let GateAction::Release(queue) = action {
                release(&route, queue, self);
            }
        }
        // Set after the queue was handed over and before the gate is unlocked: a call that sees the route overtakes
        // none that waited.
        let _ = self.route.set(route);
        drop(gate);
        start_worker(self);
        Ok(())
    }
}

/// Vets what the client named, and locks the scope to it or ends the session.
pub(super) fn vet(session: &Arc<Session>, answer: RootsAnswer) {
    session.client.forget_lock_requests();
    let session = Arc::clone(session);
    Arc::clone(&session.context).tasks.spawn(async move {
        let rights = Arc::clone(session.rights());
        let scope = session.context.look_at_files(move |rules| rules.of_roots(answer, &rights)).await;
        let locked = match scope {
            Ok(scope) => session.lock_scope(scope).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = locked {
            refuse(&session, &refusal).await;
        }
    });
}

/// Locks the scope in the record. Returns false if another one was locked before.
fn note_scope(session: &Session, scope: &Arc<Scope>) -> bool {
    let mut record = session.client.record();
    if record.scope.is_some() {
        return false;
    }
    record.scope = Some(Arc::clone(scope));
    drop(record);
    session.context.counters.lock_times.observe(session.client.activity().age);
    let source = scope.source().as_str();
    tracing::info!(session = %session.handle(), scope = ?scope.paths(), source, "scope locked");
    session.context.record(|| AuditEntry::ScopeLocked {
        session: session.handle(),
        scope: scope.paths().iter().map(|path| path.to_string_lossy().into_owned().into()).collect(),
        source: source.into(),
    });
    true
}

/// Puts a copy at the place of the scope, where the session is to have one. That looks at many files.
async fn staged(session: &Session, scope: Scope) -> Result<Scope, ScopeRefusal> {
    let Some(copies) = &session.context.rules.copies else { return Ok(scope) };
    let (copies, key, handle) = (Arc::clone(copies), session.key.clone(), session.handle());
    let client = session.client.record().client.clone();
    let stage =
        move || copies.stage(scope, CopyUser { principal: &key.principal, session: handle, client: &client });
    // Copying a large project takes longer than looking at directories may.
    let staged = tokio::task::spawn_blocking(stage).await;
    staged.unwrap_or_else(|error| Err(ScopeRefusal::BadAnswer(error.to_string())))
}

/// Decides where each server runs. That looks at files, so nothing is locked meanwhile.
async fn place(session: &Session, scope: &Arc<Scope>) -> Result<Placed, ScopeRefusal> {
    if let Some(placed) = session.roster.placed_at_once(scope) {
        return Ok(placed);
    }
    let placing = Placing {
        roster: Arc::clone(&session.roster),
        key: session.key.clone(),
        instance: session.instance().clone(),
        rights: Arc::clone(session.rights()),
        contexts: session.client.record().contexts.clone(),
        scope: Arc::clone(scope),
        handshake: Arc::clone(&session.handshake.request),
    };
    session.context.look_at_files(move |_| placing.roster.place(&placing)).await
}

fn make_route(session: &Arc<Session>, placed: Placed) -> Route {
    match placed {
        Placed::One(server, scope) => Route::PassThrough(Box::new(pass_through(session, &server, &scope))),
        Placed::Many(members) => {
            Route::Merged(Aggregate::new(&session.client, &session.roster, session.rights(), members))
        }
    }
}

fn pass_through(session: &Arc<Session>, server: &Arc<Server>, scope: &Arc<Scope>) -> PassThrough {
    let greeting = session.handshake.greeting(server.lifecycle());
    let weak = Arc::downgrade(session);
    let client = ClientHandle::new(&session.client, move |event| {
        if let (WorkerEvent::Contradicted, Some(session)) = (event, weak.upgrade()) {
            start_over(session);
        }
    });
    let whom = Beneficiary {
        key: &session.key,
        instance: session.instance(),
        rights: session.rights(),
        scope: Some(scope),
    };
    let upstream = server.plan.passed_through(&session.roster.terms, whom);
    let workers = server.workers_for(client, &upstream, scope, greeting);
    PassThrough { server: Arc::clone(server), workers, scope: Arc::clone(scope) }
}

/// The upstream is not what the client was told: the session ends, and the client begins a new one.
fn start_over(session: Arc<Session>) {
    Arc::clone(&session.context).tasks.spawn(async move { session.end(EndReason::UpstreamChanged).await });
}

/// Starts the one worker, so that the first call finds it running.
fn start_worker(session: &Arc<Session>) {
    let Some(worker) = session.route().and_then(Route::sole_worker).map(Arc::clone) else { return };
    let (advertised, session) = (session.handshake.take_advertised(), Arc::clone(session));
    Arc::clone(&session.context).tasks.spawn(async move {
        if let (Ok(result), Some(advertised)) = (worker.ready().await, advertised)
            && !advertised.holds_for(&result)
        {
            start_over(session);
        }
    });
}

pub(super) async fn refuse(session: &Arc<Session>, refusal: &ScopeRefusal) {
    tracing::warn!(session = %session.handle(), "no scope: {refusal}");
    session.context.counters.denials.add("scope");
    session.context.record(|| AuditEntry::ScopeRefused {
        session: session.handle(),
        reason: refusal.to_string().into(),
    });
    let reason = match refusal {
        ScopeRefusal::Replaced(_) => EndReason::ScopeChanged,
        _ => EndReason::ScopeRefused,
    };
    let message = format!("Session refused: {refusal}; {}", refusal.hint());
    let reply = ErrorReply::new(code::INVALID_REQUEST, message)
        .with_data(json!({ "reason": reason.as_str(), "hint": refusal.hint() }));
    session.end_with(reason, Some(reply)).await;
}
