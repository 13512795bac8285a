//! Callers whose tokens were taken away: what they have open ends, too, not only what they ask for next.

use std::sync::Arc;
use std::time::Duration;

use session::EndReason;

use crate::Gateway;
use crate::authentication::Authentication;

/// How often the tokens are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An editor may have emptied the file on its way to write it.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(3);

/// Ends the sessions of callers whose tokens have gone from the file. Never returns.
pub(crate) async fn watch(gateway: &Gateway) {
    let Authentication::Tokens(store) = &gateway.config.authentication else {
        return std::future::pending().await;
    };
    let mut before = store.current();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if Arc::ptr_eq(&before, &store.current()) {
            continue;
        }
        tokio::time::sleep(SECOND_LOOK_AFTER).await;
        let now = store.current();
        for session in gateway.sessions.all() {
            if before.still_holds_for(&session.key().principal, &now) {
                continue;
            }
            tracing::info!(session = %session.handle(), "the token of its caller was taken away");
            let sessions = Arc::clone(&gateway.sessions);
            // It may have ended by itself.
            tokio::spawn(async move { sessions.end(session.key(), EndReason::AccessWithdrawn).await });
        }
        before = now;
    }
}
