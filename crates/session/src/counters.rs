//! Counts of what happened, for health output and tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts, and says whether this one is worth a line in the log: the first few are, then one in a
    /// thousand, so that whoever causes them cannot flood it.
    pub(crate) fn add_and_should_log(&self) -> bool {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        before < 20 || before.is_multiple_of(1000)
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    pub sessions_opened: Count,
    pub sessions_ended: Count,
    pub calls: Count,
    pub timeouts: Count,
    pub worker_starts: Count,
    pub worker_deaths: Count,
    /// Answers of an upstream to a call that had been given up before.
    pub late_answers: Count,
    /// Answers to ids that were never asked, from either side: the cross-talk detector.
    pub stray_answers: Count,
    /// Lines of an upstream that are no JSON-RPC message, or too long.
    pub bad_lines: Count,
    /// Notifications of an upstream without an owner, or that a full stream had no room for.
    pub dropped_notifications: Count,
    /// Requests of a shared upstream that no client could be named for.
    pub unattributed_requests: Count,
}

impl Counters {
    /// Name and value of each, in a fixed order.
    pub fn list(&self) -> [(&'static str, u64); 11] {
        [
            ("sessions_opened", self.sessions_opened.get()),
            ("sessions_ended", self.sessions_ended.get()),
            ("calls", self.calls.get()),
            ("timeouts", self.timeouts.get()),
            ("worker_starts", self.worker_starts.get()),
            ("worker_deaths", self.worker_deaths.get()),
            ("late_answers", self.late_answers.get()),
            ("stray_answers", self.stray_answers.get()),
            ("bad_lines", self.bad_lines.get()),
            ("dropped_notifications", self.dropped_notifications.get()),
            ("unattributed_requests", self.unattributed_requests.get()),
        ]
    }
}
