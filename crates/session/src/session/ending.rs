//! How a session ends.

use std::sync::Arc;
use std::time::Instant;

use audit::AuditEntry;
use wire::ErrorReply;

use super::Session;
use crate::durable::resolved;
use crate::gate::GateEvent;
use crate::record::{EndReason, SessionEnd};
use crate::route::Route;

impl Session {
    /// Ends the session: calls in flight get an error, streams end, its processes go.
    pub async fn end(self: &Arc<Self>, reason: EndReason) {
        self.end_with(reason, None).await;
    }

    /// The same, with an error for a client that still uses the session.
    pub(crate) async fn end_with(self: &Arc<Self>, reason: EndReason, error: Option<ErrorReply>) {
        if !self.client.end(SessionEnd { reason, error: error.clone() }) {
            return;
        }
        let forgotten = forget_record(self, reason, error.as_ref());
        self.step_gate(GateEvent::Ended, Instant::now());
        // To the end, even if the caller stops waiting: a process must not be left half-ended.
        let session = Arc::clone(self);
        let _ = self.context.depart(async move { depart(&session, reason).await }).await;
        forgotten.await;
    }
}

/// Takes a session out of the store, unless the next gateway is to go on with it. Resolves when that is on the disk.
fn forget_record(
    session: &Session,
    reason: EndReason,
    error: Option<&ErrorReply>,
) -> impl Future<Output = ()> + use<> {
    let was_opened = session.client.record().answer.is_some();
    let is_over = reason != EndReason::Shutdown && was_opened;
    let forgotten = is_over.then(|| session.context.durable.session_ended(session.client.record_key, error));
    resolved(forgotten)
}

/// Leaves the workers and writes the end into the audit log.
async fn depart(session: &Session, reason: EndReason) {
    for worker in session.route().map(Route::workers).unwrap_or_default() {
        worker.leave(session.id()).await;
    }
    if let (Some(copies), Some(scope)) = (&session.context.rules.copies, session.scope())
        && reason != EndReason::Shutdown
    {
        copies.note_left(&scope);
    }
    tracing::info!(session = %session.handle(), reason = reason.as_str(), "session ended");
    // One that its client never heard of was not opened either.
    if session.client.record().answer.is_none() {
        return;
    }
    session.context.record(|| {
        let activity = session.client.activity();
        AuditEntry::SessionEnded {
            session: session.handle(),
            reason: reason.as_str().into(),
            calls: activity.calls,
            errors: activity.errors,
            seconds: activity.age.as_secs_f64(),
        }
    });
}
