//! The queue before the writer. It is bounded: entries that do not fit are counted.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::entry::AuditEntry;
use crate::timestamp::Timestamp;

/// Most entries in the queue: those of some tenths of a second in the busiest gateway.
const MAX_QUEUED_ENTRIES: usize = 16 * 1024;

/// Most bytes in the queue.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Queue {
    max_entries: usize,
    max_bytes: usize,
    state: Mutex<State>,
    /// Notified when there is something to write.
    filled: Condvar,
    /// Notified when something was written.
    written: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<(Timestamp, AuditEntry)>,
    bytes: usize,
    /// Entries that did not fit since the last batch.
    lost: u64,
    /// Entries pushed so far, and how many of these the writer is done with.
    pushed: u64,
    done: u64,
    /// Later entries count as lost.
    is_closed: bool,
    /// The writer has ended.
    is_over: bool,
}

/// The entries that the writer takes at once.
pub(super) struct Batch {
    pub(super) entries: Vec<(Timestamp, AuditEntry)>,
    /// Entries after these that did not fit.
    pub(super) lost: u64,
    /// The number of entries in this batch and all earlier ones.
    pub(super) pushed: u64,
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
        state.pushed += 1;
        let was_empty = state.entries.is_empty() && state.lost == 0;
        let has_room = state.entries.len() < self.max_entries && state.bytes + weight <= self.max_bytes;
        let is_taken = has_room && !state.is_closed;
        if is_taken {
            // The time is taken under the lock, so that times and lines have the same order.
            state.entries.push((Timestamp::now(), entry));
            state.bytes += weight;
        } else {
            state.lost += 1;
        }
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        // Logs one in a thousand.
        if !is_taken && self.count_lost(1).is_multiple_of(1000) {
            tracing::warn!("the audit log loses entries: it cannot keep up, or is closed");
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts entries as lost. Returns the count before.
    pub(super) fn count_lost(&self, entries: u64) -> u64 {
        self.lost.fetch_add(entries, Ordering::Relaxed)
    }

    pub(super) fn wait_until_written(&self) {
        let mut state = self.lock();
        let pushed = state.pushed;
        while state.done < pushed && !state.is_over {
            self.written.wait(&mut state);
        }
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    /// Waits for something to write, at most for `timeout`.
    pub(super) fn take(&self, timeout: Option<Duration>) -> Batch {
        let mut state = self.lock();
        while state.entries.is_empty() && state.lost == 0 && !state.is_closed {
            match timeout {
                None => self.filled.wait(&mut state),
                Some(timeout) => {
                    if self.filled.wait_for(&mut state, timeout).timed_out() {
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
            pushed: state.pushed,
            is_last: state.is_closed,
        }
    }

    /// Marks the entries up to `pushed` as written or lost.
    pub(super) fn finish(&self, pushed: u64) {
        self.lock().done = pushed;
        self.written.notify_all();
    }

    /// Marks the writer as ended, and wakes the threads that wait for it.
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
