//! An HTTP response: status, headers, and a body of one of four kinds.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use crate::event_stream::EventStream;

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ReplyBody,
    /// The bytes of the body; empty for a stream of events.
    pub raw: Vec<u8>,
}

#[derive(Debug)]
pub enum ReplyBody {
    Json(Value),
    Sse(Box<EventStream>),
    Empty,
    Text(String),
}

impl ReplyBody {
    pub fn is_sse(&self) -> bool {
        matches!(self, Self::Sse(_))
    }
}

impl Reply {
    pub(crate) async fn read(response: Response<Incoming>) -> Result<Self, hyper::Error> {
        let (head, body) = response.into_parts();
        let content_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
        let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if media_type == "text/event-stream" {
            let body = ReplyBody::Sse(Box::new(EventStream::new(body)));
            return Ok(Self { status: head.status, headers: head.headers, body, raw: Vec::new() });
        }
        let raw = body.collect().await?.to_bytes().to_vec();
        let body = parse_body(media_type, &raw);
        Ok(Self { status: head.status, headers: head.headers, body, raw })
    }

    /// A header's value; `None` if it is absent or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn session_id(&self) -> Option<&str> {
        self.header("mcp-session-id")
    }

    /// The JSON body; panics if it is something else.
    pub fn json(&self) -> &Value {
        match &self.body {
            ReplyBody::Json(value) => value,
            other => panic!("expected JSON, got {} with {other:?}", self.status),
        }
    }

    /// The JSON-RPC response as the server wrote it, from the body or from its event. Earlier
    /// messages on a stream are skipped; panics if there is no response.
    pub async fn answer_text(self) -> String {
        let mut events = match self.body {
            ReplyBody::Sse(events) => *events,
            _ => return String::from_utf8_lossy(&self.raw).into_owned(),
        };
        while let Some(event) = events.next().await {
            if event.message().is_some_and(|message| message.get("method").is_none()) {
                return event.data.unwrap_or_default();
            }
        }
        panic!("the stream ended without a response ({:?})", events.failure());
    }

    /// All messages of the body: the one JSON value, or those of the stream until it ends.
    pub async fn all_messages(self) -> Vec<Value> {
        match self.body {
            ReplyBody::Json(message) => vec![message],
            ReplyBody::Sse(mut events) => events.remaining_messages().await,
            other => panic!("expected messages, got {} with {other:?}", self.status),
        }
    }

    /// The stream of events; panics if the body is something else.
    pub fn into_events(self) -> EventStream {
        match self.body {
            ReplyBody::Sse(events) => *events,
            other => panic!("expected a stream of events, got {} with {other:?}", self.status),
        }
    }
}

fn parse_body(media_type: &str, raw: &[u8]) -> ReplyBody {
    if raw.is_empty() {
        return ReplyBody::Empty;
    }
    if media_type == "application/json"
        && let Ok(value) = serde_json::from_slice(raw)
    {
        return ReplyBody::Json(value);
    }
    ReplyBody::Text(String::from_utf8_lossy(raw).into_owned())
}
