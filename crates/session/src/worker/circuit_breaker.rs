//! Keeps clients from waiting for an upstream that has left several calls in a row unanswered.

use std::time::Instant;

use upstream::StartError;

use crate::settings::{BREAKER_PAUSE, MAX_UNANSWERED};

#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    /// Calls that were given up since the last answer.
    unanswered: u32,
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Counts a call that was given up. Opens after several in a row.
    pub(crate) fn note_unanswered(&mut self, now: Instant) {
        self.unanswered += 1;
        if self.unanswered >= MAX_UNANSWERED {
            self.open_until = Some(now + BREAKER_PAUSE);
        }
    }

    /// Closes: the upstream answers.
    pub(crate) fn note_answer(&mut self) {
        *self = Self::default();
    }

    /// Why no call is let through now. After the pause one call is, and shows whether more can be.
    pub(crate) fn refusal(&mut self, now: Instant) -> Option<StartError> {
        let retry_in = self.open_until?.checked_duration_since(now).filter(|wait| !wait.is_zero());
        if retry_in.is_none() {
            self.open_until = None;
        }
        retry_in.map(|retry_in| StartError::NotAnswering { unanswered: self.unanswered, retry_in })
    }
}

#[cfg(test)]
mod tests;
