//! Standard output: one locked, buffered writer that every thread shares.

use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;

const BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Output {
    writer: Mutex<BufWriter<File>>,
}

impl Output {
    pub(crate) fn standard() -> Self {
        let descriptor = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output is open");
        Self { writer: Mutex::new(BufWriter::with_capacity(BUFFER_BYTES, File::from(descriptor))) }
    }

    /// Buffers one line made of `parts`. Ignores write errors: if the reader is gone, standard input ends too.
    pub(crate) fn buffer_line(&self, parts: &[&[u8]]) {
        let mut writer = self.lock();
        for part in parts {
            drop(writer.write_all(part));
        }
        drop(writer.write_all(b"\n"));
    }

    pub(crate) fn send_line(&self, parts: &[&[u8]]) {
        self.buffer_line(parts);
        self.flush();
    }

    pub(crate) fn flush(&self) {
        drop(self.lock().flush());
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<File>> {
        self.writer.lock()
    }
}
