//! Logs which hosts were refused. The program inside decides how often that happens, so the number of messages per
//! minute is limited.

use parking_lot::Mutex;
use std::fmt::Display;
use std::time::{Duration, Instant};

const MOST_TOLD: u32 = 100;
const PERIOD: Duration = Duration::from_secs(60);

/// What one fence has told lately.
#[derive(Debug)]
pub(super) struct RefusalLog(Mutex<Told>);

#[derive(Debug)]
struct Told {
    since: Instant,
    count: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Tell,
    /// The last one of this period.
    TellAndFallSilent,
    BeSilent,
}

impl RefusalLog {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Told { since: Instant::now(), count: 0 }))
    }

    pub(super) fn tell(&self, host: &dyn Display, reason: &dyn Display) {
        let turn = self.next_turn(Instant::now());
        if turn != Turn::BeSilent {
            tracing::info!(%host, %reason, "refused to reach a host");
        }
        if turn == Turn::TellAndFallSilent {
            tracing::info!("more refusals of this fence are not told for up to a minute");
        }
    }

    fn next_turn(&self, now: Instant) -> Turn {
        let mut told = self.0.lock();
        if now.duration_since(told.since) >= PERIOD {
            *told = Told { since: now, count: 0 };
        }
        told.count = told.count.saturating_add(1);
        match told.count {
            ..MOST_TOLD => Turn::Tell,
            MOST_TOLD => Turn::TellAndFallSilent,
            _ => Turn::BeSilent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_refusals_are_told_in_a_period() {
        let log = RefusalLog::new();
        let start = Instant::now();
        for _ in 1..MOST_TOLD {
            assert_eq!(log.next_turn(start), Turn::Tell);
        }
        assert_eq!(log.next_turn(start), Turn::TellAndFallSilent);
        assert_eq!(log.next_turn(start), Turn::BeSilent);
        assert_eq!(log.next_turn(start + PERIOD), Turn::Tell);
    }
}
