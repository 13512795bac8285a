//! What is said about the session of a client, as a report, and changes of it.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use super::Client;
use super::keeping::{last_used, save};
use crate::session_context::{Author, ContextError, ContextUpdate, SessionContext};
use crate::stored::StoredSession;

/// What a session is, for those who come back to it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContextReport {
    /// The handle.
    session: String,
    #[serde(flatten)]
    context: SessionContext,
    client: String,
    instance: String,
    /// The directories of its scope, once that is locked.
    workspace: Vec<PathBuf>,
    created: Timestamp,
    last_used: Timestamp,
    /// How many gateways had it before.
    restarts: u32,
}

impl ContextReport {
    pub(crate) fn of(client: &Client) -> Self {
        let last_used = last_used(client);
        let record = client.record();
        Self {
            session: client.handle().to_string(),
            context: record.context.clone(),
            client: record.client.clone(),
            instance: record.instance.to_string(),
            workspace: record.scope.as_ref().map(|scope| scope.paths()).unwrap_or_default(),
            created: record.opened,
            last_used,
            restarts: record.epoch,
        }
    }

    pub(crate) fn of_stored(stored: &StoredSession) -> Self {
        Self {
            session: stored.handle.clone(),
            context: stored.context.clone(),
            client: stored.client.clone(),
            instance: stored.instance.clone(),
            workspace: stored.directories(),
            created: stored.opened,
            last_used: stored.last_used,
            restarts: stored.epoch,
        }
    }
}

/// Changes what is said about the session of a client. Resolves when that is on the disk, if sessions are kept there.
pub(crate) fn update_context(
    client: &Client,
    update: &ContextUpdate,
    by: Author,
) -> Result<impl Future<Output = ()> + use<>, ContextError> {
    client.record().context.update(update, by, Timestamp::now())?;
    Ok(save(client))
}
