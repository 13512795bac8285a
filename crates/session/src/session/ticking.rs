//! What time does to a session: calls and requests that take too long, and the session itself.

use std::sync::Arc;
use std::time::Instant;

use audit::CallOutcome;
use wire::{ErrorReply, code};

use super::{Session, roots_change};
use crate::client::{self, RootsPurpose, ServerRequestKind};
use crate::gate::GateEvent;
use crate::record::EndReason;
use crate::route::Route;

impl Session {
    /// Looks at every deadline of the session. Says why it must end, if it must.
    pub(crate) fn tick(self: &Arc<Self>, now: Instant) -> Option<EndReason> {
        if self.route().is_none() {
            self.step_gate(GateEvent::Tick, now);
        }
        let overdue = self.client.expire(now);
        for request in overdue.server_requests {
            give_up_request(self, request);
        }
        for (call, error) in overdue.calls {
            let assigned = call.assignment().map(|assigned| assigned.worker);
            if let Some(worker) = assigned.and_then(|id| self.route()?.worker(id)) {
                worker.give_up(&call);
            }
            call.answer(error.to_message(Some(&call.client_id)).into(), CallOutcome::Timeout);
        }
        if overdue.is_deserted {
            let_rest(self, now);
        }
        if overdue.is_use_news {
            client::note(&self.client);
        }
        overdue.end
    }
}

/// Stops the processes that a session has for itself, as long as its client is gone, then lets go of what only they and
/// the client needed. The session stays, and its next request starts them again.
fn let_rest(session: &Session, now: Instant) {
    if session.client.attachment().is_some() {
        return;
    }
    let workers = session.route().map(Route::workers).unwrap_or_default();
    if !workers.iter().any(|worker| worker.has_own_process()) && session.client.shed(now) {
        session.context.note_freed_memory();
    }
    for worker in workers.into_iter().filter(|worker| worker.can_rest_unattended()) {
        session.context.tasks.spawn(async move { worker.rest_unattended().await });
    }
}

fn give_up_request(session: &Arc<Session>, request: ServerRequestKind) {
    match request {
        ServerRequestKind::Upstream { worker, id, .. } => {
            let error = ErrorReply::new(code::SERVER_ERROR, "the client did not answer in time");
            if let Some(worker) = session.route().and_then(|route| route.worker(worker)) {
                worker.answer_request(&id, error.to_message(Some(&id)));
            }
        }
        ServerRequestKind::Roots(RootsPurpose::Compare) => {
            let session = Arc::clone(session);
            Arc::clone(&session.context).tasks.spawn(async move {
                roots_change::reject(&session, "roots/list was not answered").await;
            });
        }
        ServerRequestKind::Roots(RootsPurpose::Lock) => {}
    }
}
