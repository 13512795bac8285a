//! The endpoint of `ringfence connect`: one WebSocket carries the conversations with the servers that run on the
//! client's machine.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use identity::Principal;
use session::Session;
use tokio::sync::mpsc;
use tokio::time::interval;
use upstream::{ATTACH_PROTOCOL, Attachment, Frame, MAX_AVAILABLE};

use crate::Gateway;
use crate::session_endpoints::find;
use crate::status::RequestError;

/// How often the client's machine is pinged, and how long it may be silent.
const PING_EVERY: Duration = Duration::from_secs(15);
const SILENT_FOR: Duration = Duration::from_secs(60);

/// How long the client may take to name its servers.
const SERVER_NAMES_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn attach(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let session = match find(&gateway, principal, &id) {
        Ok(session) => session,
        Err(error) => return error.into(),
    };
    let Ok(permit) = Arc::clone(&gateway.attachments).try_acquire_owned() else {
        return RequestError::TooManyAttachments.into();
    };
    let Ok(upgrade) = upgrade else { return RequestError::NotAWebSocket.into() };
    // A frame holds one message after a short head.
    let longest = gateway.config.max_body + 1024;
    let upgrade = upgrade.protocols([ATTACH_PROTOCOL]).max_message_size(longest).max_frame_size(longest);
    upgrade.on_upgrade(move |socket| async move {
        if let Err(error) = carry(socket, &session).await {
            tracing::debug!(session = %session.handle(), "attachment: {error}");
        }
        drop(permit);
    })
}

/// Carries frames both ways until one side is gone. Sending never blocks receiving, or both sides could wait for each
/// other.
async fn carry(mut socket: WebSocket, session: &Arc<Session>) -> Result<(), axum::Error> {
    let Ok(Some(Ok(first))) = tokio::time::timeout(SERVER_NAMES_WITHIN, socket.recv()).await else {
        return Ok(());
    };
    let Some(servers) = read_server_names(&first) else { return Ok(()) };
    let (attachment, frames) = Attachment::new(servers);
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
fn read_server_names(message: &Message) -> Option<Vec<String>> {
    let Message::Text(text) = message else { return None };
    let servers: Vec<String> = serde_json::from_str(text).ok()?;
    (servers.len() <= MAX_AVAILABLE).then_some(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_names_its_servers_in_one_text_message() {
        let names = |text: &str| read_server_names(&Message::Text(text.into()));
        assert_eq!(names(r#"["files","git"]"#), Some(vec!["files".to_owned(), "git".to_owned()]));
        assert_eq!(names("[]"), Some(vec![]));
        for bad in ["", "files", "[1]", r#"{"servers":[]}"#] {
            assert_eq!(names(bad), None, "{bad}");
        }
        assert_eq!(read_server_names(&Message::Binary(Bytes::from_static(b"[]"))), None);
    }

    #[test]
    fn the_number_of_servers_is_bounded() {
        let names = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            read_server_names(&Message::Text(serde_json::json!(names).to_string().into()))
        };
        assert!(names(MAX_AVAILABLE).is_some() && names(MAX_AVAILABLE + 1).is_none());
    }
}
