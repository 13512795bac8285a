//! Receivers of a log, which can go away, come back at the same address, and break while they read.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_rustls::TlsAcceptor;

use super::Site;
use crate::authentication::write_private;

/// A self-signed certificate for this host. A gateway trusts it with `SSL_CERT_FILE` set to `cert.pem`.
pub(super) fn tls(site: &Site) -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    write_private(&site.directory.join("cert.pem"), &made.cert.pem());
    write_private(&site.directory.join("key.pem"), &made.signing_key.serialize_pem());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    Arc::new(config).into()
}

/// What a receiver does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Reads to the end, then closes.
    Proper,
    /// Reads a part and goes away, like a process that is killed.
    Breaks,
    /// Accepts, and reads nothing.
    Hangs,
}

#[derive(Default)]
struct State {
    /// The lines that were received whole.
    lines: Vec<String>,
    /// Connections that were not served properly.
    spoiled: usize,
}

/// A syslog receiver that takes octet counting and RFC 5424 literally.
pub(super) struct SyslogReceiver {
    pub(super) address: SocketAddr,
    /// Keeps the address while nothing listens there.
    _reserved: TcpSocket,
    state: Arc<Mutex<State>>,
    accepting: Option<JoinHandle<()>>,
}

/// A socket that shares its address with others of this user.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

impl SyslogReceiver {
    /// Reserves an address. Nothing listens there yet.
    pub(super) fn away() -> Self {
        let reserved = bound("127.0.0.1:0".parse().unwrap());
        let address = reserved.local_addr().unwrap();
        Self { address, _reserved: reserved, state: Arc::default(), accepting: None }
    }

    pub(super) fn url(&self) -> String {
        format!("syslog+tcp://{}", self.address)
    }

    /// Listens from now on.
    pub(super) async fn listen(&mut self, manner: Manner, tls: Option<TlsAcceptor>) {
        self.leave().await;
        let listener = bound(self.address).listen(128).unwrap();
        self.accepting = Some(tokio::spawn(accept(listener, manner, tls, Arc::clone(&self.state))));
    }

    /// Closes the listener and all connections.
    pub(super) async fn leave(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.state.lock().lines.clone()
    }

    /// How many connections were not served properly.
    pub(super) fn spoiled(&self) -> usize {
        self.state.lock().spoiled
    }
}

impl Drop for SyslogReceiver {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

async fn accept(listener: TcpListener, manner: Manner, tls: Option<TlsAcceptor>, state: Arc<Mutex<State>>) {
    // Connections that are left hanging stay open.
    let mut hanging = Vec::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        match manner {
            Manner::Hangs => {
                state.lock().spoiled += 1;
                hanging.push(stream);
            }
            Manner::Breaks => {
                // What is unread when it closes makes the connection reset.
                stream.read_exact(&mut [0; 10]).await.unwrap();
                state.lock().spoiled += 1;
            }
            Manner::Proper => match &tls {
                None => receive(stream, &state).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => receive(stream, &state).await,
                    Err(_) => state.lock().spoiled += 1,
                },
            },
        }
    }
}

async fn receive(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<State>) {
    let mut frames = Vec::new();
    let read = stream.read_to_end(&mut frames).await;
    let mut rest = frames.as_slice();
    while let Some((message, after)) = split_frame(rest) {
        state.lock().lines.push(line_of(message));
        rest = after;
    }
    // Happens only when the gateway is killed while it sends.
    if read.is_err() || !rest.is_empty() {
        state.lock().spoiled += 1;
    }
    let _ = stream.shutdown().await;
}

/// Splits off `LENGTH SP MESSAGE`, the length without leading zeros. Returns `None` if it is not whole.
fn split_frame(frames: &[u8]) -> Option<(&str, &[u8])> {
    let space = frames.iter().position(|byte| *byte == b' ')?;
    let digits = std::str::from_utf8(&frames[..space]).unwrap();
    let length: usize = digits.parse().unwrap();
    assert_eq!(length.to_string(), digits);
    let (message, rest) = frames[space + 1..].split_at_checked(length)?;
    Some((std::str::from_utf8(message).unwrap(), rest))
}

/// Checks the header of RFC 5424 and returns the message.
fn line_of(message: &str) -> String {
    let fields: Vec<&str> = message.splitn(8, ' ').collect();
    let [priority, time, host, program, pid, event, data, line] = fields[..] else { panic!("{message}") };
    let record: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((priority, program, data), ("<110>1", "ringfence", "-"), "{message}");
    assert_eq!(
        (time, event),
        (record["time"].as_str().unwrap(), record["event"].as_str().unwrap()),
        "{message}"
    );
    assert!(!host.is_empty() && pid.parse::<u32>().is_ok(), "{message}");
    line.to_owned()
}

/// One request that an HTTP receiver got.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) head: String,
    pub(super) lines: Vec<String>,
}

/// An HTTP receiver. It answers with a status, and keeps the requests.
pub(super) struct HttpReceiver {
    address: SocketAddr,
    answer: Arc<Mutex<String>>,
    posted: Arc<Mutex<Vec<Posted>>>,
    accepting: AbortHandle,
}

impl HttpReceiver {
    pub(super) async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(Mutex::new("204 No Content".to_owned()));
        let posted = Arc::default();
        let taking = take_requests(listener, tls, Arc::clone(&answer), Arc::clone(&posted));
        Self { address, answer, posted, accepting: tokio::spawn(taking).abort_handle() }
    }

    /// `localhost:PORT/in`, which a scheme makes a URL.
    pub(super) fn place(&self) -> String {
        format!("localhost:{}/in", self.address.port())
    }

    /// Answers like this from now on: a status, and headers after it.
    pub(super) fn answer(&self, status: &str) {
        status.clone_into(&mut self.answer.lock());
    }

    pub(super) fn posted(&self) -> Vec<Posted> {
        self.posted.lock().clone()
    }

    /// The lines of all requests.
    pub(super) fn lines(&self) -> Vec<String> {
        self.posted().into_iter().flat_map(|posted| posted.lines).collect()
    }
}

impl Drop for HttpReceiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn take_requests(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answer: Arc<Mutex<String>>,
    posted: Arc<Mutex<Vec<Posted>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, answer, posted) = (tls.clone(), Arc::clone(&answer), Arc::clone(&posted));
        tokio::spawn(async move {
            match tls {
                None => converse(stream, &answer, &posted).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => converse(stream, &answer, &posted).await,
                    Err(_) => None,
                },
            }
        });
    }
}

/// Serves requests until the connection ends.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &Mutex<String>,
    posted: &Mutex<Vec<Posted>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await.ok()?;
        let body = String::from_utf8(body).unwrap();
        assert!(body.is_empty() || body.ends_with('\n'), "whole lines");
        posted.lock().push(Posted { head, lines: body.lines().map(str::to_owned).collect() });
        let text = format!("HTTP/1.1 {}\r\nContent-Length: 0\r\n\r\n", answer.lock());
        stream.write_all(text.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
    }
}
