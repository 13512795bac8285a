//! Waits on conditions. The deadlines are generous: they only end tests that hang.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long anything may take before a test counts as hanging.
pub const DEADLINE: Duration = Duration::from_secs(120);

const STEP: Duration = Duration::from_millis(5);

/// Polls `condition` until it holds; panics with `what` after the deadline.
pub async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !within_deadline(what, condition()).await {
        assert!(Instant::now() < end, "waited {DEADLINE:?} in vain until {what}");
        sleep(STEP).await;
    }
}

/// Awaits `future`; panics with `what` after the deadline.
pub async fn within_deadline<Output>(what: &str, future: impl Future<Output = Output>) -> Output {
    let Ok(output) = timeout(DEADLINE, future).await else {
        panic!("waited {DEADLINE:?} in vain until {what}");
    };
    output
}
