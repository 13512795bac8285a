//! The body of an HTTP response as JSON-RPC messages, be it one JSON document or a stream of events.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use tokio::time::timeout;
use wire::compact_newlines;

use crate::http::event_reader::{EventData, EventReader};

/// Most messages in one JSON array, which revision 2025-03-26 allows.
const MAX_BATCH: usize = wire::MAX_BATCH;
/// How much of the body of a refusal is read.
const MAX_REFUSAL: usize = 64 * 1024;
/// How long the server has to end a body of which we need no more. A connection can only be used again after that.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Where a stream broke off, and what the server wishes about coming back.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    pub(crate) last_event: Option<String>,
    pub(crate) retry: Option<Duration>,
}

#[derive(Debug)]
pub(crate) enum Piece {
    /// One message on one line; not yet looked at.
    Message(Bytes),
    /// An event without a message: the stream is alive.
    Sign,
    /// A message that is too long was passed over.
    TooLong,
}

/// How the body stopped.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum End {
    /// The server finished it.
    Whole,
    /// The connection broke.
    Broken,
}

#[derive(Debug)]
pub(crate) struct Answer {
    response: Response,
    body: Body,
    pub(crate) cursor: Cursor,
}

#[derive(Debug)]
enum Body {
    /// One document: at most so long, and what of it is still to be handed out once it was read.
    Document {
        max_message: usize,
        ready: Option<VecDeque<Piece>>,
    },
    Events(EventReader),
}

impl Answer {
    /// Of a response with success. `None`: it is neither JSON nor a stream.
    pub(crate) fn new(response: Response, max_message: usize, cursor: Cursor) -> Option<Self> {
        let body = match media_type(&response).as_deref() {
            Some("text/event-stream") => Body::Events(EventReader::new(max_message)),
            Some("application/json") => Body::Document { max_message, ready: None },
            _ => return None,
        };
        Some(Self { response, body, cursor })
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.body, Body::Events(_))
    }

    /// The next piece, or how the body stopped.
    pub(crate) async fn next(&mut self) -> Result<Piece, End> {
        match &mut self.body {
            Body::Document { max_message, ready } => {
                if ready.is_none() {
                    *ready = Some(read_document(&mut self.response, *max_message).await?);
                }
                ready.as_mut().and_then(VecDeque::pop_front).ok_or(End::Whole)
            }
            Body::Events(reader) => loop {
                if let Some(event) = reader.next() {
                    if event.id.is_some() {
                        self.cursor.last_event = event.id.filter(|id| !id.is_empty());
                    }
                    if let Some(milliseconds) = event.retry {
                        self.cursor.retry = Some(Duration::from_millis(milliseconds));
                    }
                    return Ok(match event.data {
                        EventData::Message(text) => Piece::Message(compact_newlines(text)),
                        EventData::None => Piece::Sign,
                        EventData::TooLong => Piece::TooLong,
                    });
                }
                match self.response.chunk().await {
                    Ok(Some(bytes)) => reader.feed(&bytes),
                    Ok(None) => return Err(End::Whole),
                    Err(_) => return Err(End::Broken),
                }
            },
        }
    }
}

/// The body of a refusal, as far as it may be of interest.
pub(crate) async fn read_refusal(mut response: Response) -> Bytes {
    let body = timeout(LINGER, read_up_to(&mut response, MAX_REFUSAL)).await;
    body.ok().and_then(Result::ok).flatten().unwrap_or_default()
}

/// Lets a response without content end.
pub(crate) async fn finish(response: Response) {
    read_refusal(response).await;
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

/// The whole body; `None` if it is longer than that. One that came in one piece is not copied.
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
