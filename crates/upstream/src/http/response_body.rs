//! The body of an HTTP response as JSON-RPC messages: one JSON document or a stream of events.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use tokio::time::timeout;
use wire::sse::{Decoder, EventData};
use wire::{MAX_BATCH, compact_newlines};

/// How much of an error's body is read.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// How long the server may take to end a body that is no longer needed. Its connection can be used again only then.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Where a stream broke off, and how long the server wants us to wait before resuming it.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) last_event: Option<String>,
    pub(crate) retry: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum Piece {
    /// One message on one line, not parsed yet.
    Message(Bytes),
    /// An event without a message: the stream is alive.
    Empty,
    /// A message that is too long was dropped.
    TooLong,
}

/// How a body ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum End {
    /// The server finished it.
    Whole,
    /// The connection broke.
    Broken,
}

#[derive(Debug)]
pub(crate) struct ResponseBody {
    response: Response,
    content: Content,
    pub(crate) cursor: Cursor,
}

#[derive(Debug)]
enum Content {
    /// One JSON document. `ready` holds its remaining messages once it was read.
    Document {
        max_message: usize,
        ready: Option<VecDeque<Piece>>,
    },
    Events(Decoder),
}

impl ResponseBody {
    /// Takes the body of a successful response. Returns `None` if it is neither JSON nor a stream of events.
    pub(crate) fn new(response: Response, max_message: usize, cursor: Cursor) -> Option<Self> {
        let content = match media_type(&response).as_deref() {
            Some("text/event-stream") => Content::Events(Decoder::new(max_message)),
            Some("application/json") => Content::Document { max_message, ready: None },
            _ => return None,
        };
        Some(Self { response, content, cursor })
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Events(_))
    }

    /// The next piece, or how the body ended.
    pub(crate) async fn next(&mut self) -> Result<Piece, End> {
        match &mut self.content {
            Content::Document { max_message, ready } => {
                if ready.is_none() {
                    *ready = Some(read_document(&mut self.response, *max_message).await?);
                }
                ready.as_mut().and_then(VecDeque::pop_front).ok_or(End::Whole)
            }
            Content::Events(decoder) => loop {
                if let Some(event) = decoder.next_event() {
                    if event.id.is_some() {
                        self.cursor.last_event = event.id.filter(|id| !id.is_empty());
                    }
                    if let Some(milliseconds) = event.retry {
                        self.cursor.retry = Some(Duration::from_millis(milliseconds));
                    }
                    return Ok(match event.data {
                        EventData::Message(text) => Piece::Message(compact_newlines(text)),
                        EventData::None => Piece::Empty,
                        EventData::TooLong => Piece::TooLong,
                    });
                }
                match self.response.chunk().await {
                    Ok(Some(bytes)) => decoder.feed(&bytes),
                    Ok(None) => return Err(End::Whole),
                    Err(_) => return Err(End::Broken),
                }
            },
        }
    }
}

/// The beginning of the body of an error.
pub(crate) async fn read_error_body(mut response: Response) -> Bytes {
    let body = timeout(LINGER, read_up_to(&mut response, MAX_ERROR_BODY)).await;
    body.ok().and_then(Result::ok).flatten().unwrap_or_default()
}

/// Reads a response without content to its end, so that its connection can be used again.
pub(crate) async fn finish(response: Response) {
    read_error_body(response).await;
}

fn media_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

async fn read_document(response: &mut Response, max_message: usize) -> Result<VecDeque<Piece>, End> {
    let Some(text) = read_up_to(response, max_message).await? else {
        return Ok(VecDeque::from([Piece::TooLong]));
    };
    let text = compact_newlines(text);
    let is_batch = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_batch && let Ok(elements) = serde_json::from_slice::<Vec<&RawValue>>(&text) {
        let whole = &text;
        let piece = |element: &RawValue| Piece::Message(whole.slice_ref(element.get().as_bytes()));
        return Ok(elements.into_iter().take(MAX_BATCH).map(piece).collect());
    }
    Ok(VecDeque::from([Piece::Message(text)]))
}

/// Reads the whole body, or returns `None` if it is longer than `limit`. A body in one piece is not copied.
async fn read_up_to(response: &mut Response, limit: usize) -> Result<Option<Bytes>, End> {
    if response
        .content_length()
        .is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit))
    {
        return Ok(None);
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(bytes) = response.chunk().await.map_err(|_| End::Broken)? {
        if first.len() + rest.len() + bytes.len() > limit {
            return Ok(None);
        }
        if first.is_empty() {
            first = bytes;
        } else {
            rest.extend_from_slice(&bytes);
        }
    }
    if rest.is_empty() {
        return Ok(Some(first));
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(Some(whole.freeze()))
}
