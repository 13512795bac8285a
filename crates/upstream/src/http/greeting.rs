//! `initialize` and `notifications/initialized`: at the beginning, and again when the server forgot the session.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use wire::{Id, Message, Outcome, Response};

use crate::http::answer::{Answer, Cursor, Piece, finish};
use crate::http::call::post_until_taken;
use crate::http::client::{self, Http, Session};
use crate::http::conversation::Conversation;
use crate::http::line::Line;
use crate::http::modern::discover::{self, Found};
use crate::http::refusal::{Refusal, newer_versions};
use crate::http::{Incoming, error_answers};

/// How long the server has for an answer to `initialize`: some have to start first.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it has to say whether it is of the newer era, after it has refused `initialize`.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// A greeting that succeeded.
struct Greeting {
    session: Session,
    /// The answer of the server.
    answer: Bytes,
    /// What follows it.
    rest: Answer,
}

#[derive(Debug)]
enum Failure {
    /// The answer to `initialize` is an error, in the server's words or in ours.
    Answered(Bytes),
    /// The same, and the server may be one that does not know `initialize`.
    Unknown(Bytes),
    /// There is no talking to this server.
    Lost(String),
}

/// What became of `notifications/initialized`.
enum Notified {
    Taken,
    Refused(Refusal),
    Failed(String),
}

/// Greets the server with the line of our user.
pub(crate) async fn greet(conversation: Arc<Conversation>, line: Line, id: Id) {
    let http = match &conversation.http {
        Ok(http) => http,
        Err(error) => return conversation.lose(error.to_string()),
    };
    let fresh = Session { number: 1, ..Session::default() };
    match say_hello(&conversation, http, fresh, &line.text, &id).await {
        Ok(Greeting { session, answer, rest }) => {
            conversation.greeted(session, line.text.clone(), None);
            conversation.emit(Incoming::Message(answer)).await;
            conversation.deliver_rest(rest).await;
        }
        Err(Failure::Unknown(refusal)) => {
            let found = timeout(PROBE_PATIENCE, discover::probe(&conversation, http, &line.text, &id)).await;
            let answer = match found {
                Ok(Found::Modern { session, modern, answer }) => {
                    conversation.greeted(session, line.text.clone(), Some(modern));
                    answer
                }
                Ok(Found::Others(supported)) => {
                    conversation.not_greeted();
                    error_answers::speaks_only_newer(&supported).to_message(Some(&id))
                }
                Ok(Found::Nothing) | Err(_) => {
                    conversation.not_greeted();
                    refusal
                }
            };
            conversation.emit(Incoming::Message(answer)).await;
        }
        Err(Failure::Answered(answer)) => {
            conversation.not_greeted();
            conversation.emit(Incoming::Message(answer)).await;
        }
        Err(Failure::Lost(reason)) => conversation.lose(reason),
    }
}

/// Tells the server that its answer arrived. Calls follow even if it does not like that: they get their own errors.
pub(crate) async fn settle(conversation: Arc<Conversation>, session: Arc<Session>, line: Line) {
    let Ok(http) = &conversation.http else { return };
    match notify(http, &session, line.text.clone()).await {
        Notified::Taken => conversation.settled(),
        Notified::Refused(refusal) if session.id.is_some() && refusal.is_forgotten_session(None) => {
            conversation.renew(&session, None);
        }
        Notified::Refused(refusal) => {
            tracing::warn!(
                reason = refusal.to_reply().message,
                "the MCP server refused notifications/initialized"
            );
            conversation.settled();
        }
        Notified::Failed(reason) => {
            tracing::warn!(reason, "the MCP server did not take notifications/initialized");
            conversation.settled();
        }
    }
}

/// Greets the server again, with what our user said at the beginning but under an id of our own.
pub(crate) async fn renew(conversation: Arc<Conversation>) {
    let Ok(http) = &conversation.http else { return };
    let number = conversation.session().number + 1;
    let (initialize, initialized) = conversation.greeting_lines();
    let Some((line, id)) = initialize.as_ref().and_then(|line| under_own_id(line, number)) else {
        return conversation.lose("the MCP server forgot the session before it was greeted".to_owned());
    };
    let fresh = Session { number, ..Session::default() };
    let session = match say_hello(&conversation, http, fresh, &line, &id).await {
        Ok(greeting) => greeting.session,
        Err(failure) => {
            let reason = failure.into_reason();
            return conversation
                .lose(format!("the MCP server forgot the session; greeting it again failed: {reason}"));
        }
    };
    if let Some(initialized) = initialized {
        let refused = match notify(http, &session, initialized).await {
            Notified::Taken => None,
            Notified::Refused(refusal) => Some(refusal.to_reply().message),
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

impl Failure {
    fn into_reason(self) -> String {
        match self {
            Self::Lost(reason) => reason,
            Self::Answered(answer) | Self::Unknown(answer) => match Message::parse(answer) {
                Ok(Message::Response(response)) => error_message(&response),
                _ => "the MCP server answered with an error".to_owned(),
            },
        }
    }
}

/// Posts `initialize` and waits for its answer, which is not passed on here.
async fn say_hello(
    conversation: &Arc<Conversation>,
    http: &Http,
    session: Session,
    line: &Bytes,
    id: &Id,
) -> Result<Greeting, Failure> {
    let hello = async {
        let response = post(http, &session, line).await?;
        if !response.status().is_success() {
            return Err(refused(&Refusal::read(response).await, id));
        }
        let session_id = client::session_id(response.headers());
        let mut rest =
            Answer::new(response, conversation.max_message, Cursor::default()).ok_or_else(|| {
                Failure::Lost("the MCP server answered initialize with neither JSON nor a stream".to_owned())
            })?;
        let (answer, response) = find_response(conversation, &mut rest, id).await?;
        let version = match response.outcome() {
            Outcome::Error(error) => {
                return Err(Failure::Unknown(clearer_error(error, id).unwrap_or(answer)));
            }
            Outcome::Result(result) => negotiated_version(result),
        };
        Ok(Greeting { session: Session { number: session.number, id: session_id, version }, answer, rest })
    };
    match timeout(PATIENCE, hello).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Lost(format!(
            "the MCP server did not answer initialize within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

async fn post(http: &Http, session: &Session, line: &Bytes) -> Result<reqwest::Response, Failure> {
    let posted = post_until_taken(http, || http.post(session, line.clone()), None).await;
    posted.map_err(|error| {
        Failure::Lost(format!("the MCP server cannot be reached: {}", client::explain(&error)))
    })
}

fn refused(refusal: &Refusal, id: &Id) -> Failure {
    if let Some(supported) = refusal.supported_versions() {
        return Failure::Unknown(error_answers::speaks_only_newer(&supported).to_message(Some(id)));
    }
    if refusal.is_for_good() {
        return Failure::Lost(refusal.to_reply().message);
    }
    let answer = refusal.answer_to(id).unwrap_or_else(|| refusal.to_reply().to_message(Some(id)));
    if refusal.may_be_of_newer_era() { Failure::Unknown(answer) } else { Failure::Answered(answer) }
}

/// Reads up to the answer to `initialize`. What comes before it is passed on.
async fn find_response(
    conversation: &Arc<Conversation>,
    answer: &mut Answer,
    id: &Id,
) -> Result<(Bytes, Response), Failure> {
    while let Ok(piece) = answer.next().await {
        let text = match piece {
            Piece::Message(text) => text,
            Piece::Sign => continue,
            Piece::TooLong => {
                return Err(Failure::Lost(
                    "the answer of the MCP server to initialize is too long".to_owned(),
                ));
            }
        };
        match Message::parse(text.clone()) {
            Ok(Message::Response(response)) if response.id == *id => return Ok((text, response)),
            Ok(Message::Response(_)) => {}
            Ok(Message::Request(_) | Message::Notification(_)) => {
                conversation.emit(Incoming::Message(text)).await;
            }
            Err(malformed) => {
                let reason = error_answers::quotable(&malformed.reason);
                return Err(Failure::Lost(format!("the server does not speak MCP: {reason}")));
            }
        }
    }
    Err(Failure::Lost("the MCP server did not answer initialize to the end".to_owned()))
}

/// Posts a notification of the greeting.
async fn notify(http: &Http, session: &Session, line: Bytes) -> Notified {
    let response = match timeout(PATIENCE, post(http, session, &line)).await {
        Ok(Ok(response)) => response,
        Ok(Err(failure)) => return Notified::Failed(failure.into_reason()),
        Err(_) => return Notified::Failed("the MCP server took too long".to_owned()),
    };
    if !response.status().is_success() {
        return Notified::Refused(Refusal::read(response).await);
    }
    finish(response).await;
    Notified::Taken
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

/// Says plainly what a server of the newer era means by its error.
fn clearer_error(error: &str, id: &Id) -> Option<Bytes> {
    let supported = newer_versions(&serde_json::from_str(error).ok()?)?;
    Some(error_answers::speaks_only_newer(&supported).to_message(Some(id)))
}

fn error_message(response: &Response) -> String {
    let (Outcome::Error(text) | Outcome::Result(text)) = response.outcome();
    let error: Option<Value> = serde_json::from_str(text).ok();
    let message = error.as_ref().and_then(|error| error.get("message")).and_then(Value::as_str);
    error_answers::quotable(message.unwrap_or("the MCP server answered with an error"))
}

fn under_own_id(line: &Bytes, number: u64) -> Option<(Bytes, Id)> {
    let raw = RawValue::from_string(format!("\"ringfence-renewal-{}\"", number - 1)).ok()?;
    let id = Id::from_raw(&raw).ok()?;
    match Message::parse(line.clone()) {
        Ok(Message::Request(request)) => Some((request.with_id(&id).into_bytes(), id)),
        _ => None,
    }
}
