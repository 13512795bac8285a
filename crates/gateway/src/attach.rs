//! The client's machine, attached: one WebSocket that carries the conversations with the servers that run there.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use session::{ATTACH_PROTOCOL, Attachment, Frame, MAX_AVAILABLE, Principal, Session};
use tokio::sync::mpsc;
use tokio::time::interval;

use crate::Gateway;
use crate::session_endpoints::find;
use crate::status::Problem;

/// How often the client's machine is asked whether it is still there, and how long it may be silent.
const PING_EVERY: Duration = Duration::from_secs(15);
const SILENT_FOR: Duration = Duration::from_secs(60);

/// What the client may take to say which servers it has.
const OFFER_WITHIN: Duration = Duration::from_secs(30);

/// Machines that may be attached at once. Their connections are not among those of the requests.
pub(crate) const MAX_ATTACHMENTS: usize = 4096;

pub(crate) async fn attach(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let session = match find(&gateway, principal, &id) {
        Ok(session) => session,
        Err(problem) => return problem.about(None).into(),
    };
    let Ok(place) = Arc::clone(&gateway.attachments).try_acquire_owned() else {
        return Problem::TooManyAttachments.about(None).into();
    };
    let Ok(upgrade) = upgrade else { return Problem::NotAWebSocket.about(None).into() };
    // A frame holds one message and a few bytes before it.
    let longest = gateway.config.max_body + 1024;
    let upgrade = upgrade.protocols([ATTACH_PROTOCOL]).max_message_size(longest).max_frame_size(longest);
    upgrade.on_upgrade(move |socket| async move {
        if let Err(error) = carry(socket, &session).await {
            tracing::debug!(session = %session.handle(), "attachment: {error}");
        }
        drop(place);
    })
}

/// Carries frames both ways until one side is gone. What is being sent never keeps what arrives waiting, or both sides
/// could wait for each other.
async fn carry(mut socket: WebSocket, session: &Arc<Session>) -> Result<(), axum::Error> {
    let Ok(Some(Ok(first))) = tokio::time::timeout(OFFER_WITHIN, socket.recv()).await else { return Ok(()) };
    let Some(offers) = read_offers(&first) else { return Ok(()) };
    let (attachment, frames) = Attachment::new(offers);
    session.attach(&attachment);
    let (sink, stream) = socket.split();
    let carried = tokio::select! {
        sent = send(sink, session, &attachment, frames) => sent,
        received = receive(stream, session, &attachment) => received,
        () = attachment.closed() => Ok(()),
    };
    session.detach(&attachment);
    carried
}

async fn send(
    mut sink: SplitSink<WebSocket, Message>,
    session: &Arc<Session>,
    attachment: &Arc<Attachment>,
    mut frames: mpsc::Receiver<Frame>,
) -> Result<(), axum::Error> {
    let mut pings = interval(PING_EVERY);
    loop {
        tokio::select! {
            frame = frames.recv() => {
                let Some(frame) = frame else { return Ok(()) };
                let sent = sink.send(Message::Binary(frame.encode())).await;
                attachment.sent(&frame);
                sent?;
            }
            _ = pings.tick() => {
                if session.has_ended() {
                    return Ok(());
                }
                sink.send(Message::Ping(Bytes::new())).await?;
            }
        }
    }
}

async fn receive(
    mut stream: SplitStream<WebSocket>,
    session: &Arc<Session>,
    attachment: &Arc<Attachment>,
) -> Result<(), axum::Error> {
    while let Ok(Some(message)) = tokio::time::timeout(SILENT_FOR, stream.next()).await {
        session.keep_alive();
        match message? {
            Message::Close(_) => return Ok(()),
            Message::Binary(text) => {
                if let Some(frame) = Frame::decode(&text) {
                    attachment.receive(frame).await;
                }
            }
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
        }
    }
    Ok(())
}

/// The names of the servers that can be started on the client's machine.
fn read_offers(message: &Message) -> Option<Vec<String>> {
    let Message::Text(text) = message else { return None };
    let offers: Vec<String> = serde_json::from_str(text).ok()?;
    (offers.len() <= MAX_AVAILABLE).then_some(offers)
}
