//! SIGINT, SIGTERM and SIGHUP: the first signal ends ringfence in order, the second at once.

use std::io;

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
