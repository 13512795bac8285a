//! The wire between a client's machine and its gateway. It can be cut, lead to another gateway, or hand the attachment
//! to the test. It learns the session's id from the path of the attachment.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use testkit::within_deadline;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufStream, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;

/// The client's end of a wire, whose first bytes can be looked at.
type ClientEnd = BufStream<Box<dyn Stream>>;

pub(super) type Hijacked = WebSocketStream<ClientEnd>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Proxy {
    address: SocketAddr,
    wires: Arc<Wires>,
    accepting: AbortHandle,
}

struct Wires {
    /// Terminates TLS, if clients use it.
    tls: Option<TlsAcceptor>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The gateway's host and port. `None`: new connections are closed at once.
    target: Option<String>,
    session_id: Option<String>,
    attachments: Vec<AbortHandle>,
    others: Vec<AbortHandle>,
    /// Clones of the connections that carry attachments to the gateway, which keep them open when a wire is aborted.
    gateway_ends: Vec<std::net::TcpStream>,
    attached: usize,
    hijacker: Option<mpsc::UnboundedSender<Hijacked>>,
    /// The URL to which attachments are redirected.
    redirection: Option<String>,
}

impl Proxy {
    pub(crate) async fn start(gateway: &str) -> Self {
        Self::start_at("127.0.0.1", gateway, None).await
    }

    pub(super) async fn start_at(host: &str, gateway: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { target: Some(authority(gateway)), ..State::default() };
        let wires = Arc::new(Wires { tls, state: Mutex::new(state) });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&wires))).abort_handle();
        Self { address, wires, accepting }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.wires.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The id of the session that was attached last.
    pub(super) fn session_id(&self) -> Option<String> {
        self.wires.state.lock().unwrap().session_id.clone()
    }

    /// Leads new connections to another gateway.
    pub(crate) fn lead_to(&self, gateway: &str) {
        self.wires.state.lock().unwrap().target = Some(authority(gateway));
    }

    /// How many attachments were requested so far.
    pub(super) fn attached(&self) -> usize {
        self.wires.state.lock().unwrap().attached
    }

    /// Cuts the attachments, and nothing else.
    pub(super) fn cut_attachments(&self) {
        let mut state = self.wires.state.lock().unwrap();
        state.attachments.drain(..).for_each(|wire| wire.abort());
        state.gateway_ends.clear();
    }

    /// Cuts the attachments but keeps the gateway's ends open, as when a machine moves to another network.
    pub(super) fn cut_attachments_unnoticed(&self) {
        self.wires.state.lock().unwrap().attachments.drain(..).for_each(|wire| wire.abort());
    }

    /// Cuts everything and closes new connections at once until [`Self::lead_to`] is called.
    pub(super) fn cut(&self) {
        let mut state = self.wires.state.lock().unwrap();
        state.target = None;
        state.gateway_ends.clear();
        let State { attachments, others, .. } = &mut *state;
        attachments.drain(..).chain(others.drain(..)).for_each(|wire| wire.abort());
    }

    /// Answers new attachments with a redirect to this URL.
    pub(super) fn redirect_attachments(&self, url: &str) {
        self.wires.state.lock().unwrap().redirection = Some(url.to_owned());
    }

    /// Makes new attachments end in the test instead of the gateway.
    pub(super) fn hijack(&self) -> mpsc::UnboundedReceiver<Hijacked> {
        let (sender, sockets) = mpsc::unbounded_channel();
        self.wires.state.lock().unwrap().hijacker = Some(sender);
        sockets
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

/// The host and port of a URL.
fn authority(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    rest.split('/').next().unwrap().to_owned()
}

async fn accept(listener: TcpListener, wires: Arc<Wires>) {
    while let Ok((stream, _)) = listener.accept().await {
        let carried = Arc::clone(&wires);
        let wire = tokio::spawn(async move {
            let Some(mut stream) = carried.client_end(stream).await else { return };
            if let Some(id) = attached_session(&mut stream).await {
                carried.carry_attachment(stream, id).await;
            } else {
                carried.carry(stream, false).await;
            }
        });
        wires.state.lock().unwrap().others.push(wire.abort_handle());
    }
}

/// The session id, if this connection is an attachment.
async fn attached_session(stream: &mut ClientEnd) -> Option<String> {
    let start = within_deadline("the first bytes of a request are there", stream.fill_buf()).await.ok()?;
    let start = String::from_utf8_lossy(start);
    let path = start.strip_prefix("GET /session/")?;
    Some(path.split_once("/attach ")?.0.to_owned())
}

impl Wires {
    /// Returns `None` if the client ends the TLS handshake.
    async fn client_end(&self, stream: TcpStream) -> Option<ClientEnd> {
        Some(BufStream::new(match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.accept(stream).await.ok()?),
        }))
    }

    async fn carry_attachment(self: Arc<Self>, mut stream: ClientEnd, id: String) {
        let (hijacker, redirection) = {
            let mut state = self.state.lock().unwrap();
            state.session_id = Some(id);
            state.attached += 1;
            (state.hijacker.clone(), state.redirection.clone())
        };
        if let Some(url) = redirection {
            let answer =
                format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            return;
        }
        let Some(hijacker) = hijacker else {
            let wires = Arc::clone(&self);
            let wire = tokio::spawn(async move { wires.carry(stream, true).await });
            self.state.lock().unwrap().attachments.push(wire.abort_handle());
            return;
        };
        let accepted = tokio_tungstenite::accept_hdr_async(stream, agree).await;
        if let Ok(socket) = accepted {
            let _ = hijacker.send(socket);
        }
    }

    async fn carry(&self, mut stream: ClientEnd, is_attachment: bool) {
        let target = self.state.lock().unwrap().target.clone();
        let Some(target) = target else { return };
        if let Ok(gateway) = TcpStream::connect(target).await {
            let gateway = gateway.into_std().unwrap();
            if is_attachment {
                self.state.lock().unwrap().gateway_ends.push(gateway.try_clone().unwrap());
            }
            let mut gateway = TcpStream::from_std(gateway).unwrap();
            let _ = copy_bidirectional(&mut stream, &mut gateway).await;
        }
    }
}

#[expect(clippy::result_large_err, clippy::unnecessary_wraps, reason = "the library wants it so")]
fn agree(
    _: &Request,
    mut response: Response,
) -> Result<Response, tokio_tungstenite::tungstenite::handshake::server::ErrorResponse> {
    response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("ringfence.attach.1"));
    Ok(response)
}
