//! From a connection to its requests: accept → judge who is there → take a place → serve; and the graceful shutdown.
//!
//! Clients connect over TCP, the operator over a unix socket with places of its own, so that it can list and stop
//! sessions whatever clients do.

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
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::authentication::ConnectedFrom;
use crate::places::{Connection, Origin, Place, Places};
use crate::refused_connection::RefusedConnections;
use crate::router::{client_router, operator_router};
use crate::self_wake::SelfWake;
use crate::served_body::ServedBody;
use crate::status::{RequestError, last_response};
use crate::tls::Tls;
use crate::{Gateway, revocation};

/// How long a peer may take to send its first request head. Clients connect when they have something to send.
const FIRST_HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long it may take for the next one. Clients keep idle connections for 5 to 90 seconds.
const NEXT_HEAD_WITHIN: Duration = Duration::from_secs(120);

/// Connections that are being judged. Judging uses a processor, and a flood of connections must not take them all.
const MAX_JUDGED_AT_ONCE: usize = 4;

/// Connections of the operator at once. A tool needs one.
const MAX_OPERATOR_CONNECTIONS: usize = 32;

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
    /// For the operator's paths only.
    pub operator: Option<UnixListener>,
}

/// The connections that are being served or refused.
#[derive(Default)]
struct Connections {
    tasks: TaskTracker,
    /// Tells them that the gateway shuts down.
    closing: watch::Sender<()>,
}

impl Connections {
    /// Ends those that are idle, and waits for the last responses of the others, but not for long.
    async fn close(&self) {
        self.closing.send_replace(());
        self.tasks.close();
        let _ = tokio::time::timeout(LAST_WRITES, self.tasks.wait()).await;
    }
}

/// Why a connection gets no place.
enum NotAdmitted {
    Refused(RequestError),
    /// The client has closed it already.
    Gone,
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
        let connections = Connections::default();
        tokio::select! {
            () = self.accept_clients(&connections, clients, tls) => {}
            () = self.accept_operator(&connections, operator) => {}
            () = revocation::watch(&self) => {}
            () = stop => {}
        }
        self.sessions.shut_down(drain).await;
        connections.close().await;
    }

    /// Accepts connections until it is dropped. A slow connection does not delay the others.
    async fn accept_clients(
        self: &Arc<Self>,
        connections: &Connections,
        listener: TcpListener,
        tls: Option<Tls>,
    ) {
        let (router, refused) = (client_router(self), RefusedConnections::default());
        let judges = Arc::new(Semaphore::new(MAX_JUDGED_AT_ONCE));
        while let Ok(judge) = Arc::clone(&judges).acquire_owned().await {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.recover_from(&error).await;
                    continue;
                }
            };
            let (gateway, tls, closing) = (Arc::clone(self), tls.clone(), connections.closing.subscribe());
            let (router, refused) = (router.clone(), refused.clone());
            connections.tasks.spawn(async move {
                let admitted = gateway.admit_client(&stream, address).await;
                drop(judge);
                match admitted {
                    Ok(place) => serve_client(stream, tls, place, address, router, closing).await,
                    Err(NotAdmitted::Gone) => tracing::debug!(%address, "closed before it could be judged"),
                    // What is not encrypted means nothing to a client that speaks TLS.
                    Err(NotAdmitted::Refused(_)) if tls.is_some() => {}
                    Err(NotAdmitted::Refused(error)) => refused.answer(stream, &last_response(&error)).await,
                }
            });
        }
    }

    /// The operator's listener. Peers must be processes of this user or of root, outside all fences.
    async fn accept_operator(self: &Arc<Self>, connections: &Connections, listener: Option<UnixListener>) {
        let Some(listener) = listener else { return std::future::pending().await };
        let (router, places) = (operator_router(self), Places::new(MAX_OPERATOR_CONNECTIONS));
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    self.recover_from(&error).await;
                    continue;
                }
            };
            let Some(place) = places.take(Origin::OwnUser) else { continue };
            let (gateway, router, closing) =
                (Arc::clone(self), router.clone(), connections.closing.subscribe());
            connections.tasks.spawn(async move {
                match gateway.judge_operator(&stream).await {
                    Peer::OwnUser | Peer::OtherUser(0) => {
                        serve_connection(stream, &place, None, router, closing).await;
                    }
                    peer => {
                        if let NotAdmitted::Refused(error) = refusal_of(peer) {
                            gateway.report_refusal(&error, "the operator's socket", peer);
                        }
                    }
                }
            });
        }
    }

    /// Makes room after an accept failed for lack of descriptors.
    async fn recover_from(&self, error: &io::Error) {
        let is_about_one_peer = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionRefused
        );
        if !is_about_one_peer {
            tracing::error!("cannot accept connections: {error}");
            self.places.give_up_one();
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Who may connect.
impl Gateway {
    /// Returns a place for a connection, or why it gets none.
    async fn admit_client(
        self: &Arc<Self>,
        stream: &TcpStream,
        address: SocketAddr,
    ) -> Result<Place, NotAdmitted> {
        let peer = self.judge_client(stream, address).await;
        let admitted = if self.is_welcome(peer) {
            let place = self.places.take(self.origin_of(peer, address));
            place.ok_or(NotAdmitted::Refused(RequestError::TooManyConnections))
        } else {
            Err(refusal_of(peer))
        };
        if let Err(NotAdmitted::Refused(error)) = &admitted {
            self.report_refusal(error, &address.to_string(), peer);
        }
        admitted
    }

    /// A process inside a fence could open a session with a wider scope than its own. Without tokens, only the user
    /// whose rights sessions have may open them: root has no exception, and can use `sudo -u` or `--allow-uid 0`.
    fn is_welcome(&self, peer: Peer) -> bool {
        match peer {
            Peer::OwnUser => true,
            Peer::OtherUser(uid) => self.wants_tokens() || self.config.allowed_uids.contains(&uid),
            Peer::Remote => self.wants_tokens(),
            Peer::Fenced | Peer::Gone | Peer::Unknown => false,
        }
    }

    fn origin_of(&self, peer: Peer, address: SocketAddr) -> Origin {
        match peer {
            Peer::OwnUser => Origin::OwnUser,
            _ if self.config.is_behind_proxy => Origin::Proxy,
            Peer::OtherUser(uid) => Origin::OtherUser(uid),
            Peer::Remote | Peer::Fenced | Peer::Gone | Peer::Unknown => Origin::host(address.ip()),
        }
    }

    async fn judge_client(self: &Arc<Self>, stream: &TcpStream, address: SocketAddr) -> Peer {
        let Ok(local) = stream.local_addr() else { return Peer::Unknown };
        let gateway = Arc::clone(self);
        let judged = tokio::task::spawn_blocking(move || gateway.peers.judge(address, local)).await;
        judged.unwrap_or(Peer::Unknown)
    }

    async fn judge_operator(self: &Arc<Self>, stream: &UnixStream) -> Peer {
        let Ok(credentials) = stream.peer_cred() else { return Peer::Unknown };
        let (pid, uid) = (credentials.pid().and_then(rustix::process::Pid::from_raw), credentials.uid());
        let gateway = Arc::clone(self);
        let judged = tokio::task::spawn_blocking(move || gateway.peers.judge_process(pid, uid)).await;
        judged.unwrap_or(Peer::Unknown)
    }

    /// Counts a refusal, and logs and audits some, so that no peer can flood the logs with its attempts.
    fn report_refusal(&self, error: &RequestError, from: &str, peer: Peer) {
        let counters = self.sessions.counters();
        let (label, reason, count) = match error {
            RequestError::ForeignPeer => {
                ("foreign_uid", "a connection of another user", &self.refused_connections)
            }
            RequestError::TooManyConnections => {
                ("too_many", "a connection beyond the limit", &self.refused_connections)
            }
            _ if peer == Peer::Unknown => {
                ("fenced_peer", "a connection of a process that cannot be identified", &counters.fenced_peers)
            }
            _ => ("fenced_peer", "a connection from inside a fence", &counters.fenced_peers),
        };
        counters.denials.add(label);
        if count.add_and_should_log() {
            tracing::error!(from, ?peer, "refused {reason}");
            self.sessions.refused(reason, Some(from));
        }
    }
}

fn refusal_of(peer: Peer) -> NotAdmitted {
    match peer {
        Peer::OwnUser | Peer::OtherUser(_) | Peer::Remote => NotAdmitted::Refused(RequestError::ForeignPeer),
        Peer::Fenced | Peer::Unknown => NotAdmitted::Refused(RequestError::FencedPeer),
        Peer::Gone => NotAdmitted::Gone,
    }
}

async fn serve_client(
    stream: TcpStream,
    tls: Option<Tls>,
    place: Place,
    address: SocketAddr,
    router: Router,
    closing: watch::Receiver<()>,
) {
    // Without it answers wait for the peer's acknowledgement. A failure costs only time.
    let _ = stream.set_nodelay(true);
    let from = Some(ConnectedFrom(address));
    let Some(tls) = tls else { return serve_connection(stream, &place, from, router, closing).await };
    let shaken = tokio::select! {
        shaken = tls.accept(stream) => shaken,
        () = place.connection().given_up() => return,
    };
    match shaken {
        Ok(stream) => serve_connection(stream, &place, from, router, closing).await,
        Err(error) => tracing::debug!(%address, "TLS handshake: {error}"),
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    place: &Place,
    from: Option<ConnectedFrom>,
    router: Router,
    mut closing: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let state = Arc::clone(place.connection());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let busy = state.begin_request();
        if let Some(from) = from {
            request.extensions_mut().insert(from);
        }
        let response = router.call(request);
        async move { response.await.map(|response| ServedBody::of(response, busy)) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(NEXT_HEAD_WITHIN);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let state = place.connection();
    let ended = tokio::select! {
        ended = SelfWake::new(connection.as_mut()) => ended,
        () = is_over(state, &mut closing) => {
            if !state.has_begun() {
                return;
            }
            // Ends now if it is idle, else after the response.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("connection: {error}");
    }
}

/// Resolves when the gateway shuts down, the place went to another connection, or no request came in time.
async fn is_over(connection: &Connection, closing: &mut watch::Receiver<()>) {
    let stays_silent = async {
        sleep(FIRST_HEAD_WITHIN).await;
        if connection.has_begun() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = closing.changed() => {}
        () = connection.given_up() => {}
        () = stays_silent => {}
    }
}
