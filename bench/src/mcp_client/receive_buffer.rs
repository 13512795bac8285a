//! A fixed read buffer over any byte stream: fill, look, consume. Used for sockets and pipes alike.

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    storage: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { storage: vec![0; capacity].into_boxed_slice(), start: 0, end: 0 }
    }

    pub(crate) fn available(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start >= self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Makes room for long answers; keeps buffered bytes.
    pub(crate) fn grow_to(&mut self, capacity: usize) {
        if capacity <= self.storage.len() {
            return;
        }
        let mut storage = vec![0; capacity].into_boxed_slice();
        let kept = self.end - self.start;
        storage[..kept].copy_from_slice(self.available());
        *self = Self { storage, start: 0, end: kept };
    }

    /// Reads once. `Ok(false)` is the end of the stream; a full buffer is an error.
    pub(crate) async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<bool, Error> {
        if self.end == self.storage.len() {
            self.make_room()?;
        }
        let count = stream.read(&mut self.storage[self.end..]).await?;
        self.end += count;
        Ok(count > 0)
    }

    fn make_room(&mut self) -> Result<(), Error> {
        if self.start == 0 {
            return Err(Error::new(format!("more than {} bytes without an end", self.storage.len())));
        }
        self.storage.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }
}
