//! Pauses between attempts that double until one succeeds.

use std::time::Duration;

/// Doublings after which the pause no longer grows, so that the factor fits into a `u32`.
const MAX_DOUBLINGS: u32 = 16;

/// The pauses between failed attempts: `first`, then twice as long each time, at most `longest`. Deterministic, without
/// a clock of its own.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Counts a failed attempt. Returns the pause before the next one.
    pub fn next_pause(&mut self) -> Duration {
        let factor = 1 << self.failures.min(MAX_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Failed attempts since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Counts a success: the next pause is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(10);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let pauses: Vec<_> = (0..8).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
    }

    #[test]
    fn a_success_starts_over() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        backoff.next_pause();
        backoff.next_pause();
        assert_eq!(backoff.failures(), 2);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.next_pause()), (0, FIRST));
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let mut backoff = Backoff { failures: u32::MAX - 1, ..Backoff::new(FIRST, Duration::MAX) };
        let pause = backoff.next_pause();
        assert_eq!((backoff.next_pause(), backoff.failures()), (pause, u32::MAX));
        let mut backoff = Backoff { failures: 40, ..Backoff::new(Duration::MAX, Duration::MAX) };
        assert_eq!(backoff.next_pause(), Duration::MAX);
    }

    #[test]
    fn a_first_pause_beyond_the_longest_is_cut() {
        assert_eq!(Backoff::new(LONGEST, FIRST).next_pause(), FIRST);
    }
}
