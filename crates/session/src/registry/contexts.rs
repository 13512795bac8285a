//! What is said about sessions, for the operator, who names them by their handles; also those whose clients have not come
//! back.

use jiff::Timestamp;

use super::Sessions;
use crate::client::ContextReport;
use crate::session::update_session_context;
use crate::session_context::{Author, ContextError, ContextUpdate};
use crate::stored::StoredSession;

/// What is said about a session. `None`: there is none with this handle.
pub fn context_of(sessions: &Sessions, handle: &str) -> Option<ContextReport> {
    let open = sessions.find_by_handle(handle).map(|session| ContextReport::of_session(&session));
    open.or_else(|| sessions.dormant.report_of(handle, ContextReport::of_stored))
}

/// Changes what is said about a session. `None`: there is none with this handle.
pub async fn update_context_of(
    sessions: &Sessions,
    handle: &str,
    update: &ContextUpdate,
) -> Option<Result<ContextReport, ContextError>> {
    let change =
        |stored: &mut StoredSession| stored.context.update(update, Author::Operator, Timestamp::now());
    let queue = |key, stored: &StoredSession| {
        (sessions.context.durable.save_stored(key, stored), ContextReport::of_stored(stored))
    };
    match sessions.dormant.update(handle, change, queue) {
        Some(Ok((saved, report))) => {
            saved.await;
            Some(Ok(report))
        }
        Some(Err(error)) => Some(Err(error)),
        None => {
            let session = sessions.find_by_handle(handle)?;
            Some(update_session_context(&session, update, Author::Operator).await)
        }
    }
}
