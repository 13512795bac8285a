//! SIGINT, SIGTERM and SIGHUP: the first signal ends ringfence in order, the second at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::signal::unix::{SignalKind, signal};

/// Resolves at the first signal. At the second, kills all children and exits.
pub(crate) fn stop_requested() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (first, stop) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        };
        next().await;
        tracing::info!("stopping; once more to stop at once");
        let _ = first.send(());
        next().await;
        upstream::end_all_children().await;
        std::process::exit(1);
    });
    Ok(async move {
        let _ = stop.await;
    })
}

/// Whether one of these signals came since this was made, also while no runtime listens to them.
#[derive(Debug)]
pub(crate) struct StopNoted(Arc<AtomicBool>);

impl StopNoted {
    /// For when a runtime has listened to them: until then they end the process.
    pub(crate) fn begin() -> io::Result<Self> {
        let noted = Arc::<AtomicBool>::default();
        for number in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(number, Arc::clone(&noted))?;
        }
        Ok(Self(noted))
    }

    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
