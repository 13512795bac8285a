//! Reads the stderr of a process: logs it line by line, and keeps its end for error messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use wire::LineBuffer;

use crate::directories::Directories;
use crate::last_words::hint_on_refused_write;
use crate::redaction::Redaction;

/// Bytes of stderr kept for error messages.
const STDERR_TAIL_BYTES: usize = 4 * 1024;
/// Longest stderr line that is logged whole.
const STDERR_LINE_BYTES: usize = 2 * 1024;
/// Lines of stderr logged per second and upstream. Further lines are only counted.
const STDERR_LINES_PER_SECOND: u32 = 100;

/// The end of what a process wrote to stderr.
#[derive(Debug, Default)]
pub(crate) struct StderrTail(Mutex<VecDeque<u8>>);

impl StderrTail {
    fn add(&self, line: &[u8]) {
        let mut tail = self.0.lock();
        tail.extend(line);
        tail.push_back(b'\n');
        let excess = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..excess);
    }

    pub(crate) fn text(&self) -> String {
        let tail = self.0.lock();
        let (front, back) = tail.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).trim_end().to_owned()
    }
}

/// Whose stderr it is.
#[derive(Debug)]
pub(crate) struct StderrSource {
    /// The server, for the log.
    pub(crate) name: String,
    pub(crate) redaction: Redaction,
    /// Where the server may write, if it is in a fence.
    pub(crate) fenced_to: Option<Arc<Directories>>,
}

impl StderrSource {
    fn log(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        tracing::info!(upstream = self.name, "stderr: {line}");
        let hint = self.fenced_to.as_ref().and_then(|directories| hint_on_refused_write(&line, directories));
        if let Some(hint) = hint {
            tracing::warn!(upstream = self.name, "{hint}");
            // Said once.
            self.fenced_to = None;
        }
    }
}

pub(crate) async fn read_stderr(tail: Arc<StderrTail>, mut stderr: pipe::Receiver, mut source: StderrSource) {
    let mut lines = LineBuffer::new(STDERR_LINE_BYTES);
    let mut budget = LogBudget::default();
    while let Ok(1..) = stderr.read_buf(lines.space()).await {
        while let Some(line) = lines.next_line() {
            let line = match &line {
                Ok(line) => source.redaction.bytes(line).into_owned(),
                Err(long) => source.redaction.beginning(&long.head()).into_owned(),
            };
            tail.add(&line);
            if budget.allows(Instant::now()) {
                source.log(&line);
            }
        }
    }
    let rest = std::mem::take(lines.space());
    let rest = source.redaction.bytes(&rest).into_owned();
    if !rest.is_empty() {
        tail.add(&rest);
        source.log(&rest);
    }
}

/// Keeps a chatty upstream from flooding the log: a number of lines per second.
#[derive(Default)]
struct LogBudget {
    second: Option<Instant>,
    used: u32,
}

impl LogBudget {
    /// Counts a line. Returns true if it may be logged.
    fn allows(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            if self.used > STDERR_LINES_PER_SECOND {
                tracing::info!("{} lines of stderr were not logged", self.used - STDERR_LINES_PER_SECOND);
            }
            (self.second, self.used) = (Some(now), 0);
        }
        self.used += 1;
        self.used <= STDERR_LINES_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_end() {
        let tail = StderrTail::default();
        for number in 0..10_000 {
            tail.add(format!("line {number}").as_bytes());
        }
        let text = tail.text();
        assert!(text.ends_with("line 9999") && text.len() <= STDERR_TAIL_BYTES, "{text}");
    }

    #[test]
    fn the_log_takes_a_number_of_lines_per_second() {
        let (mut budget, start) = (LogBudget::default(), Instant::now());
        let mut logged = |at: Instant| (0..250).filter(|_| budget.allows(at)).count();
        assert_eq!(logged(start), 100);
        assert_eq!(logged(start + Duration::from_millis(999)), 0);
        assert_eq!(logged(start + Duration::from_secs(1)), 100);
    }
}
