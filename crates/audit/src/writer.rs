//! The thread that writes: takes what waits, makes lines of it, and writes them with one call.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::chain::Chain;
use crate::entry::OwnEntry;
use crate::file::LogFile;
use crate::queue::{Batch, Queue};
use crate::timestamp::Timestamp;

/// After a failed write, when the loss is tried to be written down if nothing else comes.
const TRY_AGAIN: Duration = Duration::from_secs(5);

pub(super) struct Writer {
    queue: Arc<Queue>,
    file: LogFile,
    /// The chain at the end of the file.
    chain: Chain,
    /// Entries lost that the file does not tell of yet.
    untold: u64,
    /// Something failed and did not succeed since, so that a full disk is one line in our own log.
    is_failing: bool,
}

/// Lines on their way into the file.
struct Draft {
    lines: Vec<u8>,
    chain: Chain,
    /// Entries in there.
    entries: u64,
    /// Lost ones that it tells of.
    told: u64,
}

impl Draft {
    fn add(&mut self, time: Timestamp, entry: &impl Serialize) {
        self.chain.append(&mut self.lines, time, entry);
    }

    fn tell_lost(&mut self, count: u64) {
        if count > 0 {
            self.add(Timestamp::now(), &OwnEntry::Lost { count });
            self.told += count;
        }
    }
}

/// Lets nobody wait for a writer that is gone, however it went.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, file: LogFile, chain: Chain) -> Self {
        Self { queue, file, chain, untold: 0, is_failing: false }
    }

    pub(super) fn run(mut self) {
        let _ending = Ending(Arc::clone(&self.queue));
        loop {
            let batch = self.queue.take((self.untold > 0).then_some(TRY_AGAIN));
            let (offered, is_last) = (batch.offered(), batch.is_last);
            self.write(batch);
            self.queue.finish(offered);
            if is_last {
                break;
            }
        }
        let synced = self.file.sync();
        self.note("save", synced);
        if self.untold > 0 {
            tracing::error!("{} entries are missing in the audit log at its end", self.untold);
        }
    }

    fn write(&mut self, batch: Batch) {
        let mut draft = self.draft();
        for (time, entry) in batch.entries {
            if self.file.is_full_with(draft.lines.len()) {
                self.commit(&draft);
                self.rotate_if_full();
                draft = self.draft();
            }
            draft.add(time, &entry);
            draft.entries += 1;
        }
        draft.tell_lost(batch.lost);
        self.commit(&draft);
    }

    /// Not if the lines that would have filled it could not be written: that would push old lines out for none.
    fn rotate_if_full(&mut self) {
        if self.file.is_full_with(0) {
            let rotated = self.file.rotate();
            self.note("rotate", rotated);
        }
    }

    /// Begins with what was lost before, because that is older than what follows.
    fn draft(&mut self) -> Draft {
        let mut draft = Draft { lines: Vec::new(), chain: self.chain, entries: 0, told: 0 };
        draft.tell_lost(std::mem::take(&mut self.untold));
        draft
    }

    fn commit(&mut self, draft: &Draft) {
        if draft.lines.is_empty() {
            return;
        }
        let written = self.file.append(&draft.lines);
        if written.is_ok() {
            self.chain = draft.chain;
        } else {
            self.queue.count_lost(draft.entries);
            self.untold += draft.entries + draft.told;
        }
        self.note("write", written);
    }

    /// Says in our own log that something failed: once, until it works again.
    fn note(&mut self, what: &str, result: io::Result<()>) {
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
        let (file, chain) = LogFile::open(&path, AuditSettings::default()).unwrap();
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
        // What the failed write left behind goes first.
        std::io::Write::write_all(&mut std::fs::File::options().append(true).open(&path).unwrap(), b"{\"s")
            .unwrap();
        write(&mut writer, "last");
        assert!(!writer.is_failing);
        assert_eq!(reasons(&path), ["first", "last"]);
        assert_eq!((verify(&path, None).unwrap().lost, queue.lost()), (2, 2));
    }
}
