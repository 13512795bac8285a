//! How long each slice of a round is, in a full run, a quick one and the warm-up round.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct SlicePlan {
    pub(crate) latency: Duration,
    pub(crate) throughput: Duration,
    pub(crate) big: Duration,
    /// The number of sessions opened one after another, and the time after which no more are started.
    pub(crate) creations: u32,
    pub(crate) creations_limit: Duration,
    pub(crate) creations_per_creator: u32,
    /// How often memory and leftover processes are measured, each time with a fresh gateway.
    pub(crate) fresh_rounds: u32,
    /// How long idle sessions rest before their memory is read.
    pub(crate) settle: Duration,
    /// How long processes get to exit.
    pub(crate) leave: Duration,
}

impl SlicePlan {
    pub(crate) const FULL: Self = Self {
        latency: Duration::from_millis(600),
        throughput: Duration::from_millis(800),
        big: Duration::from_millis(400),
        creations: 40,
        creations_limit: Duration::from_millis(800),
        creations_per_creator: 6,
        fresh_rounds: 3,
        settle: Duration::from_millis(500),
        leave: Duration::from_secs(10),
    };

    pub(crate) const QUICK: Self = Self {
        latency: Duration::from_millis(150),
        throughput: Duration::from_millis(200),
        big: Duration::from_millis(100),
        creations: 8,
        creations_limit: Duration::from_millis(200),
        creations_per_creator: 2,
        fresh_rounds: 1,
        settle: Duration::from_millis(200),
        leave: Duration::from_secs(2),
    };

    pub(crate) const WARM_UP: Self = Self {
        latency: Duration::from_millis(100),
        throughput: Duration::from_millis(150),
        big: Duration::from_millis(50),
        creations: 4,
        creations_limit: Duration::from_millis(100),
        creations_per_creator: 1,
        ..Self::QUICK
    };
}
