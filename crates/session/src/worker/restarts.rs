//! When an upstream that crashes may be started again.

use std::time::{Duration, Instant};

use upstream::{Backoff, StartError, telling_line};

use crate::settings::{CRASH_AGE, FIRST_BACKOFF, MAX_BACKOFF};

/// Counts crashes in a row; from the second on, each start waits twice as long as the one before.
#[derive(Debug)]
pub(crate) struct Restarts {
    crashes: u32,
    backoff: Backoff,
    not_before: Option<Instant>,
    /// Why the last start failed or the last process ended.
    last_reason: String,
    last_stderr: String,
}

impl Default for Restarts {
    fn default() -> Self {
        Self {
            crashes: 0,
            backoff: Backoff::new(FIRST_BACKOFF, MAX_BACKOFF),
            not_before: None,
            last_reason: String::new(),
            last_stderr: String::new(),
        }
    }
}

impl Restarts {
    /// Counts a crash of a process that lived so long.
    pub(crate) fn count_crash(&mut self, lived: Duration, now: Instant) {
        if lived >= CRASH_AGE {
            self.crashes = 0;
            self.backoff.reset();
        }
        self.crashes = self.crashes.saturating_add(1);
        self.not_before = (self.crashes >= 2).then(|| now + self.backoff.next_pause());
    }

    /// Keeps the reason of the last end for the error that clients get in a crash loop.
    pub(crate) fn note_reason(&mut self, reason: String, stderr: &str) {
        self.last_reason = reason;
        stderr.clone_into(&mut self.last_stderr);
    }

    /// Why the last start failed or the last process ended, with the line of stderr that tells more.
    pub(crate) fn reason(&self) -> Option<String> {
        match telling_line(&self.last_stderr) {
            _ if self.last_reason.is_empty() => None,
            Some(line) => Some(format!("{}: {line}", self.last_reason)),
            None => Some(self.last_reason.clone()),
        }
    }

    /// A process runs: what ended the one before is over.
    pub(crate) fn forget_reason(&mut self) {
        self.note_reason(String::new(), "");
    }

    /// Why the upstream must not be started yet, if it must not.
    pub(crate) fn refusal(&self, now: Instant) -> Option<StartError> {
        let retry_in = self.not_before?.checked_duration_since(now).filter(|wait| !wait.is_zero())?;
        Some(StartError::CrashLoop {
            crashes: self.crashes,
            retry_in,
            stderr: self.last_stderr.clone(),
            reason: self.last_reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
