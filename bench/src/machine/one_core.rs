//! Pins a client and all processes it starts to one core. On several cores the kernel keeps the processes of a call
//! together for some seconds and then spreads them, which doubles or halves the time of a call. A gateway started
//! while pinned sees one core and so runs one worker thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, WhileDoing};

/// Keeps this thread on one core until dropped. Processes it starts meanwhile stay on that core for good.
#[derive(Debug)]
pub(crate) struct OneCore {
    before: CpuSet,
}

impl OneCore {
    pub(crate) fn enter() -> Result<Self, Error> {
        let before = sched_getaffinity(None).while_doing("asking for the cores of this thread")?;
        let first = (0..CpuSet::MAX_CPU)
            .find(|core| before.is_set(*core))
            .ok_or_else(|| Error::new("this thread has no core"))?;
        let mut only = CpuSet::new();
        only.set(first);
        sched_setaffinity(None, &only).while_doing("staying on one core")?;
        Ok(Self { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // These cores were allowed before, so this cannot fail.
        let _ = sched_setaffinity(None, &self.before);
    }
}
