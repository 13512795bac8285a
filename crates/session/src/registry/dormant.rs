//! Sessions of an earlier gateway whose clients have not come back yet. They hold no process and no place among the
//! allowed number.

use std::collections::HashMap;
use std::time::Duration;

use identity::RecordKey;
use jiff::Timestamp;
use parking_lot::Mutex;
use store::Loaded;

use crate::durable::StoredCall;
use crate::record::EndReason;
use crate::settings::Settings;
use crate::stored::{StoredError, StoredSession};

/// More sessions than this are not kept; those that were not used for the longest go.
const MAX_DORMANT: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Dormant(Mutex<HashMap<RecordKey, DormantSession>>);

#[derive(Debug)]
pub(super) struct DormantSession {
    pub(super) stored: StoredSession,
    /// Calls whose answers its client may come for, by their streams.
    pub(super) calls: Vec<(u64, StoredCall)>,
    /// What its rows take in the database, about.
    bytes: u64,
}

/// The database gives back whole pages of this size.
const PAGE: u64 = 4096;

/// What a row takes in the database.
fn size_of(body: &str) -> u64 {
    (body.len() as u64).next_multiple_of(PAGE)
}

impl Dormant {
    /// Reads what the store has. Returns the keys of rows that are of no use.
    pub(super) fn of(loaded: Loaded) -> (Self, Vec<RecordKey>) {
        let (mut sessions, mut useless) = (HashMap::with_capacity(loaded.sessions.len()), Vec::new());
        let now = Timestamp::now();
        for row in loaded.sessions {
            match StoredSession::read(&row.body) {
                Ok(mut stored) => {
                    stored.not_after(now);
                    let bytes = size_of(&row.body);
                    sessions.insert(row.key, DormantSession { stored, calls: Vec::new(), bytes });
                }
                // It is for the program that wrote it.
                Err(error @ StoredError::Newer(_)) => {
                    tracing::warn!(record = ?row.key, "a session is left alone: {error}");
                }
                Err(error) => {
                    tracing::error!(record = ?row.key, "a session is lost: {error}");
                    useless.push(row.key);
                }
            }
        }
        for row in loaded.calls {
            let call = serde_json::from_str(&row.body);
            if let (Some(session), Ok(call)) = (sessions.get_mut(&row.session), call) {
                session.bytes += size_of(&row.body);
                session.calls.push((row.stream, call));
            }
        }
        let mut ages: Vec<_> =
            sessions.iter().map(|(key, session)| (session.stored.last_used, *key)).collect();
        ages.sort_unstable();
        for (_, key) in ages.iter().take(ages.len().saturating_sub(MAX_DORMANT)) {
            sessions.remove(key);
            useless.push(*key);
        }
        (Self(Mutex::new(sessions)), useless)
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn holds(&self, key: RecordKey) -> bool {
        self.0.lock().contains_key(&key)
    }

    pub(super) fn take(&self, key: RecordKey) -> Option<DormantSession> {
        self.0.lock().remove(&key)
    }

    pub(super) fn put_back(&self, key: RecordKey, session: DormantSession) {
        self.0.lock().insert(key, session);
    }

    /// The key of the session with this handle.
    pub(super) fn find(&self, handle: &str) -> Option<RecordKey> {
        let sessions = self.0.lock();
        sessions.iter().find(|(_, session)| session.stored.handle == handle).map(|(key, _)| *key)
    }

    /// Something of each, for reports.
    pub(super) fn report<Report>(&self, report: impl Fn(&StoredSession) -> Report) -> Vec<Report> {
        self.0.lock().values().map(|session| report(&session.stored)).collect()
    }

    /// Something of the one with this handle.
    pub(super) fn report_of<Report>(
        &self,
        handle: &str,
        report: impl Fn(&StoredSession) -> Report,
    ) -> Option<Report> {
        let sessions = self.0.lock();
        sessions
            .values()
            .find(|session| session.stored.handle == handle)
            .map(|session| report(&session.stored))
    }

    /// Takes out those that were not used for the longest, until so many bytes of the database are free.
    pub(super) fn make_room(&self, bytes: u64) -> Vec<RecordKey> {
        let mut sessions = self.0.lock();
        let mut ages: Vec<_> =
            sessions.iter().map(|(key, session)| (session.stored.last_used, *key, session.bytes)).collect();
        ages.sort_unstable();
        let mut freed = 0;
        let takes = ages.into_iter().take_while(|(_, _, size)| {
            let is_wanted = freed < bytes;
            freed += size;
            is_wanted
        });
        let gone: Vec<RecordKey> = takes.map(|(_, key, _)| key).collect();
        for key in &gone {
            sessions.remove(key);
        }
        gone
    }

    /// Something of each that was not used for so long. Unless it is to be kept, it is taken out.
    pub(super) fn prune<Report>(
        &self,
        unused_for: Duration,
        keep: bool,
        report: impl Fn(&StoredSession) -> Report,
    ) -> Vec<(RecordKey, Report)> {
        let now = Timestamp::now();
        let mut sessions = self.0.lock();
        let unused = sessions.iter().filter(|(_, session)| session.stored.is_unused_for(unused_for, now));
        let mut found: Vec<_> = unused.map(|(key, session)| (session.stored.last_used, *key)).collect();
        found.sort_unstable();
        let reports = found
            .into_iter()
            .filter_map(|(_, key)| Some((key, report(&sessions.get(&key)?.stored))))
            .collect::<Vec<_>>();
        if !keep {
            for (key, _) in &reports {
                sessions.remove(key);
            }
        }
        reports
    }

    /// Changes the one with this handle. `queue` hands the change on before another one can be made.
    pub(super) fn update<Error, Queued>(
        &self,
        handle: &str,
        change: impl FnOnce(&mut StoredSession) -> Result<(), Error>,
        queue: impl FnOnce(RecordKey, &StoredSession) -> Queued,
    ) -> Option<Result<Queued, Error>> {
        let mut sessions = self.0.lock();
        let (key, session) = sessions.iter_mut().find(|(_, session)| session.stored.handle == handle)?;
        Some(change(&mut session.stored).map(|()| queue(*key, &session.stored)))
    }

    /// Takes out those whose time is over.
    pub(super) fn expire(&self, now: Timestamp, settings: &Settings) -> Vec<(RecordKey, EndReason)> {
        let mut expired = Vec::new();
        self.0.lock().retain(|key, session| match session.stored.end_by(now, settings) {
            Some(reason) => {
                expired.push((*key, reason));
                false
            }
            None => true,
        });
        expired
    }
}

#[cfg(test)]
mod tests;
