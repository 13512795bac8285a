//! Which changes of sessions reach the store, and which of them a client waits for.
//!
//! A client waits for its session to be opened, for its scope, and for its end: these must outlive a power failure. All
//! else is written soon.

use std::path::PathBuf;

use identity::RecordKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{CallRow, Change, Condition, EndRow, SessionRow, Store};
use wire::{ErrorReply, Text};

use crate::lost_call::LostCall;
use crate::record::SessionRecord;
use crate::settings::KEPT_TOMBSTONES_FOR;
use crate::stored::StoredSession;

/// A longer answer is not kept for a client that may come back for it, only that there was one.
const LONGEST_ANSWER: usize = 256 * 1024;

/// The store of a gateway, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    store: Option<Store>,
    /// What the database may take on the disk.
    max_bytes: u64,
}

/// Beside the database: the state that servers of sessions keep, by session and server.
const SERVERS_STATE: &str = "servers";

/// A call that its client may ask for again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredCall {
    #[serde(flatten)]
    pub(crate) call: LostCall,
    /// The answer, if there was one that the client did not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<String>,
}

impl Durable {
    pub(crate) fn new(store: Option<Store>, max_bytes: u64) -> Self {
        Self { store, max_bytes }
    }

    /// Whether sessions outlive the gateway.
    pub(crate) fn is_kept(&self) -> bool {
        self.store.is_some()
    }

    pub(crate) fn condition(&self) -> Option<Condition> {
        self.store.as_ref().map(Store::condition)
    }

    /// How much larger than it may be the database is, and how often it was written.
    pub(crate) fn excess(&self) -> (u64, u64) {
        let usage = self.store.as_ref().map(Store::usage).unwrap_or_default();
        (usage.bytes.saturating_sub(self.max_bytes), usage.writes)
    }

    /// Where a server of a session keeps what outlives the gateway.
    pub(crate) fn state_place(&self, session: RecordKey, server: &str) -> Option<PathBuf> {
        // Names of servers may have any characters.
        let name = wire::hex(&Sha256::digest(server)[..16]);
        Some(self.state_places()?.join(wire::hex(session.as_bytes())).join(name))
    }

    fn state_places(&self) -> Option<PathBuf> {
        Some(self.store.as_ref()?.directory().join(SERVERS_STATE))
    }

    /// Removes what servers of a session have kept.
    fn remove_state(&self, session: RecordKey) {
        let Some(places) = self.state_places() else { return };
        let place = places.join(wire::hex(session.as_bytes()));
        let remove = move || match std::fs::remove_dir_all(&place) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::error!(?place, "the state of a session's servers cannot be removed: {error}");
            }
            _ => {}
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }

    /// Removes what servers of sessions have kept that are not known any more. Blocks.
    pub(crate) fn sweep_states(&self, is_known: impl Fn(&RecordKey) -> bool) {
        let listed = self.state_places().map(std::fs::read_dir);
        for entry in listed.into_iter().flatten().flatten().flatten() {
            let key = entry.file_name().to_str().and_then(wire::from_hex).map(RecordKey::from_bytes);
            if key.is_none_or(|key| !is_known(&key)) {
                let path = entry.path();
                tracing::info!(
                    ?path,
                    "the state of a session's servers is removed: there is no such session"
                );
                if let Err(error) = std::fs::remove_dir_all(&path) {
                    tracing::error!(?path, "it cannot be removed: {error}");
                }
            }
        }
    }

    /// Writes a record. Resolves when it is on the disk.
    pub(crate) fn save_session(
        &self,
        record: &SessionRecord,
        last_used: Timestamp,
    ) -> impl Future<Output = ()> + use<> {
        let store = self.store.as_ref();
        let saved = store.and_then(|store| Some(store.save(Change::Session(row(record, last_used)?))));
        resolved(saved)
    }

    /// Writes what is said about a session whose client has not come back. Resolves when it is on the disk.
    pub(crate) fn save_stored(
        &self,
        key: RecordKey,
        stored: &StoredSession,
    ) -> impl Future<Output = ()> + use<> {
        let row = SessionRow { key, body: stored.to_text() };
        resolved(self.store.as_ref().map(|store| store.save(Change::Session(row))))
    }

    /// Writes a record soon.
    pub(crate) fn note_session(&self, record: &SessionRecord, last_used: Timestamp) {
        if let Some(store) = &self.store
            && let Some(row) = row(record, last_used)
        {
            store.note(Change::Session(row));
        }
    }

    /// Removes a session. Resolves when that is on the disk. What its client is to hear of the end is kept for a while.
    pub(crate) fn session_ended(
        &self,
        key: RecordKey,
        error: Option<&ErrorReply>,
    ) -> impl Future<Output = ()> + use<> {
        let until = Timestamp::now().as_second().saturating_add_unsigned(KEPT_TOMBSTONES_FOR.as_secs());
        let end =
            error.and_then(|error| serde_json::to_string(error).ok()).map(|body| EndRow { key, until, body });
        self.remove_state(key);
        resolved(self.store.as_ref().map(|store| store.save(Change::Ended { key, end })))
    }

    /// Removes a session that was not used again.
    pub(crate) fn session_expired(&self, key: RecordKey) {
        self.remove_state(key);
        if let Some(store) = &self.store {
            store.note(Change::Ended { key, end: None });
        }
    }

    /// A client learns the event ids of a call, and may come back for its answer.
    pub(crate) fn call_streams(&self, session: RecordKey, stream: u64, call: LostCall) {
        self.note_call(session, stream, &StoredCall { call, answer: None });
    }

    /// The call was answered, but its client does not read the answer now.
    pub(crate) fn call_answered_unread(
        &self,
        session: RecordKey,
        stream: u64,
        mut call: LostCall,
        answer: &Text,
    ) {
        let has_room = answer.len() <= LONGEST_ANSWER && self.excess().0 == 0;
        let kept = if has_room { String::from_utf8(answer.clone().into_bytes().into()).ok() } else { None };
        if kept.is_none() {
            call.answer_bytes = Some(answer.len());
        }
        let answer = kept;
        self.note_call(session, stream, &StoredCall { call, answer });
    }

    fn note_call(&self, session: RecordKey, stream: u64, call: &StoredCall) {
        if let Some(store) = &self.store
            && let Ok(body) = serde_json::to_string(call)
        {
            store.note(Change::Call(CallRow { session, stream, body }));
        }
    }

    pub(crate) fn call_over(&self, session: RecordKey, stream: u64) {
        if let Some(store) = &self.store {
            store.note(Change::CallOver { session, stream });
        }
    }

    /// Writes everything that waits. Blocks.
    pub(crate) fn close(&self) {
        if let Some(store) = &self.store {
            store.close();
        }
    }
}

fn row(record: &SessionRecord, last_used: Timestamp) -> Option<SessionRow> {
    let body = StoredSession::of(record, last_used)?.to_text();
    Some(SessionRow { key: record.key.record_key(), body })
}

/// Waits for what there is to wait for.
pub(crate) async fn resolved(saved: Option<impl Future<Output = ()>>) {
    if let Some(saved) = saved {
        saved.await;
    }
}
