//! Sessions that ended for a reason which their users should hear, kept for a while.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use identity::SessionKey;
use wire::ErrorReply;

/// After this the session is as unknown as any other.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// More than this are not kept; the oldest goes.
const MAX_TOMBSTONES: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Tombstones(Mutex<VecDeque<Tombstone>>);

#[derive(Debug)]
struct Tombstone {
    key: SessionKey,
    words: ErrorReply,
    since: Instant,
}

impl Tombstones {
    pub(crate) fn add(&self, key: SessionKey, words: ErrorReply) {
        let mut stones = self.0.lock();
        if stones.len() >= MAX_TOMBSTONES {
            stones.pop_front();
        }
        stones.push_back(Tombstone { key, words, since: Instant::now() });
    }

    pub(crate) fn find(&self, key: &SessionKey) -> Option<ErrorReply> {
        self.find_at(key, Instant::now())
    }

    fn find_at(&self, key: &SessionKey, now: Instant) -> Option<ErrorReply> {
        let mut stones = self.0.lock();
        let is_old = |stone: &Tombstone| now.saturating_duration_since(stone.since) >= KEPT_FOR;
        while stones.front().is_some_and(is_old) {
            stones.pop_front();
        }
        stones.iter().find(|stone| stone.key == *key).map(|stone| stone.words.clone())
    }
}

#[cfg(test)]
mod tests;
