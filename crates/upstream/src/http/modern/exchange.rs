//! One request and its answer. There is nothing to resume: a stream that breaks takes the answer with it.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use wire::{ErrorReply, Id, Message, Outcome, Response};

use crate::http::answer::{Answer, Cursor, End, Piece};
use crate::http::call::post_until_taken;
use crate::http::client::{Http, Session};
use crate::http::conversation::{Conversation, Turn};
use crate::http::refusal::Refusal;
use crate::http::{Incoming, error_answers};

/// A request that is ready to be posted.
pub(super) struct Outgoing<'a> {
    pub(super) session: &'a Session,
    pub(super) id: &'a Id,
    pub(super) text: Bytes,
    pub(super) headers: HeaderMap,
}

/// Why there is no answer of the server.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said no in HTTP, and not under the id of the request.
    Refused(Refusal),
    Failed(ErrorReply),
}

impl Failure {
    pub(super) fn into_reply(self) -> ErrorReply {
        match self {
            Self::Refused(refusal) => refusal.to_reply(),
            Self::Failed(reply) => reply,
        }
    }
}

impl Outgoing<'_> {
    /// Posts it, until the server takes it or refuses it.
    pub(super) async fn post(&self, http: &Http, turn: Option<Turn>) -> reqwest::Result<reqwest::Response> {
        let request = || {
            let mut request = http.post(self.session, self.text.clone());
            request.headers_mut().extend(self.headers.clone());
            request
        };
        post_until_taken(http, request, turn).await
    }

    /// Posts it and waits for its answer. What the server tells on the way is passed on.
    pub(super) async fn exchange(
        &self,
        conversation: &Arc<Conversation>,
        http: &Http,
        turn: Option<Turn>,
    ) -> Result<Response, Failure> {
        let response = self.post(http, turn).await;
        let response = response.map_err(|error| Failure::Failed(error_answers::unreachable(&error)))?;
        if !response.status().is_success() {
            return self.refused(Refusal::read(response).await);
        }
        let answer = Answer::new(response, conversation.max_message, Cursor::default()).ok_or_else(|| {
            Failure::Failed(error_answers::not_understood("neither JSON nor a stream of events"))
        })?;
        read(conversation, answer, self.id).await.map_err(Failure::Failed)
    }

    /// A refusal under the id of the request is its answer.
    fn refused(&self, refusal: Refusal) -> Result<Response, Failure> {
        match refusal.answer_to(self.id).map(Message::parse) {
            Some(Ok(Message::Response(response))) => Ok(response),
            _ => Err(Failure::Refused(refusal)),
        }
    }
}

async fn read(conversation: &Arc<Conversation>, mut answer: Answer, id: &Id) -> Result<Response, ErrorReply> {
    let mut passed_over = None;
    loop {
        match answer.next().await {
            Ok(Piece::Message(text)) => match Message::parse(text) {
                Ok(Message::Response(response)) if response.id == *id => {
                    conversation.let_end(answer);
                    return Ok(response);
                }
                Ok(Message::Response(response)) => {
                    tracing::debug!(id = ?response.id, "nobody waits for this answer of the MCP server");
                }
                Ok(Message::Notification(notification)) => {
                    conversation.emit(Incoming::Message(notification.text())).await;
                }
                Ok(Message::Request(request)) => refuse_question(&request.method),
                Err(malformed) => passed_over = Some(error_answers::not_understood(&malformed.reason)),
            },
            Ok(Piece::Sign) => {}
            Ok(Piece::TooLong) => passed_over = Some(error_answers::too_long(conversation.max_message)),
            Err(end) => {
                let reply = || match (answer.is_stream(), end) {
                    (false, End::Whole) => error_answers::not_understood("it answers another request"),
                    (true, _) | (false, End::Broken) => error_answers::broke_while_running(),
                };
                return Err(passed_over.unwrap_or_else(reply));
            }
        }
    }
}

/// A server of this era cannot ask in this way, and would not understand an answer.
pub(super) fn refuse_question(method: &str) {
    let method = error_answers::quotable(method);
    tracing::warn!(
        method,
        "the MCP server sent a request, which its protocol revision forbids: it is dropped"
    );
}

/// The code of the error that a response holds.
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
