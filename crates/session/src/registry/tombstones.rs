//! Sessions that ended for a reason which their users should hear, kept for a while.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use identity::RecordKey;
use jiff::Timestamp;
use store::EndRow;
use wire::ErrorReply;

use crate::settings::KEPT_TOMBSTONES_FOR;

/// More than this are not kept; the oldest goes.
const MAX_TOMBSTONES: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Tombstones(Mutex<VecDeque<Tombstone>>);

#[derive(Debug)]
struct Tombstone {
    key: RecordKey,
    words: ErrorReply,
    since: Instant,
}

impl Tombstones {
    /// Those of an earlier gateway.
    pub(crate) fn of(rows: Vec<EndRow>) -> Self {
        let (now, today) = (Instant::now(), Timestamp::now().as_second());
        let mut stones: Vec<Tombstone> = rows
            .into_iter()
            .filter_map(|row| {
                let left =
                    Duration::from_secs(u64::try_from(row.until - today).ok()?).min(KEPT_TOMBSTONES_FOR);
                let since = now.checked_sub(KEPT_TOMBSTONES_FOR.saturating_sub(left))?;
                Some(Tombstone { key: row.key, words: serde_json::from_str(&row.body).ok()?, since })
            })
            .collect();
        stones.sort_by_key(|stone| stone.since);
        let surplus = stones.len().saturating_sub(MAX_TOMBSTONES);
        Self(Mutex::new(stones.into_iter().skip(surplus).collect()))
    }

    pub(crate) fn add(&self, key: RecordKey, words: ErrorReply) {
        let mut stones = self.0.lock();
        if stones.len() >= MAX_TOMBSTONES {
            stones.pop_front();
        }
        stones.push_back(Tombstone { key, words, since: Instant::now() });
    }

    pub(crate) fn find(&self, key: &RecordKey) -> Option<ErrorReply> {
        self.find_at(key, Instant::now())
    }

    fn find_at(&self, key: &RecordKey, now: Instant) -> Option<ErrorReply> {
        let mut stones = self.0.lock();
        let is_old = |stone: &Tombstone| now.saturating_duration_since(stone.since) >= KEPT_TOMBSTONES_FOR;
        while stones.front().is_some_and(is_old) {
            stones.pop_front();
        }
        stones.iter().find(|stone| stone.key == *key).map(|stone| stone.words.clone())
    }
}

#[cfg(test)]
mod tests;
