//! The handshake: `initialize` and `notifications/initialized`, at the beginning and when the server forgot the session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use wire::{Id, Message, Outcome, Response};

use crate::http::client::{self, Http, Session};
use crate::http::conversation::Conversation;
use crate::http::error_replies;
use crate::http::error_response::{ErrorResponse, modern_versions};
use crate::http::exchange::post_with_retries;
use crate::http::incoming::Incoming;
use crate::http::modern::discovery::{self, Discovery};
use crate::http::outgoing_line::Line;
use crate::http::response_body::{Cursor, Piece, ResponseBody, finish};

/// How long the server may take to answer `initialize`: some have to start first.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server that refused `initialize` may take to say whether it is of the modern era.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// A successful `initialize`.
struct Greeting {
    session: Session,
    /// The answer of the server.
    answer: Bytes,
    /// The body after the answer.
    rest: ResponseBody,
}

#[derive(Debug)]
enum GreetingError {
    /// `initialize` is answered with this error, the server's or our own.
    Answered(Bytes),
    /// The same, and the server may be a modern one, which does not know `initialize`.
    MaybeModern(Bytes),
    /// The server cannot be used.
    Lost(String),
}

/// The result of posting `notifications/initialized`.
enum Notified {
    Accepted,
    Refused(ErrorResponse),
    Failed(String),
}

/// Sends the caller's `initialize`.
pub(crate) async fn greet(conversation: Arc<Conversation>, line: Line, id: Id) {
    let http = match &conversation.http {
        Ok(http) => http,
        Err(error) => return conversation.lose(error.to_string()),
    };
    let fresh = Session { number: 1, ..Session::default() };
    match send_initialize(&conversation, http, fresh, &line.text, &id).await {
        Ok(Greeting { session, answer, rest }) => {
            conversation.greeted(session, line.text.clone(), None);
            conversation.emit(Incoming::Message(answer)).await;
            conversation.deliver_rest(rest).await;
        }
        Err(GreetingError::MaybeModern(error)) => {
            let probe = discovery::probe(&conversation, http, &line.text, &id);
            let answer = match timeout(DISCOVERY_TIMEOUT, probe).await {
                Ok(Discovery::Modern { session, modern, answer }) => {
                    conversation.greeted(session, line.text.clone(), Some(modern));
                    answer
                }
                Ok(Discovery::OtherVersions(supported)) => {
                    conversation.not_greeted();
                    error_replies::speaks_only_newer(&supported).to_message(Some(&id))
                }
                Ok(Discovery::NotModern) | Err(_) => {
                    conversation.not_greeted();
                    error
                }
            };
            conversation.emit(Incoming::Message(answer)).await;
        }
        Err(GreetingError::Answered(answer)) => {
            conversation.not_greeted();
            conversation.emit(Incoming::Message(answer)).await;
        }
        Err(GreetingError::Lost(reason)) => conversation.lose(reason),
    }
}

/// Sends the caller's `notifications/initialized`. Calls follow even if the server refuses it; they get their own
/// errors.
pub(crate) async fn settle(conversation: Arc<Conversation>, session: Arc<Session>, line: Line) {
    let Ok(http) = &conversation.http else { return };
    match notify(http, &session, line.text.clone()).await {
        Notified::Accepted => conversation.settled(),
        Notified::Refused(error) if session.id.is_some() && error.is_forgotten_session(None) => {
            conversation.renew(&session, None);
        }
        Notified::Refused(error) => {
            tracing::warn!(
                reason = error.to_reply().message,
                "the MCP server refused notifications/initialized"
            );
            conversation.settled();
        }
        Notified::Failed(reason) => {
            tracing::warn!(reason, "could not deliver notifications/initialized to the MCP server");
            conversation.settled();
        }
    }
}

/// Repeats the handshake with the caller's lines, but under an id of our own.
pub(crate) async fn renew(conversation: Arc<Conversation>) {
    let Ok(http) = &conversation.http else { return };
    let number = conversation.session().number + 1;
    let (initialize, initialized) = conversation.handshake_lines();
    let Some((line, id)) = initialize.as_ref().and_then(|line| under_own_id(line, number)) else {
        return conversation.lose("the MCP server forgot the session before it was initialized".to_owned());
    };
    let fresh = Session { number, ..Session::default() };
    let session = match send_initialize(&conversation, http, fresh, &line, &id).await {
        Ok(greeting) => greeting.session,
        Err(error) => {
            let reason = error.into_reason();
            return conversation
                .lose(format!("the MCP server forgot the session; initializing it again failed: {reason}"));
        }
    };
    if let Some(initialized) = initialized {
        let refused = match notify(http, &session, initialized).await {
            Notified::Accepted => None,
            Notified::Refused(error) => Some(error.to_reply().message),
            Notified::Failed(reason) => Some(reason),
        };
        if let Some(reason) = refused {
            return conversation
                .lose(format!("the MCP server forgot the session and refuses a new one: {reason}"));
        }
    }
    conversation.emit(Incoming::Renewed).await;
    conversation.renewed(session);
}

impl GreetingError {
    fn into_reason(self) -> String {
        match self {
            Self::Lost(reason) => reason,
            Self::Answered(answer) | Self::MaybeModern(answer) => match Message::parse(answer) {
                Ok(Message::Response(response)) => error_message(&response),
                _ => "the MCP server answered with an error".to_owned(),
            },
        }
    }
}

/// Posts `initialize` and returns its answer, without delivering it.
async fn send_initialize(
    conversation: &Arc<Conversation>,
    http: &Http,
    session: Session,
    line: &Bytes,
    id: &Id,
) -> Result<Greeting, GreetingError> {
    let greeting = async {
        let response = post(http, &session, line).await?;
        if !response.status().is_success() {
            return Err(refused(&ErrorResponse::read(response).await, id));
        }
        let session_id = client::session_id(response.headers());
        let mut rest =
            ResponseBody::new(response, conversation.max_message, Cursor::default()).ok_or_else(|| {
                let reason = "the MCP server answered initialize with neither JSON nor a stream";
                GreetingError::Lost(reason.to_owned())
            })?;
        let (answer, response) = find_response(conversation, &mut rest, id).await?;
        let version = match response.outcome() {
            Outcome::Error(error) => {
                return Err(GreetingError::MaybeModern(clearer_error(error, id).unwrap_or(answer)));
            }
            Outcome::Result(result) => negotiated_version(result),
        };
        Ok(Greeting { session: Session { number: session.number, id: session_id, version }, answer, rest })
    };
    match timeout(TIMEOUT, greeting).await {
        Ok(result) => result,
        Err(_) => Err(GreetingError::Lost(format!(
            "the MCP server did not answer initialize within {} s",
            TIMEOUT.as_secs()
        ))),
    }
}

async fn post(http: &Http, session: &Session, line: &Bytes) -> Result<reqwest::Response, GreetingError> {
    let posted = post_with_retries(http, || http.post(session, line.clone()), None).await;
    posted.map_err(|error| {
        GreetingError::Lost(format!("the MCP server cannot be reached: {}", client::explain(&error)))
    })
}

fn refused(error: &ErrorResponse, id: &Id) -> GreetingError {
    if let Some(supported) = error.supported_versions() {
        let answer = error_replies::speaks_only_newer(&supported).to_message(Some(id));
        return GreetingError::MaybeModern(answer);
    }
    if error.is_for_good() {
        return GreetingError::Lost(error.to_reply().message);
    }
    let answer = error.answer_to(id).unwrap_or_else(|| error.to_reply().to_message(Some(id)));
    if error.may_be_of_modern_era() {
        GreetingError::MaybeModern(answer)
    } else {
        GreetingError::Answered(answer)
    }
}

/// Reads up to the answer to `initialize`, and delivers the requests and notifications before it.
async fn find_response(
    conversation: &Arc<Conversation>,
    body: &mut ResponseBody,
    id: &Id,
) -> Result<(Bytes, Response), GreetingError> {
    while let Ok(piece) = body.next().await {
        let text = match piece {
            Piece::Message(text) => text,
            Piece::Empty => continue,
            Piece::TooLong => {
                let reason = "the answer of the MCP server to initialize is too long";
                return Err(GreetingError::Lost(reason.to_owned()));
            }
        };
        match Message::parse(text.clone()) {
            Ok(Message::Response(response)) if response.id == *id => return Ok((text, response)),
            Ok(Message::Response(_)) => {}
            Ok(Message::Request(_) | Message::Notification(_)) => {
                conversation.emit(Incoming::Message(text)).await;
            }
            Err(malformed) => {
                let reason = error_replies::quotable(&malformed.reason);
                return Err(GreetingError::Lost(format!("the server does not speak MCP: {reason}")));
            }
        }
    }
    Err(GreetingError::Lost("the MCP server did not complete its answer to initialize".to_owned()))
}

/// Posts `notifications/initialized`.
async fn notify(http: &Http, session: &Session, line: Bytes) -> Notified {
    let response = match timeout(TIMEOUT, post(http, session, &line)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Notified::Failed(error.into_reason()),
        Err(_) => return Notified::Failed("the MCP server took too long".to_owned()),
    };
    if !response.status().is_success() {
        return Notified::Refused(ErrorResponse::read(response).await);
    }
    finish(response).await;
    Notified::Accepted
}

fn negotiated_version(result: &str) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "protocolVersion")]
        protocol_version: String,
    }
    let fields: Fields = serde_json::from_str(result).ok()?;
    HeaderValue::from_str(&fields.protocol_version).ok()
}

/// Replaces the error of a modern server by one that says what it means.
fn clearer_error(error: &str, id: &Id) -> Option<Bytes> {
    let supported = modern_versions(&serde_json::from_str(error).ok()?)?;
    Some(error_replies::speaks_only_newer(&supported).to_message(Some(id)))
}

fn error_message(response: &Response) -> String {
    let (Outcome::Error(text) | Outcome::Result(text)) = response.outcome();
    let error: Option<Value> = serde_json::from_str(text).ok();
    let message = error.as_ref().and_then(|error| error.get("message")).and_then(Value::as_str);
    error_replies::quotable(message.unwrap_or("the MCP server answered with an error"))
}

fn under_own_id(line: &Bytes, number: u64) -> Option<(Bytes, Id)> {
    let raw = RawValue::from_string(format!("\"ringfence-renewal-{}\"", number - 1)).ok()?;
    let id = Id::from_raw(&raw).ok()?;
    match Message::parse(line.clone()) {
        Ok(Message::Request(request)) => Some((request.with_id(&id).into_bytes(), id)),
        _ => None,
    }
}
