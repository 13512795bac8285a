//! From a connection to its requests: accept → judge who is there → take a place → serve; and the graceful shutdown.
//!
//! Clients connect over TCP, the operator over a unix socket with places of its own, so that it can list and stop
//! sessions whatever clients do.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderValue, header};
use fence::Peer;
use futures_util::FutureExt;
use futures_util::future::select_all;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use session::ShutDownCause;
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

/// How long a connection that was accepted last may take to send its request, before another program takes over.
const LAST_HEAD_WITHIN: Duration = Duration::from_millis(500);

/// How long clients at least may take to leave the connections that they have, so that one that calls often does not
/// send a request on a connection that is being closed.
const MOVE_WITHIN: Duration = Duration::from_millis(250);

/// How often it is looked whether nothing is in progress. A moment between two calls is short.
const QUIET_INTERVAL: Duration = Duration::from_millis(2);

/// The sockets that the gateway serves.
#[derive(Debug)]
pub struct Listeners {
    /// At least one.
    pub clients: Vec<TcpListener>,
    /// Set if clients speak TLS.
    pub tls: Option<Tls>,
    /// For the operator's paths only.
    pub operator: Option<UnixListener>,
}

/// When a gateway leaves, and how long it waits for calls in flight.
#[derive(Debug)]
pub struct Leaving<S, U> {
    /// Resolves when the gateway is to end.
    pub stop: S,
    /// Resolves when another program is to take over.
    pub upgrade: U,
    /// How long calls in flight may take once no other is taken.
    pub drain: Duration,
    /// How long the gateway goes on before an upgrade, to find a moment without calls in flight.
    pub drain_timeout: Duration,
}

/// How a gateway left.
#[derive(Debug)]
pub enum Departure {
    End,
    /// The sockets go on listening, and connections wait there for the next program.
    Upgrade(Vec<std::net::TcpListener>),
}

/// What the connections are to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Serve,
    /// End after the request in progress, or the first one if none came yet.
    Finish,
    /// End now, or after the request in progress.
    Close,
}

/// The connections that are being served or refused.
struct Connections {
    tasks: TaskTracker,
    /// Tells them what to do.
    phase: watch::Sender<Phase>,
    /// For those that are being judged, and one for the next of each listener.
    judges: Arc<Semaphore>,
    all_judges: usize,
}

impl Connections {
    fn of(listeners: usize) -> Self {
        let all_judges = MAX_JUDGED_AT_ONCE + listeners.saturating_sub(1);
        let judges = Arc::new(Semaphore::new(all_judges));
        Self { tasks: TaskTracker::default(), phase: watch::Sender::default(), judges, all_judges }
    }

    /// Whether each connection that was accepted has its place, or none. For when no more are accepted.
    fn are_judged(&self) -> bool {
        self.judges.available_permits() == self.all_judges
    }

    /// Ends those that are idle, and waits for the last responses of the others, but not for long.
    async fn close(&self) {
        self.phase.send_replace(Phase::Close);
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
    /// Serves until it is to leave, then gives calls in flight some time, ends every session and its processes, and
    /// closes the connections.
    pub async fn serve<S: Future<Output = ()>, U: Future<Output = ()>>(
        self: Arc<Self>,
        listeners: Listeners,
        leaving: Leaving<S, U>,
    ) -> Departure {
        let Leaving { stop, upgrade, drain, drain_timeout } = leaving;
        let Listeners { clients, tls, operator } = listeners;
        let connections = Connections::of(clients.len());
        let mut stop = pin!(stop);
        let all_clients =
            clients.iter().map(|one| Box::pin(self.accept_clients(&connections, one, tls.clone())));
        let is_upgrade = tokio::select! {
            _ = select_all(all_clients) => false,
            () = self.accept_operator(&connections, operator) => false,
            () = revocation::watch(&self) => false,
            () = &mut stop => false,
            () = self.quiet_moment(upgrade, drain_timeout) => true,
        };
        if is_upgrade {
            tokio::select! {
                () = self.finish_requests(&connections, drain) => {}
                () = &mut stop => {}
            }
        }
        // Before an upgrade, those that are still in flight have had their time.
        let (drain, cause) =
            if is_upgrade { (Duration::ZERO, ShutDownCause::Upgrade) } else { (drain, ShutDownCause::End) };
        self.sessions.shut_down(drain, cause).await;
        connections.close().await;
        if !is_upgrade || stop.now_or_never().is_some() {
            return Departure::End;
        }
        let clients: io::Result<Vec<_>> = clients.into_iter().map(TcpListener::into_std).collect();
        clients.map_or(Departure::End, Departure::Upgrade)
    }

    /// Once an upgrade is wanted, waits for a moment without a request in progress, but not longer than this. The gateway
    /// serves meanwhile, and has clients use another connection for each request, so that few are open at the end.
    async fn quiet_moment(&self, upgrade: impl Future<Output = ()>, at_most: Duration) {
        upgrade.await;
        self.begin_moving();
        sleep(MOVE_WITHIN).await;
        let deadline = Instant::now() + at_most;
        while !self.is_quiet() && Instant::now() < deadline {
            sleep(QUIET_INTERVAL).await;
        }
    }

    fn is_quiet(&self) -> bool {
        self.places.are_quiet() && self.sessions.all().iter().all(|session| session.calls_in_flight() == 0)
    }

    /// Answers the requests of all connections that were accepted, as far as that is possible in this time.
    async fn finish_requests(&self, connections: &Connections, at_most: Duration) {
        connections.phase.send_replace(Phase::Finish);
        let deadline = Instant::now() + at_most;
        let is_finished = || connections.are_judged() && self.places.only_respond() && self.is_quiet();
        while !is_finished() && Instant::now() < deadline {
            sleep(QUIET_INTERVAL).await;
        }
    }

    /// Accepts connections until it is dropped. A slow connection does not delay the others.
    async fn accept_clients(
        self: &Arc<Self>,
        connections: &Connections,
        listener: &TcpListener,
        tls: Option<Tls>,
    ) {
        let (router, refused) = (client_router(self), RefusedConnections::default());
        // A connection that was accepted is always served, also if this loop ends then.
        while let Ok(judge) = Arc::clone(&connections.judges).acquire_owned().await {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.recover_from(&error).await;
                    continue;
                }
            };
            let (gateway, tls, phase) = (Arc::clone(self), tls.clone(), connections.phase.subscribe());
            let (router, refused) = (router.clone(), refused.clone());
            connections.tasks.spawn(async move {
                let admitted = gateway.admit_client(&stream, address).await;
                drop(judge);
                match admitted {
                    Ok(place) => gateway.serve_client(stream, tls, place, address, router, phase).await,
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
            let (gateway, router, phase) = (Arc::clone(self), router.clone(), connections.phase.subscribe());
            connections.tasks.spawn(async move {
                match gateway.judge_operator(&stream).await {
                    Peer::OwnUser | Peer::OtherUser(0) => {
                        gateway.serve_connection(stream, &place, None, router, phase).await;
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

/// What is done with one connection.
impl Gateway {
    async fn serve_client(
        self: &Arc<Self>,
        stream: TcpStream,
        tls: Option<Tls>,
        place: Place,
        address: SocketAddr,
        router: Router,
        phase: watch::Receiver<Phase>,
    ) {
        // Without it answers wait for the peer's acknowledgement. A failure costs only time.
        let _ = stream.set_nodelay(true);
        let from = Some(ConnectedFrom(address));
        let Some(tls) = tls else {
            return self.serve_connection(stream, &place, from, router, phase).await;
        };
        let shaken = tokio::select! {
            shaken = tls.accept(stream) => shaken,
            () = place.connection().given_up() => return,
        };
        match shaken {
            Ok(stream) => self.serve_connection(stream, &place, from, router, phase).await,
            Err(error) => tracing::debug!(%address, "TLS handshake: {error}"),
        }
    }

    async fn serve_connection(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: &Place,
        from: Option<ConnectedFrom>,
        router: Router,
        mut phase: watch::Receiver<Phase>,
    ) {
        let router = TowerToHyperService::new(router);
        let (state, gateway) = (Arc::clone(place.connection()), Arc::clone(self));
        let service = service_fn(move |mut request: Request<Incoming>| {
            let busy = state.begin_request();
            if let Some(from) = from {
                request.extensions_mut().insert(from);
            }
            let response = router.call(request);
            let (state, gateway) = (Arc::clone(&state), Arc::clone(&gateway));
            async move {
                let response = response.await;
                state.responds();
                response.map(|mut response| {
                    if gateway.is_moving() {
                        ask_to_close(response.headers_mut());
                    }
                    ServedBody::of(response, busy)
                })
            }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(NEXT_HEAD_WITHIN);
        let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service).with_upgrades());
        let state = place.connection();
        let ended = tokio::select! {
            biased;
            ended = SelfWake::new(connection.as_mut()) => ended,
            () = is_over(state, &mut phase) => {
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
}

/// Has the client use another connection for its next request. A connection that becomes something else keeps its header.
fn ask_to_close(headers: &mut header::HeaderMap) {
    if !headers.contains_key(header::UPGRADE) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Resolves when the gateway leaves, the place went to another connection, or no request came in time.
async fn is_over(connection: &Connection, phase: &mut watch::Receiver<Phase>) {
    let stays_silent = async {
        sleep(FIRST_HEAD_WITHIN).await;
        if connection.has_begun() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = is_to_end(connection, phase) => {}
        () = connection.given_up() => {}
        () = stays_silent => {}
    }
}

async fn is_to_end(connection: &Connection, phase: &mut watch::Receiver<Phase>) {
    let mut leaving = Phase::Serve;
    if let Ok(phase) = phase.wait_for(|phase| *phase != Phase::Serve).await {
        leaving = *phase;
    }
    if leaving == Phase::Finish {
        // A request that has arrived already is read meanwhile. To a connection that was accepted a moment ago, one is
        // probably on its way.
        let deadline = Instant::now() + LAST_HEAD_WITHIN;
        sleep(QUIET_INTERVAL).await;
        while !connection.has_begun() && Instant::now() < deadline {
            sleep(QUIET_INTERVAL).await;
        }
    }
}
