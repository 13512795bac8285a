//! One request and its answer. A broken stream cannot be resumed in this era, so the answer is lost with it.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use wire::{ErrorReply, Id, Message, Outcome, Response};

use crate::http::client::{Http, Session};
use crate::http::conversation::{Conversation, Turn};
use crate::http::error_replies;
use crate::http::error_response::ErrorResponse;
use crate::http::exchange::post_with_retries;
use crate::http::incoming::Incoming;
use crate::http::response_body::{Cursor, End, Piece, ResponseBody};

/// A request that is ready to be posted.
pub(super) struct Outgoing<'a> {
    pub(super) session: &'a Session,
    pub(super) id: &'a Id,
    pub(super) text: Bytes,
    pub(super) headers: HeaderMap,
}

/// Why the server did not answer.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The server answered with an HTTP error, and not under the id of the request.
    Refused(ErrorResponse),
    Failed(ErrorReply),
}

impl ExchangeError {
    pub(super) fn into_reply(self) -> ErrorReply {
        match self {
            Self::Refused(error) => error.to_reply(),
            Self::Failed(reply) => reply,
        }
    }
}

impl Outgoing<'_> {
    /// Posts it until the server accepts or refuses it.
    pub(super) async fn post(&self, http: &Http, turn: Option<Turn>) -> reqwest::Result<reqwest::Response> {
        let request = || {
            let mut request = http.post(self.session, self.text.clone());
            request.headers_mut().extend(self.headers.clone());
            request
        };
        post_with_retries(http, request, turn).await
    }

    /// Posts it and waits for its answer. Delivers the notifications before it.
    pub(super) async fn exchange(
        &self,
        conversation: &Arc<Conversation>,
        http: &Http,
        turn: Option<Turn>,
    ) -> Result<Response, ExchangeError> {
        let response = self.post(http, turn).await;
        let response = response.map_err(|error| ExchangeError::Failed(error_replies::unreachable(&error)))?;
        if !response.status().is_success() {
            return self.take_error(ErrorResponse::read(response).await);
        }
        let body = ResponseBody::new(response, conversation.max_message, Cursor::default());
        let body = body.ok_or_else(|| {
            ExchangeError::Failed(error_replies::not_understood("neither JSON nor a stream of events"))
        })?;
        read_answer(conversation, body, self.id).await.map_err(ExchangeError::Failed)
    }

    /// An error under the id of the request is its answer.
    fn take_error(&self, error: ErrorResponse) -> Result<Response, ExchangeError> {
        match error.answer_to(self.id).map(Message::parse) {
            Some(Ok(Message::Response(response))) => Ok(response),
            _ => Err(ExchangeError::Refused(error)),
        }
    }
}

async fn read_answer(
    conversation: &Arc<Conversation>,
    mut body: ResponseBody,
    id: &Id,
) -> Result<Response, ErrorReply> {
    // Why a message was dropped that may have been the answer.
    let mut dropped = None;
    loop {
        match body.next().await {
            Ok(Piece::Message(text)) => match Message::parse(text) {
                Ok(Message::Response(response)) if response.id == *id => {
                    conversation.let_end(body);
                    return Ok(response);
                }
                Ok(Message::Response(response)) => {
                    tracing::debug!(
                        id = ?response.id,
                        "dropping an answer of the MCP server that no request waits for"
                    );
                }
                Ok(Message::Notification(notification)) => {
                    conversation.emit(Incoming::Message(notification.text())).await;
                }
                Ok(Message::Request(request)) => drop_request(&request.method),
                Err(malformed) => dropped = Some(error_replies::not_understood(&malformed.reason)),
            },
            Ok(Piece::Empty) => {}
            Ok(Piece::TooLong) => dropped = Some(error_replies::too_long(conversation.max_message)),
            Err(end) => {
                let reply = || match (body.is_stream(), end) {
                    (false, End::Whole) => error_replies::not_understood("it answers another request"),
                    (true, _) | (false, End::Broken) => error_replies::broke_while_running(),
                };
                return Err(dropped.unwrap_or_else(reply));
            }
        }
    }
}

/// A server of this era must not send requests, and would not understand an answer.
pub(super) fn drop_request(method: &str) {
    let method = error_replies::quotable(method);
    tracing::warn!(method, "dropping a request of the MCP server, which its protocol revision forbids");
}

/// The code of the error in a response.
pub(super) fn error_code(response: &Response) -> Option<i64> {
    #[derive(serde::Deserialize)]
    struct Fields {
        code: i64,
    }
    match response.outcome() {
        Outcome::Error(error) => serde_json::from_str::<Fields>(error).ok().map(|error| error.code),
        Outcome::Result(_) => None,
    }
}
