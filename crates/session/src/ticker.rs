//! The beat at which deadlines are looked at: quick while calls run, slow when nothing happens.
//!
//! One timer for the whole gateway instead of one per call: arming a timer for every call costs more than
//! all of the call's other bookkeeping.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// While calls run.
const QUICK: Duration = Duration::from_millis(50);
/// While none does.
const SLOW: Duration = Duration::from_secs(1);
/// Quick beats without a call before the beat slows down.
const QUIET_BEATS: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct Ticker {
    is_slow: AtomicBool,
    quicken: Notify,
}

impl Ticker {
    /// A call began.
    pub(crate) fn call_began(&self) {
        if self.is_slow.load(Ordering::Relaxed) && self.is_slow.swap(false, Ordering::Relaxed) {
            self.quicken.notify_one();
        }
    }

    /// Waits for the next beat. `quiet_beats` counts those without a call and is kept by the caller.
    pub(crate) async fn beat(&self, quiet_beats: &mut u32, is_busy: bool) {
        *quiet_beats = if is_busy { 0 } else { quiet_beats.saturating_add(1) };
        if *quiet_beats < QUIET_BEATS {
            return tokio::time::sleep(QUICK).await;
        }
        self.is_slow.store(true, Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(SLOW) => {}
            () = self.quicken.notified() => *quiet_beats = 0,
        }
        self.is_slow.store(false, Ordering::Relaxed);
    }
}
