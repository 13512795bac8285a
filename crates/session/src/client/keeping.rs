//! Hands a client's record to the store. The row is made and queued while the record is locked, so that no old state
//! follows a new one, and nothing follows an end.

use std::path::PathBuf;

use jiff::Timestamp;
use wire::LogLevel;

use super::Client;

/// Writes the record. Resolves when it is on the disk.
pub(crate) fn save(client: &Client) -> impl Future<Output = ()> + use<> {
    let last_used = last_used(client);
    client.context.durable.save_session(&client.record(), last_used)
}

/// Writes the record soon.
pub(crate) fn note(client: &Client) {
    let last_used = last_used(client);
    client.context.durable.note_session(&client.record(), last_used);
}

/// Remembers how much the client wants to hear.
pub(crate) fn note_log_level(client: &Client, level: LogLevel) {
    client.record().log_level = Some(level);
    note(client);
}

/// Remembers that a client has used the session.
pub(super) fn note_agent(client: &Client, name: &str) {
    let is_new = client.record().context.note_agent(name, Timestamp::now());
    if is_new {
        note(client);
    }
}

/// Where a server of this session alone keeps what outlives the gateway, if anything does.
pub(crate) fn state_place(client: &Client, server: &str) -> Option<PathBuf> {
    client.context.durable.state_place(client.record_key, server)
}

pub(super) fn last_used(client: &Client) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(client.activity().idle).unwrap_or(now)
}
