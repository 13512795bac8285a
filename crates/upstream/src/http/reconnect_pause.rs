//! The pause before reconnecting to a stream that ended: a backoff that respects the server's `retry`.

use std::time::Duration;

use crate::backoff::Backoff;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);
/// Upper bound on the server's `retry`.
const LONGEST_BY_SERVER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct ReconnectPause {
    backoff: Backoff,
}

impl Default for ReconnectPause {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST, LONGEST) }
    }
}

impl ReconnectPause {
    /// Starts over, because the stream delivered something.
    pub(crate) fn reset(&mut self) {
        self.backoff.reset();
    }

    /// The next pause: `retry` if the server asked for it, but after several failures not less than the backoff.
    pub(crate) fn next(&mut self, retry: Option<Duration>) -> Duration {
        let is_first = self.backoff.failures() == 0;
        let pause = self.backoff.next_pause();
        match retry.map(|retry| retry.min(LONGEST_BY_SERVER)) {
            Some(retry) if is_first => retry,
            Some(retry) => retry.max(pause),
            None => pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_there_is_life() {
        let mut pause = ReconnectPause::default();
        let waits: Vec<_> = (0..8).map(|_| pause.next(None)).collect();
        assert!(waits.is_sorted() && waits[0] == FIRST && waits[7] == LONGEST);
        pause.reset();
        assert_eq!(pause.next(None), FIRST);
    }

    #[test]
    fn the_servers_wish_counts_but_not_without_end() {
        let asked = Some(Duration::from_millis(10));
        let mut pause = ReconnectPause::default();
        assert_eq!(pause.next(asked), Duration::from_millis(10));
        assert!(pause.next(asked) > FIRST);
        assert_eq!(ReconnectPause::default().next(Some(Duration::MAX)), LONGEST_BY_SERVER);
    }
}
