//! The output of a child process, collected by a task and readable at any time.

use parking_lot::Mutex;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

use crate::waiting::within_deadline;

/// The output of a child so far, on one of its streams. Clones share it.
#[derive(Debug, Clone)]
pub struct CollectedOutput {
    name: &'static str,
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Changes with each piece that arrives; closed at the end of the stream.
    length: watch::Receiver<usize>,
}

impl CollectedOutput {
    pub(crate) fn collect(name: &'static str, stream: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (length_sender, length) = watch::channel(0);
        tokio::spawn(collect_all(stream, Arc::clone(&bytes), length_sender));
        Self { name, bytes, length }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock()).into_owned()
    }

    /// Waits until `substring` is written, and returns the first line that contains it.
    pub async fn wait_for(&self, substring: &str) -> String {
        let what = format!("{} contains {substring:?}", self.name);
        let line = within_deadline(&what, self.wait_for_line(|line| line.contains(substring))).await;
        line.unwrap_or_else(|| panic!("{what}: it ended without, after:\n{}", self.text()))
    }

    /// Waits for a line that `accepts` accepts; `None` if the stream ends without one.
    pub(crate) async fn wait_for_line(&self, accepts: impl Fn(&str) -> bool) -> Option<String> {
        let mut length = self.length.clone();
        loop {
            // Marks the current length as seen before reading the text, so that no later piece is missed.
            length.borrow_and_update();
            let text = self.text();
            let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some(line) = complete.map(str::trim_end).find(|line| accepts(line)) {
                return Some(line.to_owned());
            }
            if length.changed().await.is_err() {
                return self.text().lines().find(|line| accepts(line)).map(str::to_owned);
            }
        }
    }

    /// Waits for the end of the stream.
    pub(crate) async fn wait_for_end(&self) {
        let mut length = self.length.clone();
        while length.changed().await.is_ok() {}
    }
}

async fn collect_all(
    mut stream: impl AsyncRead + Unpin,
    bytes: Arc<Mutex<Vec<u8>>>,
    length: watch::Sender<usize>,
) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let collected = {
            let mut bytes = bytes.lock();
            bytes.extend_from_slice(&piece[..count]);
            bytes.len()
        };
        let _ = length.send(collected);
    }
}
