//! Lines on their way to the stdin of a process.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// Most bytes that wait for an upstream to read its stdin.
pub const MAX_OUTBOX_BYTES: usize = 64 * 1024 * 1024;

/// Lines on their way to stdin. A single line is written at once if the pipe has room; a task writes the lines that
/// come together or do not fit.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    changed: Notify,
}

/// When a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    Now,
    /// Together with others of the same moment: one write and one wake-up for all.
    WithOthers,
}

#[derive(Debug)]
struct Queue {
    lines: BytesMut,
    /// `None` once stdin is closed. The task holds the other reference.
    pipe: Option<Arc<pipe::Sender>>,
    /// Bytes that the task took out of `lines` and is writing. A line written directly would overtake them.
    writing: usize,
    is_closed: bool,
}

impl Outbox {
    pub(crate) fn new(pipe: Option<Arc<pipe::Sender>>) -> Self {
        let queue = Queue { lines: BytesMut::new(), pipe, writing: 0, is_closed: false };
        Self { queue: Mutex::new(queue), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    pub(crate) fn push(&self, line: &[u8], urgency: Urgency) -> bool {
        let mut queue = self.lock();
        if queue.is_closed || queue.writing + queue.lines.len() + line.len() > MAX_OUTBOX_BYTES {
            return queue.is_closed;
        }
        let may_overtake = queue.lines.is_empty() && queue.writing == 0;
        let written = if urgency == Urgency::Now && may_overtake { queue.write_now(line) } else { 0 };
        if written <= line.len() {
            queue.lines.extend_from_slice(&line[written..]);
            queue.lines.extend_from_slice(b"\n");
            drop(queue);
            self.changed.notify_one();
        }
        true
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Takes the lines to write. Returns `None` when the outbox is empty and closed.
    fn take(&self) -> Option<BytesMut> {
        let mut queue = self.lock();
        queue.writing = queue.lines.len();
        if queue.lines.is_empty() && queue.is_closed {
            return None;
        }
        Some(std::mem::take(&mut queue.lines))
    }
}

impl Queue {
    /// Writes the line and its end. Returns the number of bytes that fit; the task meets an error again and handles it.
    fn write_now(&self, line: &[u8]) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        // Bypasses the runtime, which learns that a pipe is writable only after a turn of its event loop, while a new
        // process waits for its first line. The descriptor does not block.
        rustix::io::writev(pipe, &[IoSlice::new(line), IoSlice::new(b"\n")]).unwrap_or(0)
    }
}

/// Writes the lines that did not fit at once, until the outbox closes. Then closes stdin.
pub(crate) async fn write_stdin(outbox: Arc<Outbox>, pipe: Arc<pipe::Sender>) {
    write_rest(&outbox, &pipe).await;
    let mut queue = outbox.lock();
    queue.is_closed = true;
    queue.pipe = None;
}

async fn write_rest(outbox: &Outbox, pipe: &pipe::Sender) {
    while let Some(lines) = outbox.take() {
        if lines.is_empty() {
            outbox.changed.notified().await;
            // Lets other tasks add their lines first, so that one write takes all of them.
            tokio::task::yield_now().await;
            continue;
        }
        let written = tokio::select! {
            biased;
            written = write_all(pipe, &lines) => written,
            () = closed(outbox) => return,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn write_all(pipe: &pipe::Sender, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Resolves when the outbox closes while a write is stuck.
async fn closed(outbox: &Outbox) {
    loop {
        let changed = outbox.changed.notified();
        if outbox.lock().is_closed {
            return;
        }
        changed.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_that_nobody_empties_is_bounded() {
        let outbox = Outbox::new(None);
        let line = vec![b'x'; 1024 * 1024];
        let taken = (0..1000).take_while(|_| outbox.push(&line, Urgency::Now)).count();
        assert!(taken < 64 && taken > 50, "{taken}");
        outbox.close();
        assert!(
            outbox.push(b"after the end nothing waits", Urgency::Now),
            "the death of the process tells the caller"
        );
    }
}
