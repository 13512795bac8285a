//! What happens when a client's roots change after the scope was locked: never anything that widens it.

use std::sync::Arc;

use serde_json::json;
use wire::{ErrorReply, Notification, Response, code};

use super::Session;
use crate::client::RootsPurpose;
use crate::error::Refusal;
use crate::record::EndReason;
use crate::scope::{MAX_QUOTED, OnRootsChange, RootsAnswer, ScopeSource};

/// The client's roots are others now. What its session may do never grows.
pub(super) async fn take(session: &Arc<Session>, notification: &Notification) -> Result<(), Refusal> {
    let Some(scope) = session.scope() else { return Ok(()) };
    let is_bound_to_roots = scope.source() == ScopeSource::Roots;
    // A worker of several sessions is never ended for one client.
    if !is_bound_to_roots || session.roster.serves_many() {
        return Ok(());
    }
    let policy = session.context.rules.on_change;
    match policy {
        OnRootsChange::Ignore => {
            tracing::warn!(session = %session.handle(), "the client's roots changed; the scope stays as it is");
        }
        OnRootsChange::Compare if session.client.is_asked_for(RootsPurpose::Compare) => {}
        OnRootsChange::Compare => {
            session.client.request_roots(None, RootsPurpose::Compare);
        }
        OnRootsChange::Reinit => {
            tracing::warn!(session = %session.handle(), "the client's roots changed; it is to start over");
            session.end(EndReason::RootsChanged).await;
            return Err(Refusal::SessionNotFound);
        }
        OnRootsChange::Terminate => {
            let said = notification.text();
            let said = String::from_utf8_lossy(&said[..said.len().min(500)]).into_owned();
            return Err(reject(session, &said).await);
        }
    }
    Ok(())
}

/// Ends a session whose client wants other directories than it was given.
pub(super) async fn reject(session: &Arc<Session>, attempted: &str) -> Refusal {
    let scope = session.scope().map(|scope| scope.paths());
    tracing::error!(
        session = %session.handle(),
        ?scope,
        attempted,
        "the client's roots changed after the scope was locked; the session ends"
    );
    let reason = EndReason::RootsChangeRejected;
    let reply = ErrorReply::new(
        code::INVALID_REQUEST,
        "Session terminated: roots change not allowed after sandbox lock. The client's folders changed, and a session \
         keeps the directory that it began with: reconnect to start a new session with the new ones. With \
         `--on-roots-change compare`, the operator keeps sessions whose new roots lie in their scope; with `reinit`, \
         clients that reconnect by themselves do so",
    )
    .with_data(json!({ "reason": reason.as_str() }));
    session.end_with(reason, Some(reply.clone())).await;
    Refusal::Terminated(Box::new(reply))
}

/// The client was asked what its changed roots are.
pub(super) fn compare(session: &Arc<Session>, response: &Response) {
    let answer = RootsAnswer::read(response);
    let session = Arc::clone(session);
    Arc::clone(&session.context).tasks.spawn(async move {
        let attempted: String = format!("{answer:?}").chars().take(MAX_QUOTED).collect();
        let rights = Arc::clone(session.rights());
        let changed = session.context.look_at_files(move |rules| rules.of_roots(answer, &rights)).await;
        let is_within = matches!(
            (&changed, &session.scope()), (Ok(changed), Some(scope)) if scope.directories.contain(&changed.directories)
        );
        if is_within {
            tracing::info!(session = %session.handle(), "the client's roots changed within the scope");
        } else {
            reject(&session, &attempted).await;
        }
    });
}
