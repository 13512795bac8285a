//! The stream that belongs to no call: the server's own requests and notifications.

use std::sync::Arc;

use tokio::time::sleep;

use crate::http::client::Session;
use crate::http::conversation::Conversation;
use crate::http::error_response::may_change;
use crate::http::reconnect_pause::ReconnectPause;
use crate::http::response_body::{Cursor, Piece, ResponseBody};

/// Listens as long as the session lasts, and reconnects when the stream ends. Returns if the server has no such stream.
pub(crate) async fn listen(conversation: Arc<Conversation>, session: Arc<Session>) {
    let Ok(http) = &conversation.http else { return };
    let mut pause = ReconnectPause::default();
    let mut cursor = Cursor::default();
    let mut was_open = false;
    loop {
        match http.execute(http.get(&session, cursor.last_event.as_deref())).await {
            Ok(response) if response.status().is_success() => {
                let Some(stream) = ResponseBody::new(response, conversation.max_message, cursor) else {
                    return;
                };
                if !stream.is_stream() {
                    return;
                }
                was_open = true;
                cursor = read(&conversation, stream, &mut pause).await;
            }
            // Some servers answer 404 because they have no such stream. One that had it has forgotten the session.
            Ok(response) if response.status().as_u16() == 404 && was_open && session.id.is_some() => {
                return conversation.renew(&session, None);
            }
            // The server may have dropped the events that we want to resume from.
            Ok(response) if !may_change(response.status()) && cursor.last_event.is_some() => {
                cursor.last_event = None;
            }
            Ok(response) if !may_change(response.status()) => {
                tracing::debug!(
                    status = response.status().as_u16(),
                    "the MCP server has no stream of its own"
                );
                return;
            }
            // Busy or unreachable, perhaps not for long.
            Ok(_) | Err(_) => {}
        }
        sleep(pause.next(cursor.retry)).await;
    }
}

async fn read(
    conversation: &Arc<Conversation>,
    mut stream: ResponseBody,
    pause: &mut ReconnectPause,
) -> Cursor {
    while let Ok(piece) = stream.next().await {
        pause.reset();
        match piece {
            Piece::Message(text) => {
                conversation.deliver(text).await;
            }
            Piece::TooLong => tracing::warn!("dropping a message of the MCP server that is too long"),
            Piece::Empty => {}
        }
    }
    stream.cursor
}
