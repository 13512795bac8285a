//! One core for a client and all that it starts. On several, the kernel keeps the processes of a call
//! together for some seconds and spreads them for the next; that doubles the time of a call or halves it, whatever
//! the processes do. A gateway that is started here has one thread for its calls.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::{Failure, WhileDoing};

/// While it lives, this thread and the processes that it starts stay on one core. The processes stay there.
#[derive(Debug)]
pub(crate) struct OneCore {
    before: CpuSet,
}

impl OneCore {
    pub(crate) fn enter() -> Result<Self, Failure> {
        let before = sched_getaffinity(None).while_doing("asking for the cores of this thread")?;
        let first = (0..CpuSet::MAX_CPU)
            .find(|core| before.is_set(*core))
            .ok_or_else(|| Failure::new("this thread has no core"))?;
        let mut only = CpuSet::new();
        only.set(first);
        sched_setaffinity(None, &only).while_doing("staying on one core")?;
        Ok(Self { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // What was allowed before still is.
        let _ = sched_setaffinity(None, &self.before);
    }
}
