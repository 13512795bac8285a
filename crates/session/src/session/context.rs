//! What is said about a session: reading it, and changing it.

use super::Session;
use crate::client::{ContextReport, update_context};
use crate::session_context::{Author, ContextError, ContextUpdate};

impl ContextReport {
    pub fn of_session(session: &Session) -> Self {
        Self::of(&session.client)
    }
}

/// Changes what is said about a session. Returns when that is on the disk.
pub async fn update_session_context(
    session: &Session,
    update: &ContextUpdate,
    by: Author,
) -> Result<ContextReport, ContextError> {
    update_context(&session.client, update, by)?.await;
    Ok(ContextReport::of_session(session))
}
