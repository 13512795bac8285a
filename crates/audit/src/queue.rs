//! What waits for the writer. Bounded: what does not fit is counted.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::entry::AuditEntry;
use crate::timestamp::Timestamp;

/// Entries that wait at most: some tenths of a second of the busiest gateway.
const MAX_QUEUED_ENTRIES: usize = 16 * 1024;

/// What they may weigh together.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Queue {
    max_entries: usize,
    max_bytes: usize,
    state: Mutex<State>,
    /// Advertised when there is something to write.
    filled: Condvar,
    /// Advertised when something was written.
    written: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<(Timestamp, AuditEntry)>,
    bytes: usize,
    /// Entries that did not fit since the writer was here last.
    lost: u64,
    /// Entries offered so far, and how many of these the writer is done with.
    offered: u64,
    done: u64,
    is_closed: bool,
    is_over: bool,
}

/// What the writer takes at once.
pub(super) struct Batch {
    pub(super) entries: Vec<(Timestamp, AuditEntry)>,
    /// Entries that there was no room for after these.
    pub(super) lost: u64,
    /// Everything offered up to here is in this batch or an earlier one.
    offered: u64,
    /// No more will come.
    pub(super) is_last: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self::bounded(MAX_QUEUED_ENTRIES, MAX_QUEUED_BYTES)
    }
}

impl Queue {
    pub(super) fn bounded(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            state: Mutex::default(),
            filled: Condvar::new(),
            written: Condvar::new(),
            lost: AtomicU64::new(0),
        }
    }

    pub(super) fn push(&self, entry: AuditEntry) {
        let weight = entry.weight();
        let mut state = self.lock();
        state.offered += 1;
        let was_empty = state.entries.is_empty() && state.lost == 0;
        let has_room = state.entries.len() < self.max_entries && state.bytes + weight <= self.max_bytes;
        let is_taken = has_room && !state.is_closed;
        if is_taken {
            // The time is taken here so that times follow each other as the lines do.
            state.entries.push((Timestamp::now(), entry));
            state.bytes += weight;
        } else {
            state.lost += 1;
        }
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        // One line in our own log for a thousand.
        if !is_taken && self.count_lost(1).is_multiple_of(1000) {
            tracing::warn!("entries for the audit log are lost: it cannot keep up, or is closed");
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts entries as lost; returns how many had been before.
    pub(super) fn count_lost(&self, entries: u64) -> u64 {
        self.lost.fetch_add(entries, Ordering::Relaxed)
    }

    pub(super) fn wait_until_written(&self) {
        let mut state = self.lock();
        let offered = state.offered;
        while state.done < offered && !state.is_over {
            self.written.wait(&mut state);
        }
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Waits for something to write, at most for `patience`.
    pub(super) fn take(&self, patience: Option<Duration>) -> Batch {
        let mut state = self.lock();
        while state.entries.is_empty() && state.lost == 0 && !state.is_closed {
            match patience {
                None => self.filled.wait(&mut state),
                Some(patience) => {
                    if self.filled.wait_for(&mut state, patience).timed_out() {
                        break;
                    }
                }
            }
        }
        Self::batch(state)
    }

    fn batch(mut state: MutexGuard<'_, State>) -> Batch {
        state.bytes = 0;
        Batch {
            entries: std::mem::take(&mut state.entries),
            lost: std::mem::take(&mut state.lost),
            offered: state.offered,
            is_last: state.is_closed,
        }
    }

    /// The writer is through with a batch, for good or bad.
    pub(super) fn finish(&self, offered: u64) {
        self.lock().done = offered;
        self.written.notify_all();
    }

    /// The writer has ended; nobody is to wait for it.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.is_over = true;
        drop(state);
        self.written.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Batch {
    pub(super) fn offered(&self) -> u64 {
        self.offered
    }
}
