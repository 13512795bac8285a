//! The audit log: JSON lines that are chained by hash and only ever appended.
//!
//! The principal type is [`AuditLog`]. [`AuditLog::record`] queues an [`AuditEntry`] and never waits; a separate thread
//! writes. [`verify()`] finds later changes, [`read()`] returns the lines.
//!
//! ```text
//! {"seq":7,"time":"2026-01-31T12:00:00.000Z","event":"tool_called",…,"previous":"<hash of line 6>","hash":"…"}
//! ```
//!
//! `hash` is SHA-256 over the bytes of the line before `,"hash":`. A line that was changed, removed, inserted or
//! moved breaks the chain. Two changes do not: cutting off the newest lines, and replacing the whole log by a new
//! chain. To detect both, keep the last hash elsewhere and pass it to [`verify()`], or send the log elsewhere while it
//! is written ([`AuditLog::ship_to`]). With an [`AuditKey`] the hashes are HMACs, and only its owner can make a chain.

mod chain;
mod command_text;
mod entry;
mod file;
mod files;
mod key;
mod queue;
mod read;
mod sink;
mod timestamp;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tokio::sync::watch;

pub use chain::{AuditHash, HashError, LineError};
pub use command_text::redact_command;
pub use entry::{AuditArguments, AuditEntry, AuditText, CallOutcome};
pub use file::OpenError;
pub use key::{AuditKey, KeyMismatch, KeyTooShort};
pub use read::{AuditLine, AuditLines, read};
pub use sink::{Sink, SinkAddress, SinkAddressError, SinkError};
pub use timestamp::Timestamp;
pub use verify::{Verified, VerifyError, verify};

use file::LogFile;
use queue::Queue;
use sink::Shipper;
use writer::Writer;

/// When a file is rotated, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub struct AuditSettings {
    /// A file of this size is renamed to `FILE.1`, and a new one is created.
    pub max_file_bytes: u64,
    /// Rotated files that are kept; older ones are deleted.
    pub kept_files: u32,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { max_file_bytes: 64 * 1024 * 1024, kept_files: 8 }
    }
}

/// The log of this process. Call [`AuditLog::close`] at the end, or the last entries may not reach the disk.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    queue: Arc<Queue>,
    /// The writer thread; taken by [`AuditLog::close`].
    writer: Mutex<Option<JoinHandle<()>>>,
    /// The number of the last record in the file.
    written: watch::Receiver<u64>,
    shipper: OnceLock<Shipper>,
}

impl AuditLog {
    /// Opens the log at `path` and continues it, or creates it. A log that was begun with a key is opened only with
    /// that key, and one without a key only without.
    pub fn open(path: &Path, settings: AuditSettings, key: Option<AuditKey>) -> Result<Self, OpenError> {
        Self::start(Arc::new(Queue::default()), path, settings, key)
    }

    fn start(
        queue: Arc<Queue>,
        path: &Path,
        settings: AuditSettings,
        key: Option<AuditKey>,
    ) -> Result<Self, OpenError> {
        let (file, chain) = LogFile::open(path, settings, key)?;
        let writer = Writer::new(Arc::clone(&queue), file, chain);
        let written = writer.written();
        let thread = std::thread::Builder::new()
            .name("ringfence-audit".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let (path, writer) = (path.to_owned(), Mutex::new(Some(thread)));
        Ok(Self { path, queue, writer, written, shipper: OnceLock::new() })
    }

    /// Sends all records to a sink from now on, those that are in the files already included. A log has one sink.
    pub fn ship_to(&self, sink: Sink) -> io::Result<()> {
        let queue = Arc::clone(&self.queue);
        let shipper = Shipper::start(sink, &self.path, self.written.clone(), queue)?;
        let _ = self.shipper.set(shipper);
        Ok(())
    }

    /// Records that the sink has not acknowledged; `None` without a sink.
    pub fn unsent(&self) -> Option<u64> {
        let written = *self.written.borrow();
        self.shipper.get().map(|shipper| written.saturating_sub(shipper.sent()))
    }

    /// Queues an entry. Never waits for the disk: entries that do not fit are counted, and the log records how many
    /// were lost.
    pub fn record(&self, entry: AuditEntry) {
        self.queue.push(entry);
    }

    /// Entries lost since the log was opened, because the queue was full or writing failed.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }

    /// Waits until all entries recorded so far are given to the kernel. Blocks the thread.
    pub fn flush(&self) {
        self.queue.wait_until_written();
    }

    /// Writes the remaining entries, waits until they are on disk, and closes the file. Later entries count as lost.
    /// Waits some seconds for the sink. Blocks the thread.
    pub fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        if let Some(shipper) = self.shipper.get() {
            shipper.join();
        }
    }
}

impl Drop for AuditLog {
    /// The writer thread writes the remaining entries and ends; this does not wait for it.
    fn drop(&mut self) {
        self.queue.close();
    }
}
