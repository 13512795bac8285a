//! What becomes of stored sessions whose clients do not come back: their time ends, they make room for others, or the
//! operator prunes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use store::{Change, Loaded, Store};

use super::Sessions;
use super::dormant::Dormant;
use crate::gateway_context::GatewayContext;
use crate::record::EndReason;
use crate::session::SessionOverview;

/// Sessions are taken out ahead of need by this share of what the database may take, so that it does not happen with each
/// write.
const HEADROOM: u64 = 16;

/// When the last sessions were taken out for room, by how often the database had been written.
#[derive(Debug, Default)]
pub(super) struct Evictions(AtomicU64);

impl Evictions {
    /// Takes out the stored sessions that were not used for the longest, if the database is larger than it may be.
    pub(super) fn make_room(&self, dormant: &Dormant, context: &GatewayContext) {
        let (excess, writes) = context.durable.excess();
        // What went the last time must be out of the database before its size says anything new.
        if excess == 0 || writes < self.0.load(Ordering::Relaxed) {
            return;
        }
        let gone = dormant.make_room(excess + context.settings.max_stored_bytes / HEADROOM);
        if gone.is_empty() {
            return;
        }
        tracing::warn!(
            sessions = gone.len(),
            "stored sessions are forgotten, because the database has reached its size; hint: --state-size"
        );
        for key in gone {
            context.counters.session_ended(EndReason::Evicted);
            context.durable.session_expired(key);
        }
        // The batch that is being written may have been taken before, so the one after it has them.
        self.0.store(writes + 2, Ordering::Relaxed);
    }
}

/// Lets go of sessions whose clients did not come back in time.
pub(super) fn expire(dormant: &Dormant, context: &GatewayContext) {
    for (key, reason) in dormant.expire(Timestamp::now(), &context.settings) {
        context.counters.session_ended(reason);
        context.durable.session_expired(key);
    }
}

impl Sessions {
    /// Forgets stored sessions that were not used for so long, and returns what they were, the longest unused first. If
    /// it is only a trial, they stay. Sessions that are open are none of them.
    pub async fn prune(&self, unused_for: Duration, is_trial: bool) -> Vec<SessionOverview> {
        let mut last = None;
        let mut pruned = Vec::new();
        for (key, overview) in self.dormant.prune(unused_for, is_trial, SessionOverview::of_stored) {
            pruned.push(overview);
            if !is_trial {
                self.context.counters.session_ended(EndReason::Stopped);
                last = Some(self.context.durable.session_ended(key, None));
            }
        }
        // They reach the disk together, or in this order.
        if let Some(written) = last {
            written.await;
        }
        pruned
    }
}

/// The same in the store of a gateway that does not run.
pub fn prune_store(
    store: &Store,
    loaded: Loaded,
    unused_for: Duration,
    is_trial: bool,
) -> Vec<SessionOverview> {
    let (dormant, _) = Dormant::of(loaded);
    let pruned = dormant.prune(unused_for, is_trial, SessionOverview::of_stored);
    if !is_trial {
        for (key, _) in &pruned {
            store.note(Change::Ended { key: *key, end: None });
        }
        store.close();
    }
    pruned.into_iter().map(|(_, overview)| overview).collect()
}
