//! How a session ends, and what is heard of it afterwards.

use std::sync::Arc;

use wire::ErrorReply;

use super::Session;
use crate::Refusal;
use crate::error::session_ended;
use crate::server::Route;
use audit::{AuditEntry, CallOutcome};

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Deleted,
    /// By the operator.
    Stopped,
    Idle,
    /// Older than a session may become.
    Expired,
    /// The client never finished its handshake.
    NeverInitialized,
    /// The client went away before it had its session id.
    Abandoned,
    /// The upstream is not what the client was told.
    UpstreamChanged,
    ScopeRefused,
    RootsChangeRejected,
    /// The client's roots changed, and it is to start over.
    RootsChanged,
    /// Its caller has no token any more.
    AccessWithdrawn,
    Shutdown,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Expired => "expired",
            Self::NeverInitialized => "never_initialized",
            Self::Abandoned => "abandoned",
            Self::UpstreamChanged => "upstream_changed",
            Self::ScopeRefused => "scope_refused",
            Self::RootsChangeRejected => "roots_change_rejected",
            Self::RootsChanged => "roots_changed",
            Self::AccessWithdrawn => "access_withdrawn",
            Self::Shutdown => "shutdown",
        }
    }
}

impl Session {
    /// Ends the session: calls in flight get an error, streams end, its processes go.
    pub async fn end(self: &Arc<Self>, reason: EndReason) {
        self.end_with(reason, None).await;
    }

    /// The same, with an error for whoever still uses the session.
    pub(crate) async fn end_with(self: &Arc<Self>, reason: EndReason, end_error: Option<ErrorReply>) {
        let error = end_error.clone().unwrap_or_else(session_ended);
        let (calls, streams) = {
            let mut state = self.lock();
            if state.ended.is_some() {
                return;
            }
            state.ended = Some(reason);
            state.end_error = end_error;
            state.server_requests.clear();
            (std::mem::take(&mut state.calls), std::mem::take(&mut state.resumable))
        };
        self.gate.close();
        for call in calls.into_values() {
            call.close(error.to_message(Some(&call.client_id)).into(), CallOutcome::Error);
        }
        for (stream, _) in streams.into_values() {
            stream.end();
        }
        self.end_listening();
        if let Some(attachment) = self.attachment() {
            attachment.close();
        }
        // To the end, also if whoever asked for it does not wait: a process must not be left half-ended.
        let session = Arc::clone(self);
        let _ = tokio::spawn(async move { session.depart(reason).await }).await;
    }

    async fn depart(&self, reason: EndReason) {
        self.leave_route().await;
        tracing::info!(session = %self.handle, reason = reason.as_str(), "session ended");
        // One that its client never heard of was not opened either.
        if self.version.get().is_none() {
            return;
        }
        self.context.record(|| {
            let facts = self.facts();
            AuditEntry::SessionEnded {
                session: self.handle,
                reason: reason.as_str().into(),
                calls: facts.calls,
                errors: facts.errors,
                seconds: self.age().as_secs_f64(),
            }
        });
    }

    async fn leave_route(&self) {
        for worker in self.route().into_iter().flat_map(Route::workers) {
            worker.leave(self).await;
        }
    }

    /// What a user of a session that is over hears.
    pub(crate) fn end_refusal(&self) -> Option<Refusal> {
        let state = self.lock();
        state.ended?;
        Some(
            state
                .end_error
                .clone()
                .map_or(Refusal::SessionNotFound, |reply| Refusal::Terminated(Box::new(reply))),
        )
    }

    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.lock().ended
    }

    pub(crate) fn end_error(&self) -> Option<ErrorReply> {
        self.lock().end_error.clone()
    }

    pub fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }
}
