//! The HTTP proxy of a fence: CONNECT to port 443, plain HTTP to port 80. One connection carries one request;
//! what the client sends after it is not forwarded.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::connections::{Slots, serve_each};
use super::egress::{Egress, EgressError};
use super::request_body::{self, BodyError, BodyLength};
use super::request_head::{HeadError, PLAIN_PORT, Request, TUNNEL_PORT, parse_head, read_head};
use super::splice::{Activity, carry, splice};

/// For a client to say what it wants.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// Without a byte in either direction. Long enough for answers that are computed for minutes.
const IDLE_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// How long, and for how much, a client that still sends is listened to after its answer: if its bytes were
/// left unread, the kernel would reset the connection and the answer could be lost.
const FAREWELL_DEADLINE: Duration = Duration::from_secs(2);
const FAREWELL_BYTES: u64 = 1024 * 1024;

pub(super) async fn serve(listener: TcpListener, slots: Slots, egress: Arc<Egress>) {
    serve_each(listener, slots, |client| serve_client(client, Arc::clone(&egress))).await;
}

/// Why a request is answered by the proxy itself.
#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("the request did not come in time")]
    HeadTookTooLong,
    #[error(transparent)]
    Egress(#[from] EgressError),
}

/// A request with the connection on which it goes out.
enum Exchange {
    Tunnel { early: Vec<u8>, server: TcpStream },
    Forward { head: Vec<u8>, body: BodyLength, early: Vec<u8>, server: TcpStream },
}

async fn serve_client(mut client: TcpStream, egress: Arc<Egress>) {
    let carried = match prepare(&mut client, &egress).await {
        Ok(Exchange::Tunnel { early, server }) => tunnel(client, &early, server).await,
        Ok(Exchange::Forward { head, body, early, server }) => {
            forward(client, &head, body, &early, server).await
        }
        Err(error) => reject(client, &error, &egress).await,
    };
    if let Err(error) = carried {
        tracing::debug!(%error, "a connection through the proxy ended");
    }
}

async fn prepare(client: &mut TcpStream, egress: &Egress) -> Result<Exchange, ProxyError> {
    let reading = timeout(HEAD_DEADLINE, read_head(client)).await;
    let (head, early) = reading.map_err(|_| ProxyError::HeadTookTooLong)??;
    Ok(match parse_head(&head)? {
        Request::Tunnel { host } => {
            Exchange::Tunnel { early, server: egress.dial(&host, TUNNEL_PORT).await? }
        }
        Request::Forward { host, head, body } => {
            Exchange::Forward { head, body, early, server: egress.dial(&host, PLAIN_PORT).await? }
        }
    })
}

async fn tunnel(mut client: TcpStream, early: &[u8], server: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    splice(client, early, server, Some(IDLE_DEADLINE)).await
}

/// Sends the request and carries the answer until the server, which was told to, closes the connection.
async fn forward(
    mut client: TcpStream,
    head: &[u8],
    body: BodyLength,
    early: &[u8],
    mut server: TcpStream,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let activity = Activity::new();
    let (from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = server.split();
    let sending = async {
        to_server.write_all(head).await.map_err(BodyError::Server)?;
        let mut from_client = BufReader::new(early.chain(from_client));
        request_body::relay(body, &mut from_client, &mut to_server, &activity).await
    };
    let sending_failed = async {
        match sending.await {
            // All is sent, or the server has heard enough: its answer decides when this ends.
            Ok(()) | Err(BodyError::Server(_)) => std::future::pending().await,
            Err(error) => io::Error::other(error),
        }
    };
    tokio::select! {
        answered = carry(from_server, &mut to_client, &activity) => answered?,
        error = sending_failed => return Err(error),
        () = activity.quiet_for(IDLE_DEADLINE) => return Err(io::ErrorKind::TimedOut.into()),
    }
    drop(server);
    say_farewell(client).await
}

/// Answers in the server's place. The refusals by host and address are told where they are decided.
async fn reject(mut client: TcpStream, error: &ProxyError, egress: &Egress) -> io::Result<()> {
    if let ProxyError::Head(HeadError::Refused { authority, reason }) = error {
        egress.refusals().tell(&authority.escape_debug(), reason);
    }
    let Some(status) = status_of(error) else { return Ok(()) };
    tracing::debug!(status, %error, "answered a request in the server's place");
    let text = format!("{error}\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    client.write_all(answer.as_bytes()).await?;
    say_farewell(client).await
}

/// The one place where an error becomes a status. `None` if the client is gone.
fn status_of(error: &ProxyError) -> Option<&'static str> {
    Some(match error {
        ProxyError::Head(HeadError::Ended(_)) => return None,
        ProxyError::Head(HeadError::TooLong) => "431 Request Header Fields Too Large",
        ProxyError::Head(HeadError::Malformed(_) | HeadError::NotForAProxy) => "400 Bad Request",
        ProxyError::HeadTookTooLong => "408 Request Timeout",
        ProxyError::Head(HeadError::Refused { .. })
        | ProxyError::Egress(
            EgressError::NotAllowed { .. }
            | EgressError::ForbiddenAddress { .. }
            | EgressError::PrivateAddress { .. }
            | EgressError::OwnAddressesUnknown(_),
        ) => "403 Forbidden",
        ProxyError::Egress(
            EgressError::Unresolved { .. } | EgressError::NoAddress { .. } | EgressError::NoConnection { .. },
        ) => "502 Bad Gateway",
        ProxyError::Egress(
            EgressError::ResolvingTookTooLong { .. } | EgressError::ConnectingTookTooLong { .. },
        ) => "504 Gateway Timeout",
    })
}

/// Ends our side, and lets the client read it before the connection closes.
async fn say_farewell(mut client: TcpStream) -> io::Result<()> {
    client.shutdown().await?;
    let mut unread = client.take(FAREWELL_BYTES);
    let mut nowhere = tokio::io::sink();
    let listening = tokio::io::copy(&mut unread, &mut nowhere);
    // Out of time is as good an end as any: the answer is sent.
    timeout(FAREWELL_DEADLINE, listening).await.unwrap_or(Ok(0)).map(|_| ())
}
