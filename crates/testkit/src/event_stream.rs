//! An open SSE response: it yields events as they arrive, and dropping it closes the connection.

use std::collections::VecDeque;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::event_parser::{EventParser, SseEvent};
use crate::waiting::within_deadline;

#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    parser: EventParser,
    ready: VecDeque<SseEvent>,
    failure: Option<String>,
    last_event_id: Option<String>,
}

impl EventStream {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body,
            parser: EventParser::default(),
            ready: VecDeque::new(),
            failure: None,
            last_event_id: None,
        }
    }

    /// The next event, comments included; `None` once the server closed the stream.
    pub async fn next(&mut self) -> Option<SseEvent> {
        within_deadline("the stream has another event or ends", self.next_or_end()).await
    }

    /// The next JSON-RPC message; skips priming events and comments.
    pub async fn next_message(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.next().await?.message() {
                return Some(message);
            }
        }
    }

    /// All messages until the server closes the stream.
    pub async fn remaining_messages(&mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(message) = self.next_message().await {
            messages.push(message);
        }
        messages
    }

    /// The id of the last event that had one, from which a resumption continues.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// The error that broke the stream; `None` if the server closed it.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    async fn next_or_end(&mut self) -> Option<SseEvent> {
        while self.ready.is_empty() {
            match self.body.frame().await? {
                Ok(frame) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    self.ready.extend(self.parser.feed(&bytes));
                }
                Err(error) => {
                    self.failure = Some(error.to_string());
                    return None;
                }
            }
        }
        let event = self.ready.pop_front()?;
        if event.id.is_some() {
            self.last_event_id.clone_from(&event.id);
        }
        Some(event)
    }
}
