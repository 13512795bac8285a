//! The thread that sends a log: reads a batch, sends it until it is acknowledged, moves the cursor on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Sink;
use super::cursor::Cursor;
use super::follower::{Batch, Follower};
use crate::entry::AuditEntry;
use crate::queue::Queue;

/// The pause after a failure, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often a batch that is not full is sent. The records of the time in between go together.
const EVERY: Duration = Duration::from_secs(1);

/// How long the end of the gateway may be delayed for the last records. What is left is sent by the next gateway.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// The running thread.
#[derive(Debug)]
pub(crate) struct Shipper {
    /// The number of the last record that the sink has acknowledged.
    sent: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shipper {
    /// `written`: the number of the last record in the log, until the writer ends. `queue`: for entries about what the
    /// sink has missed.
    pub(crate) fn start(
        sink: Sink,
        log: &Path,
        written: watch::Receiver<u64>,
        queue: Arc<Queue>,
    ) -> io::Result<Self> {
        let last = *written.borrow();
        let follower = Follower::new(log, Cursor::load(log), last);
        let sent = Arc::new(AtomicU64::new(follower.cursor().seq));
        let shipment = Shipment {
            sink,
            log: log.to_owned(),
            follower,
            pending: None,
            pause: FIRST_PAUSE,
            written,
            queue,
            sent: Arc::clone(&sent),
            failure: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("ringfence-sink".to_owned());
        let thread = thread.spawn(move || runtime.block_on(shipment.run()))?;
        Ok(Self { sent, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Waits for the thread, which ends soon after the writer.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

struct Shipment {
    sink: Sink,
    log: PathBuf,
    follower: Follower,
    /// Read, but not acknowledged.
    pending: Option<Batch>,
    pause: Duration,
    written: watch::Receiver<u64>,
    queue: Arc<Queue>,
    sent: Arc<AtomicU64>,
    /// The last error, so that each is logged once.
    failure: Option<String>,
}

impl Shipment {
    /// Sends until the writer has ended and everything is sent, or some time has passed.
    async fn run(mut self) {
        let mut written = self.written.clone();
        tokio::select! {
            () = self.ship() => {}
            () = async { ended(&mut written).await; sleep(FINISH_WITHIN).await } => {}
        }
        let unsent = self.written.borrow().saturating_sub(self.sent.load(Ordering::Relaxed));
        if unsent > 0 {
            tracing::warn!("{unsent} records of the audit log are not sent yet; the next gateway sends them");
        }
    }

    async fn ship(&mut self) {
        loop {
            let begun = Instant::now();
            // Asked first: what the writer wrote last is then read.
            let has_ended = self.written.has_changed().is_err();
            match self.send_next().await {
                Ok(Sent::Full) => {}
                Ok(Sent::Some) => pause(begun + EVERY, &self.written).await,
                Ok(Sent::Nothing) | Err(()) if has_ended => return,
                Ok(Sent::Nothing) => drop(self.written.changed().await),
                Err(()) => {
                    pause(Instant::now() + self.pause, &self.written).await;
                    self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn send_next(&mut self) -> Result<Sent, ()> {
        let batch = match self.pending.take() {
            Some(batch) => batch,
            None => self.read()?,
        };
        if batch.lines.is_empty() {
            return Ok(Sent::Nothing);
        }
        if let Err(error) = self.sink.delivery.send(&batch).await {
            self.pending = Some(batch);
            self.failed(&format!("the audit sink {} takes no records", self.sink.address), &error);
            return Err(());
        }
        self.acknowledged();
        Ok(if batch.is_full() { Sent::Full } else { Sent::Some })
    }

    fn read(&mut self) -> Result<Batch, ()> {
        let last = *self.written.borrow_and_update();
        let batch = match self.follower.read(last) {
            Ok(batch) => batch,
            Err(error) => {
                self.failed("the audit log cannot be read to be sent", &error);
                return Err(());
            }
        };
        if batch.missed > 0 {
            tracing::error!(
                "{} records of the audit log were deleted before the sink {} had them",
                batch.missed,
                self.sink.address
            );
            self.queue.push(AuditEntry::SinkMissed { count: batch.missed });
        }
        Ok(batch)
    }

    fn acknowledged(&mut self) {
        let cursor = self.follower.cursor();
        if let Err(error) = cursor.save(&self.log) {
            // They are sent, so going on is right; after a restart they are sent again.
            self.failed("the place in the audit log cannot be saved", &error);
        } else if self.failure.take().is_some() {
            tracing::info!("the audit sink {} takes records again", self.sink.address);
        }
        self.sent.store(cursor.seq, Ordering::Relaxed);
        self.pause = FIRST_PAUSE;
    }

    /// Logs a failure, once while it stays the same.
    fn failed(&mut self, what: &str, error: &dyn std::fmt::Display) {
        let failure = format!("{what}: {error}");
        if self.failure.as_ref() != Some(&failure) {
            tracing::warn!("{failure}; the records stay in the log and are sent later");
            self.failure = Some(failure);
        }
    }
}

enum Sent {
    Nothing,
    Some,
    /// A full batch: there is probably more.
    Full,
}

/// Resolves when the writer has ended.
async fn ended(written: &mut watch::Receiver<u64>) {
    while written.changed().await.is_ok() {}
}

/// Waits until then, or until the writer has ended.
async fn pause(until: Instant, written: &watch::Receiver<u64>) {
    let mut written = written.clone();
    tokio::select! {
        () = sleep_until(until) => {}
        () = ended(&mut written) => {}
    }
}
