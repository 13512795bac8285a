//! Names a worker toward its sessions, which keep no reference to it.

use std::sync::atomic::{AtomicU64, Ordering};

/// One worker of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WorkerId(u64);

impl WorkerId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
