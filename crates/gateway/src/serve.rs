//! The accept loop: connections in, a graceful end out.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use fence::Peer;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::{Gateway, status};

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
        let refusing = Router::new().fallback(status::fenced_peer);
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
        tokio::pin!(stop);
        loop {
            let place = tokio::select! {
                Ok(place) = Arc::clone(&places).acquire_owned() => place,
                () = &mut stop => break,
            };
            let (stream, peer) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        pause_after(&error).await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            prepare(&stream);
            let (gateway, server, watcher) = (Arc::clone(&self), server.clone(), connections.watcher());
            let (router, refusing) = (router.clone(), refusing.clone());
            tokio::spawn(async move {
                let is_welcome = gateway.is_welcome(&stream, peer).await;
                let service = TowerToHyperService::new(if is_welcome { router } else { refusing });
                let connection = watcher.watch(server.serve_connection(TokioIo::new(stream), service));
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

impl Gateway {
    /// Nobody inside a fence may use the gateway: it could open a session with a wider scope than its own.
    async fn is_welcome(self: &Arc<Self>, stream: &TcpStream, peer: SocketAddr) -> bool {
        let Ok(local) = stream.local_addr() else { return false };
        if !self.peers.are_needed() {
            return true;
        }
        let gateway = Arc::clone(self);
        let verdict = tokio::task::spawn_blocking(move || gateway.peers.judge(peer, local)).await;
        let is_welcome = matches!(verdict, Ok(Peer::Outside));
        if !is_welcome {
            self.sessions.counters().denials.add("fenced_peer");
            // A fenced process must not be able to flood the logs with its attempts.
            if self.sessions.counters().fenced_peers.add_and_should_log() {
                tracing::error!(%peer, ?verdict, "a connection from inside a fence, or from nobody, is refused");
                self.sessions.refused("a connection from inside a fence", Some(&peer.to_string()));
            }
        }
        is_welcome
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
