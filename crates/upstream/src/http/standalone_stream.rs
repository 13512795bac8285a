//! The stream that belongs to no call: what the server says unasked.

use std::sync::Arc;

use tokio::time::sleep;

use crate::http::answer::{Answer, Cursor, Piece};
use crate::http::backoff::Backoff;
use crate::http::call::may_change;
use crate::http::client::Session;
use crate::http::conversation::Conversation;

/// Listens for as long as the session lasts, and comes back whenever the stream ends. A server need not offer one.
pub(crate) async fn listen(conversation: Arc<Conversation>, session: Arc<Session>) {
    let Ok(http) = &conversation.http else { return };
    let mut backoff = Backoff::default();
    let mut cursor = Cursor::default();
    let mut was_open = false;
    loop {
        match http.execute(http.get(&session, cursor.last_event.as_deref())).await {
            Ok(response) if response.status().is_success() => {
                let Some(stream) = Answer::new(response, conversation.max_message, cursor) else { return };
                if !stream.is_stream() {
                    return;
                }
                was_open = true;
                cursor = read(&conversation, stream, &mut backoff).await;
            }
            // There are servers that answer so because they have no such stream. Only one that had it has forgotten.
            Ok(response) if response.status().as_u16() == 404 && was_open && session.id.is_some() => {
                return conversation.renew(&session, None);
            }
            // It may not remember the events as long as we do.
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
            // It is busy or out of reach, maybe not for long.
            Ok(_) | Err(_) => {}
        }
        sleep(backoff.next(cursor.retry)).await;
    }
}

async fn read(conversation: &Arc<Conversation>, mut stream: Answer, backoff: &mut Backoff) -> Cursor {
    while let Ok(piece) = stream.next().await {
        backoff.reset();
        match piece {
            Piece::Message(text) => {
                conversation.deliver(text).await;
            }
            Piece::TooLong => tracing::warn!("the MCP server sent a message that is too long: it is dropped"),
            Piece::Sign => {}
        }
    }
    stream.cursor
}
