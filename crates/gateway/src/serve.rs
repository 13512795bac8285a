//! The accept loop and the graceful shutdown.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use fence::Peer;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::authentication::ConnectedFrom;
use crate::router::{client_router, operator_router};
use crate::self_wake::SelfWake;
use crate::tls::Tls;
use crate::{Gateway, revocation, status};

/// How long a peer may take to send its next request head. Clients keep idle connections for 5 to 90 seconds.
const HEAD_WITHIN: Duration = Duration::from_secs(120);

/// Connections at once. Each session of a busy client holds a handful.
const MAX_CONNECTIONS: usize = 8192;

/// The pause after an accept failed for lack of descriptors, so that some get closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the last responses may take to be written during shutdown.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// The sockets that the gateway serves.
#[derive(Debug)]
pub struct Listeners {
    pub clients: TcpListener,
    /// Set if clients speak TLS.
    pub tls: Option<Tls>,
    /// On loopback, for the operator's paths only. Where clients use TLS or come from other hosts, the operator's
    /// tools reach the gateway of their own host without a certificate or a name.
    pub operator: Option<TcpListener>,
}

impl Gateway {
    /// Serves until `stop` resolves, then gives calls in flight until `drain`, ends every session and its
    /// processes, and closes the connections.
    pub async fn serve(
        self: Arc<Self>,
        listeners: Listeners,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) {
        let Listeners { clients, tls, operator } = listeners;
        let connections = watch::Sender::new(());
        let clients = self.accept(&connections, clients, tls, client_router(&self));
        let operator = async {
            match operator {
                Some(operator) => self.accept(&connections, operator, None, operator_router(&self)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = clients => {}
            () = operator => {}
            () = revocation::watch(&self) => {}
            () = stop => {}
        }
        self.sessions.shut_down(drain).await;
        connections.send_replace(());
        let _ = tokio::time::timeout(LAST_WRITES, connections.closed()).await;
    }

    /// Accepts connections until it is dropped. A slow connection does not delay the others.
    async fn accept(
        self: &Arc<Self>,
        connections: &watch::Sender<()>,
        listener: TcpListener,
        tls: Option<Tls>,
        router: Router,
    ) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let refusing = Router::new().fallback(status::fenced_peer);
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            };
            prepare(&stream);
            let (gateway, tls, closing) = (Arc::clone(self), tls.clone(), connections.subscribe());
            let (router, refusing) = (router.clone(), refusing.clone());
            tokio::spawn(async move {
                let is_welcome = gateway.is_welcome(&stream, peer).await;
                let router = if is_welcome { router } else { refusing };
                match tls {
                    None => serve_connection(stream, peer, router, closing).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => serve_connection(stream, peer, router, closing).await,
                        Err(error) => tracing::debug!(%peer, "TLS handshake: {error}"),
                    },
                }
                drop(permit);
            });
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectedFrom(peer));
        router.call(request)
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ended = tokio::select! {
        ended = SelfWake::new(connection.as_mut()) => ended,
        _ = closing.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("connection: {error}");
    }
}

impl Gateway {
    /// Returns false for a peer inside a fence: it could open a session with a wider scope than its own.
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
                tracing::error!(%peer, ?verdict, "refused a connection from inside a fence or from an unknown process");
                self.sessions.refused("a connection from inside a fence", Some(&peer.to_string()));
            }
        }
        is_welcome
    }
}

fn prepare(stream: &TcpStream) {
    // Without it answers wait for the peer's acknowledgement. A failure costs only time.
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
