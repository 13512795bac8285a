//! The thread that writes: takes all changes that wait, writes them in one transaction, and tells those who wait for the
//! disk.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::Condition;
use crate::backlog::Backlog;
use crate::change::Change;
use crate::database::{Database, Durability};

/// How long changes that are not urgent are collected.
const COLLECT_FOR: Duration = Duration::from_millis(50);

/// The pause after a write failed, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the store and its writer share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Signalled when there is something to write, or when the writer must end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    backlog: Backlog,
    /// Since when something waits.
    since: Option<Instant>,
    /// Those who wait for the disk.
    waiting: Vec<oneshot::Sender<()>>,
    is_closing: bool,
    has_ended: bool,
    /// Why the last write failed.
    trouble: Option<String>,
    usage: Usage,
}

/// How large the database is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What its rows take, without pages that are free.
    pub bytes: u64,
    /// How often it was written. What was changed before a number of writes counts in it two writes later.
    pub writes: u64,
}

impl Shared {
    pub(crate) fn add(&self, change: Change) {
        let mut state = self.state.lock();
        if state.has_ended {
            return;
        }
        let was_empty = state.backlog.is_empty();
        state.backlog.add(change);
        state.since.get_or_insert_with(Instant::now);
        drop(state);
        if was_empty {
            self.changed.notify_one();
        }
    }

    /// Adds a change whose caller waits for the disk. Returns what resolves then; `None` if nothing is written any more.
    pub(crate) fn add_urgent(&self, change: Change) -> Option<oneshot::Receiver<()>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if state.has_ended {
            return None;
        }
        state.backlog.add(change);
        state.waiting.push(sender);
        drop(state);
        self.changed.notify_one();
        Some(receiver)
    }

    pub(crate) fn condition(&self) -> Condition {
        self.state.lock().trouble.clone().map_or(Condition::Healthy, Condition::Degraded)
    }

    /// Waits for something to write. Returns `None` when everything is written and the store is closed.
    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            if state.is_closing || !state.waiting.is_empty() {
                break;
            }
            let Some(since) = state.since else {
                self.changed.wait(&mut state);
                continue;
            };
            if self.changed.wait_until(&mut state, since + COLLECT_FOR).timed_out() {
                break;
            }
        }
        if state.backlog.is_empty() && state.waiting.is_empty() {
            state.has_ended = true;
            return None;
        }
        state.since = None;
        let durability = if state.waiting.is_empty() && !state.is_closing {
            Durability::OfTheProcess
        } else {
            Durability::OfTheMachine
        };
        let waiting = std::mem::take(&mut state.waiting);
        Some(Batch { changes: state.backlog.take(), waiting, durability })
    }

    pub(crate) fn usage(&self) -> Usage {
        self.state.lock().usage
    }

    fn note_success(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.usage = Usage { bytes, writes: state.usage.writes + 1 };
        let trouble = state.trouble.take();
        drop(state);
        if let Some(trouble) = trouble {
            tracing::info!("sessions are written to the disk again, after: {trouble}");
        }
    }

    /// Keeps what could not be written. Returns whether to try again; not if the store is closed.
    fn note_failure(&self, batch: Batch, reason: String, pause: Duration) -> bool {
        let Batch { changes, waiting, .. } = batch;
        let mut state = self.state.lock();
        state.backlog.put_back(changes);
        if state.trouble.as_ref() != Some(&reason) {
            tracing::error!(
                "sessions cannot be written to the disk, so they would not outlive this gateway: {reason}; hint: free \
                 space on the disk, or check its state; ringfence goes on and tries again"
            );
            state.trouble = Some(reason);
        }
        if state.is_closing {
            let lost = state.backlog.len();
            tracing::error!("{lost} changes of sessions are lost");
            state.backlog.take();
            state.has_ended = true;
            return false;
        }
        // Those who wait for the disk go on without it, also those who begin to wait meanwhile.
        drop(waiting);
        let deadline = Instant::now() + pause;
        while !state.is_closing && Instant::now() < deadline {
            self.changed.wait_until(&mut state, deadline);
            state.waiting.clear();
        }
        state.since = Some(Instant::now());
        true
    }
}

/// What is written in one transaction.
struct Batch {
    changes: Vec<Change>,
    waiting: Vec<oneshot::Sender<()>>,
    durability: Durability,
}

#[derive(Debug)]
pub(crate) struct Writer(Mutex<Option<JoinHandle<()>>>);

impl Writer {
    pub(crate) fn start(shared: Arc<Shared>, database: Database) -> io::Result<Self> {
        shared.state.lock().usage.bytes = database.used_bytes();
        let thread = std::thread::Builder::new().name("store".to_owned());
        let handle = thread.spawn(move || write_all(&shared, database))?;
        Ok(Self(Mutex::new(Some(handle))))
    }

    pub(crate) fn close(&self, shared: &Shared) {
        shared.state.lock().is_closing = true;
        shared.changed.notify_one();
        if let Some(handle) = self.0.lock().take() {
            // It panics never; if it did, there would be nothing left to write.
            let _ = handle.join();
        }
    }
}

fn write_all(shared: &Shared, mut database: Database) {
    let mut pause = FIRST_PAUSE;
    while let Some(batch) = shared.next_batch() {
        match database.write(&batch.changes, batch.durability) {
            Ok(()) => {
                shared.note_success(database.used_bytes());
                pause = FIRST_PAUSE;
                for sender in batch.waiting {
                    // The caller may have gone meanwhile.
                    let _ = sender.send(());
                }
                database.give_back_space();
            }
            Err(error) => {
                if !shared.note_failure(batch, error.to_string(), pause) {
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
