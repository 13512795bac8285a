//! How long to wait before coming back to a stream that ended.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);
/// However long a server wants us to wait, a stream is not left alone for longer.
const LONGEST_BY_SERVER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    in_vain: u32,
}

impl Backoff {
    /// The stream showed life: start over.
    pub(crate) fn reset(&mut self) {
        self.in_vain = 0;
    }

    /// The next wait. What the server asked for counts, and failures in a row add to it.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.in_vain.min(10)).min(LONGEST);
        let wait = match asked.map(|asked| asked.min(LONGEST_BY_SERVER)) {
            Some(asked) if self.in_vain == 0 => asked,
            Some(asked) => asked.max(doubled),
            None => doubled,
        };
        self.in_vain = self.in_vain.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_there_is_life() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(None)).collect();
        assert!(waits.is_sorted() && waits[0] == FIRST && waits[7] == LONGEST);
        backoff.reset();
        assert_eq!(backoff.next(None), FIRST);
    }

    #[test]
    fn the_servers_wish_counts_but_not_without_end() {
        let asked = Some(Duration::from_millis(10));
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(asked), Duration::from_millis(10));
        assert!(backoff.next(asked) > FIRST);
        assert_eq!(Backoff::default().next(Some(Duration::MAX)), LONGEST_BY_SERVER);
    }
}
