//! The audit log: what happened, as JSON lines that are chained by hash and only ever appended.
//!
//! The principal type is [`AuditLog`]. [`AuditLog::record`] takes an [`AuditEntry`] and never waits; a thread of
//! its own writes. [`verify()`] finds what was changed afterwards, [`read()`] gives the lines.
//!
//! ```text
//! {"seq":7,"time":"2026-01-31T12:00:00.000Z","event":"tool_called",…,"previous":"<hash of line 6>","hash":"…"}
//! ```
//!
//! `hash` is SHA-256 over the bytes of the line before `,"hash":`. A line that was changed, removed, inserted or
//! moved breaks the chain. Two things do not, because no secret goes into it: the newest lines can be cut off,
//! and whoever may write the file can write a whole new chain. Against both, keep the last hash elsewhere and
//! give it to [`verify()`].

mod chain;
mod entry;
mod file;
mod files;
mod queue;
mod read;
mod timestamp;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use chain::{AuditHash, HashError, LineError};
pub use entry::{AuditArguments, AuditEntry, AuditText, CallOutcome};
pub use file::OpenError;
pub use read::{AuditLine, AuditLines, read};
pub use timestamp::Timestamp;
pub use verify::{Verified, VerifyError, verify};

use file::LogFile;
use queue::Queue;
use writer::Writer;

/// When a file is full, and what is kept.
#[derive(Clone, Copy, Debug)]
pub struct AuditSettings {
    /// A file that has this size is put aside as `FILE.1` and a new one begun.
    pub max_file_bytes: u64,
    /// Files put aside that are kept; older ones are deleted.
    pub kept_files: u32,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { max_file_bytes: 64 * 1024 * 1024, kept_files: 8 }
    }
}

/// The log of this process. [`AuditLog::close`] it at the end, or the last entries may not be on the disk.
#[derive(Debug)]
pub struct AuditLog {
    queue: Arc<Queue>,
    /// Taken when it is waited for.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AuditLog {
    /// Opens the log at `path`, or begins one there, and goes on where it ended.
    pub fn open(path: &Path, settings: AuditSettings) -> Result<Self, OpenError> {
        Self::start(Arc::new(Queue::default()), path, settings)
    }

    fn start(queue: Arc<Queue>, path: &Path, settings: AuditSettings) -> Result<Self, OpenError> {
        let (file, chain) = LogFile::open(path, settings)?;
        let writer = Writer::new(Arc::clone(&queue), file, chain);
        let thread = std::thread::Builder::new()
            .name("ringfence-audit".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self { queue, writer: Mutex::new(Some(thread)) })
    }

    /// Takes an entry for the log. Never waits for the disk: what there is no room for is counted, and the log
    /// says how many entries it lost.
    pub fn record(&self, entry: AuditEntry) {
        self.queue.push(entry);
    }

    /// Entries lost since this process began, for want of room or because writing failed.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }

    /// Waits until all that was recorded before is given to the kernel. Blocks its thread.
    pub fn flush(&self) {
        self.queue.wait_until_written();
    }

    /// Writes what is left, waits until it is on the disk, and lets go of the file. What is recorded later is
    /// counted as lost. Blocks its thread.
    pub fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

impl Drop for AuditLog {
    /// The thread writes what is left and ends; nobody waits for it.
    fn drop(&mut self) {
        self.queue.close();
    }
}
