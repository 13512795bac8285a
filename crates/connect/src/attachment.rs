//! The WebSocket over which the gateway reaches the servers here. This side opens it, keeps it open, and opens it
//! again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use session::Session;
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::{HeaderValue, InvalidHeaderValue};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};
use upstream::{ATTACH_PROTOCOL, Backoff, Frame};

use crate::channels::Channels;
use crate::connection::{GatewaySession, LocalServers};
use crate::gateway_server::GATEWAY;

/// The pause before a new attempt, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A gateway that is silent for this long is gone: it sends a ping every 15 seconds.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Frames that may wait for the socket.
const FRAMES: usize = 1024;

/// Room for the header of a frame beside the longest message.
const FRAME_OVERHEAD: usize = 1024;

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// Why the attachment could not be opened.
#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error(transparent)]
    Token(#[from] InvalidHeaderValue),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    TimedOut(#[from] tokio::time::error::Elapsed),
    #[error(transparent)]
    Socket(Box<tungstenite::Error>),
}

impl From<tungstenite::Error> for AttachError {
    fn from(error: tungstenite::Error) -> Self {
        Self::Socket(Box::new(error))
    }
}

/// Keeps the client's session attached to the gateway for as long as the client lives.
pub(crate) async fn keep_attached(
    local: Arc<LocalServers>,
    mut opened: watch::Receiver<Option<Arc<Session>>>,
) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let Ok(session) = opened.wait_for(Option::is_some).await.map(|session| session.clone()) else {
            return;
        };
        let Some(session) = session else { continue };
        let Some(id) = session.session_id_at(GATEWAY) else {
            if session.scope().is_some() {
                session.try_again(GATEWAY);
            }
            tokio::time::sleep(backoff.next_pause()).await;
            continue;
        };
        let connection = &local.connection;
        let at_gateway = GatewaySession { url: connection.gateway.mcp_url(), id };
        (connection.on_gateway_session)(&at_gateway);
        match attach(&local, &session, &at_gateway.id).await {
            Ok(()) => backoff.reset(),
            Err(error) => tracing::info!("cannot attach to the gateway: {error}"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

/// Carries frames until the connection ends. Fails if the connection cannot be opened.
async fn attach(local: &Arc<LocalServers>, session: &Arc<Session>, id: &str) -> Result<(), AttachError> {
    let mut socket = open_socket(local, id).await?;
    let names = serde_json::json!(local.connection.names()).to_string();
    socket.send(Message::Text(names.into())).await?;
    tracing::info!("attached to the gateway");
    carry(socket, Channels::new(local, session)).await;
    tracing::info!("the gateway is away");
    Ok(())
}

async fn open_socket(local: &LocalServers, id: &str) -> Result<Socket, AttachError> {
    let gateway = &local.connection.gateway;
    let mut request = gateway.attach_url(id).into_client_request()?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(ATTACH_PROTOCOL));
    if let Some(authorization) = gateway.authorization() {
        let mut value = HeaderValue::try_from(authorization)?;
        value.set_sensitive(true);
        headers.insert("authorization", value);
    }
    let longest = local.connection.settings.max_message + FRAME_OVERHEAD;
    let limits = tungstenite::protocol::WebSocketConfig::default()
        .max_message_size(Some(longest))
        .max_frame_size(Some(longest));
    let tls = Connector::Rustls(Arc::new(upstream::http::tls()?));
    let connected = tokio_tungstenite::connect_async_tls_with_config(request, Some(limits), true, Some(tls));
    let (socket, _) = tokio::time::timeout(SILENT_FOR, connected).await??;
    Ok(socket)
}

/// Sends and receives independently: if sending held up receiving, both sides could wait for each other.
async fn carry(socket: Socket, mut channels: Channels) {
    let (sink, stream) = socket.split();
    let (toward_gateway, frames) = mpsc::channel::<Frame>(FRAMES);
    tokio::select! {
        () = send(sink, frames) => {}
        () = receive(stream, &mut channels, &toward_gateway) => {}
    }
    channels.end().await;
}

async fn send(mut sink: SplitSink<Socket, Message>, mut frames: mpsc::Receiver<Frame>) {
    while let Some(frame) = frames.recv().await {
        if sink.send(Message::Binary(frame.encode())).await.is_err() {
            return;
        }
    }
}

/// Takes frames until the gateway closes the connection or falls silent. Reading answers its pings.
async fn receive(
    mut stream: SplitStream<Socket>,
    channels: &mut Channels,
    toward_gateway: &mpsc::Sender<Frame>,
) {
    while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENT_FOR, stream.next()).await {
        match message {
            Message::Close(_) => return,
            Message::Binary(text) => {
                if let Some(frame) = Frame::decode(&text) {
                    channels.take(frame, toward_gateway);
                }
            }
            _ => {}
        }
    }
}
