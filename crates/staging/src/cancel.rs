//! A way to stop what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a copy that is being made, from another thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
