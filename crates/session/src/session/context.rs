//! What is said about a session: reading it, and changing it.

use super::Session;
use crate::client::{ContextReport, update_context};
use crate::session_context::{Author, ContextError, ContextUpdate};

impl Session {
    pub fn context_report(&self) -> ContextReport {
        ContextReport::of(&self.client)
    }

    /// Changes what is said about the session. Returns when that is on the disk.
    pub async fn update_context(
        &self,
        update: &ContextUpdate,
        by: Author,
    ) -> Result<ContextReport, ContextError> {
        update_context(&self.client, update, by)?.await;
        Ok(self.context_report())
    }
}
