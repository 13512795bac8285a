//! The writer thread: takes the queued entries, makes lines of them, and writes these with one call.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use crate::chain::Chain;
use crate::entry::OwnEntry;
use crate::file::LogFile;
use crate::queue::{Batch, Queue};
use crate::timestamp::Timestamp;

/// How soon after a failed write the loss is recorded if no other entry comes.
const RETRY_AFTER: Duration = Duration::from_secs(5);

pub(super) struct Writer {
    queue: Arc<Queue>,
    file: LogFile,
    /// The chain at the end of the file.
    chain: Chain,
    /// The number of the last record in the file.
    written: watch::Sender<u64>,
    /// Lost entries that the file does not record yet.
    unrecorded: u64,
    /// The last write failed. A full disk is then logged once.
    is_failing: bool,
}

/// Lines that are about to be written.
struct Draft {
    lines: Vec<u8>,
    /// The chain after these lines.
    chain: Chain,
    entries: u64,
    /// Lost entries that these lines record.
    recorded_losses: u64,
}

impl Draft {
    fn add(&mut self, time: Timestamp, entry: &impl Serialize) {
        self.chain.append(&mut self.lines, time, entry);
    }

    fn record_lost(&mut self, count: u64) {
        if count > 0 {
            self.add(Timestamp::now(), &OwnEntry::Lost { count });
            self.recorded_losses += count;
        }
    }
}

/// Ends the queue when the writer ends, even by a panic, so that no thread waits for it.
struct EndQueue(Arc<Queue>);

impl Drop for EndQueue {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, file: LogFile, chain: Chain) -> Self {
        let written = watch::Sender::new(chain.last());
        Self { queue, file, chain, written, unrecorded: 0, is_failing: false }
    }

    /// Follows the number of the last record in the file. The writer's end closes the channel.
    pub(super) fn written(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    pub(super) fn run(mut self) {
        let _end_queue = EndQueue(Arc::clone(&self.queue));
        loop {
            let batch = self.queue.take((self.unrecorded > 0).then_some(RETRY_AFTER));
            let (pushed, is_last) = (batch.pushed, batch.is_last);
            self.write(batch);
            self.queue.finish(pushed);
            if is_last {
                break;
            }
        }
        let synced = self.file.sync();
        self.log_change("save", synced);
        if self.unrecorded > 0 {
            tracing::error!("{} entries are missing at the end of the audit log", self.unrecorded);
        }
    }

    fn write(&mut self, batch: Batch) {
        let mut draft = self.draft();
        for (time, entry) in batch.entries {
            if self.file.is_full_with(draft.lines.len()) {
                self.commit(draft);
                self.rotate_if_full();
                draft = self.draft();
            }
            draft.add(time, &entry);
            draft.entries += 1;
        }
        draft.record_lost(batch.lost);
        self.commit(draft);
    }

    /// Rotates only if the lines that fill the file were written: otherwise old lines would be deleted for nothing.
    fn rotate_if_full(&mut self) {
        if self.file.is_full_with(0) {
            let rotated = self.file.rotate();
            self.log_change("rotate", rotated);
        }
    }

    /// Starts a draft with the earlier losses, which are older than the next entries.
    fn draft(&mut self) -> Draft {
        let mut draft =
            Draft { lines: Vec::new(), chain: self.chain.clone(), entries: 0, recorded_losses: 0 };
        if self.file.is_empty() {
            draft.chain.begin_file(&mut draft.lines);
        }
        draft.record_lost(std::mem::take(&mut self.unrecorded));
        draft
    }

    fn commit(&mut self, draft: Draft) {
        if draft.lines.is_empty() {
            return;
        }
        let written = self.file.append(&draft.lines);
        if written.is_ok() {
            self.chain = draft.chain;
            self.written.send_replace(self.chain.last());
        } else {
            self.queue.count_lost(draft.entries);
            self.unrecorded += draft.entries + draft.recorded_losses;
        }
        self.log_change("write", written);
    }

    /// Logs the first failure, and the first success after it.
    fn log_change(&mut self, what: &str, result: io::Result<()>) {
        let path = self.file.path().display();
        match result {
            Err(error) if !self.is_failing => {
                tracing::error!("cannot {what} the audit log {path}: {error}");
                self.is_failing = true;
            }
            Ok(()) if self.is_failing => {
                tracing::warn!("the audit log {path} can be written again");
                self.is_failing = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{place, reasons, refused};
    use crate::{AuditSettings, verify};

    #[test]
    fn a_write_that_fails_is_told_of_once_writing_works_again() {
        let path = place("failing");
        let (file, chain) = LogFile::open(&path, AuditSettings::default(), None).unwrap();
        let mut read_only = std::fs::File::open(&path).unwrap();
        let queue = Arc::new(Queue::default());
        let mut writer = Writer::new(Arc::clone(&queue), file, chain);
        let write = |writer: &mut Writer, name: &str| {
            queue.push(refused(name));
            writer.write(queue.take(None));
        };
        write(&mut writer, "first");
        writer.file.swap_descriptor(&mut read_only);
        write(&mut writer, "lost");
        write(&mut writer, "lost too");
        assert!(writer.is_failing);
        writer.file.swap_descriptor(&mut read_only);
        // The part of a line that a failed write left is removed first.
        std::io::Write::write_all(&mut std::fs::File::options().append(true).open(&path).unwrap(), b"{\"s")
            .unwrap();
        write(&mut writer, "last");
        assert!(!writer.is_failing);
        assert_eq!(reasons(&path), ["first", "last"]);
        assert_eq!((verify(&path, None, None).unwrap().lost, queue.lost()), (2, 2));
    }
}
