//! The accept loop: connections in, a graceful end out.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::Gateway;

/// A peer that does not send its next request head within this is no client, or one that has long closed its
/// end: clients keep idle connections for 5 to 90 seconds.
const HEAD_WITHIN: Duration = Duration::from_secs(120);

/// Connections at once. Each session of a busy client holds a handful.
const MAX_CONNECTIONS: usize = 8192;

/// After an accept failed for lack of descriptors, some time for others to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What responses may take to be written after everything was told to end.
const LAST_WRITES: Duration = Duration::from_secs(2);

impl Gateway {
    /// Serves until `stop` resolves, then gives calls in flight until `drain`, ends every session and its
    /// processes, and closes the connections.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) {
        let connections = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let router = self.router();
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
        tokio::pin!(stop);
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        pause_after(&error).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            prepare(&stream);
            let service = TowerToHyperService::new(router.clone());
            let connection = connections.watch(server.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!("connection: {error}");
                }
                drop(place);
            });
        }
        drop(listener);
        self.sessions.shut_down(drain).await;
        let _ = tokio::time::timeout(LAST_WRITES, connections.shutdown()).await;
    }
}

fn prepare(stream: &TcpStream) {
    // Best effort: without it answers wait for the peer's acknowledgement.
    let _ = stream.set_nodelay(true);
}

async fn pause_after(error: &io::Error) {
    let is_about_one_peer = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    );
    if !is_about_one_peer {
        tracing::error!("cannot accept connections: {error}");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
