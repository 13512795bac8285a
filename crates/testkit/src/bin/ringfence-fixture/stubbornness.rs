//! Makes the server stubborn: it ignores SIGTERM and the end of its standard input.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Stubbornness {
    active: AtomicBool,
}

impl Stubbornness {
    pub(crate) fn begin(&self) {
        // Any handler replaces the default action, which is to die; the flag it sets is not read.
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)))
            .expect("SIGTERM may be handled");
        self.active.store(true, Ordering::SeqCst);
    }

    /// Called at the end of standard input; never returns from a stubborn server.
    pub(crate) fn stay_if_asked(&self) {
        if self.active.load(Ordering::SeqCst) {
            park_for_good();
        }
    }
}

pub(crate) fn park_for_good() -> ! {
    loop {
        std::thread::park();
    }
}
