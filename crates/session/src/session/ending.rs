//! How a session ends.

use std::sync::Arc;

use audit::AuditEntry;
use wire::ErrorReply;

use super::Session;
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
        if !self.client.end(SessionEnd { reason, error }) {
            return;
        }
        self.step_gate(GateEvent::Ended);
        // To the end, even if the caller stops waiting: a process must not be left half-ended.
        let session = Arc::clone(self);
        let _ = self.context.tasks.spawn(async move { session.depart(reason).await }).await;
    }

    async fn depart(&self, reason: EndReason) {
        for worker in self.route().map(Route::workers).unwrap_or_default() {
            worker.leave(self.id()).await;
        }
        tracing::info!(session = %self.handle(), reason = reason.as_str(), "session ended");
        // One that its client never heard of was not opened either.
        if self.client.record().answer.is_none() {
            return;
        }
        self.context.record(|| {
            let activity = self.client.activity();
            AuditEntry::SessionEnded {
                session: self.handle(),
                reason: reason.as_str().into(),
                calls: activity.calls,
                errors: activity.errors,
                seconds: activity.age.as_secs_f64(),
            }
        });
    }

    /// How the session ended, if it has.
    pub(crate) fn ended(&self) -> Option<SessionEnd> {
        self.client.ended()
    }
}
