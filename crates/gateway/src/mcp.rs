//! The MCP endpoint: POST, GET and DELETE of Streamable HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use session::{
    Caller, Contexts, EndReason, First, Next, Principal, Refusal, Session, SessionKey, StreamReader,
};
use wire::{Body as Payload, Era, EraHeaders, Message, Version, method, names_modern_version};

use crate::Gateway;
use crate::event_body::{EventBody, Resumption};
use crate::headers::{self, SESSION_ID};
use crate::pieces_body::text_body;
use crate::status::{Problem, Rejection};

/// A client that sends its body slower than this holds a connection for nothing.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// What is read of a body that is too large, only to be able to say so.
const DISCARD_AT_MOST: usize = 256 * 1024 * 1024;

pub(crate) async fn post(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    take_post(&gateway, &principal, None, request).await.unwrap_or_else(Into::into)
}

pub(crate) async fn post_in_workspace(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    take_post(&gateway, &principal, Some(&name), request).await.unwrap_or_else(Into::into)
}

pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    open_stream(&gateway, &principal, request.headers()).unwrap_or_else(|problem| problem.about(None).into())
}

pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    let ended = end_session(&gateway, &principal, request.headers()).await;
    ended.unwrap_or_else(|problem| problem.about(None).into())
}

pub(crate) async fn wrong_method() -> Response {
    Problem::MethodNotAllowed.about(None).into()
}

async fn take_post(
    gateway: &Gateway,
    principal: &Principal,
    workspace: Option<&str>,
    request: Request,
) -> Result<Response, Rejection> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    headers::accepts_post_answers(&headers).map_err(|problem| problem.about(None))?;
    headers::is_json(&headers).map_err(|problem| problem.about(None))?;
    let body = read_body(body, gateway.config.max_body).await.map_err(|problem| problem.about(None))?;
    match Payload::parse(body) {
        Ok(Payload::Single(message)) => {
            let id = message.request_id().cloned();
            take_message(gateway, principal, workspace, &headers, message)
                .await
                .map_err(|problem| Rejection { problem, id })
        }
        Ok(Payload::Batch(messages)) => {
            take_batch(gateway, principal, &headers, messages).await.map_err(|problem| problem.about(None))
        }
        Err(malformed) => {
            let id = malformed.id.clone();
            Err(Rejection { problem: Problem::Malformed(malformed), id })
        }
    }
}

pub(crate) async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    let collected = if body.size_hint().lower() > limit as u64 {
        None
    } else {
        match tokio::time::timeout(BODY_WITHIN, Limited::new(&mut body, limit).collect()).await {
            Ok(Ok(collected)) => Some(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => None,
            Ok(Err(_)) => return Err(Problem::BodyUnreadable),
            Err(_) => return Err(Problem::BodyTooSlow),
        }
    };
    if collected.is_none() {
        discard_rest(body).await;
    }
    collected.ok_or(Problem::TooLarge { limit })
}

/// Reads on for a while without keeping anything: a client that is still sending would otherwise meet a
/// closed connection instead of the answer.
async fn discard_rest(mut body: Body) {
    let discard = async {
        let mut discarded = 0;
        while let Some(Ok(frame)) = body.frame().await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > DISCARD_AT_MOST {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(BODY_WITHIN, discard).await;
}

async fn take_message(
    gateway: &Gateway,
    principal: &Principal,
    workspace: Option<&str>,
    headers: &HeaderMap,
    message: Message,
) -> Result<Response, Problem> {
    let era = EraHeaders { protocol_version: headers::version_text(headers) };
    match Era::of(&message, era).map_err(Problem::EraContradiction)? {
        Era::Modern => return Err(Problem::ModernEra),
        Era::Legacy => {}
    }
    if message.method() == Some(method::INITIALIZE)
        && let Message::Request(request) = message
    {
        return open_session(gateway, principal, workspace, headers, request).await;
    }
    headers::check_version(headers)?;
    let session = locate(gateway, principal, headers)?;
    match message {
        Message::Request(request) => {
            let reader = session.call(request).map_err(Problem::Refused)?;
            Ok(respond_to_call(gateway, &session, reader).await)
        }
        Message::Notification(notification) => {
            session.notify(&notification).await.map_err(Problem::Refused)?;
            Ok(accepted())
        }
        Message::Response(response) => {
            session.answer(&response);
            Ok(accepted())
        }
    }
}

/// `initialize` begins a session. One that still carries the id of a session that is gone begins a new one.
async fn open_session(
    gateway: &Gateway,
    principal: &Principal,
    in_url: Option<&str>,
    headers: &HeaderMap,
    request: wire::Request,
) -> Result<Response, Problem> {
    if let Ok(session) = locate(gateway, principal, headers) {
        let answer = session.initialize_late(&request).map_err(Problem::Refused)?;
        return Ok(json(&session, text_body(answer)));
    }
    let caller = Caller {
        principal: principal.clone(),
        instance: headers::instance(headers),
        workspace: headers::workspace(headers, in_url)?,
        contexts: Contexts::default(),
    };
    let (session, answer) = gateway.sessions.open(caller, request).await.map_err(Problem::Refused)?;
    Ok(json(&session, text_body(answer)))
}

fn locate(gateway: &Gateway, principal: &Principal, headers: &HeaderMap) -> Result<Arc<Session>, Problem> {
    gateway.sessions.find(&session_key(principal, headers)?).map_err(Problem::Refused)
}

fn session_key(principal: &Principal, headers: &HeaderMap) -> Result<SessionKey, Problem> {
    let id = headers::session_id(headers)?.ok_or(Problem::Refused(Refusal::SessionNotFound))?;
    Ok(SessionKey { principal: principal.clone(), id })
}

async fn respond_to_call(gateway: &Gateway, session: &Session, mut reader: StreamReader) -> Response {
    let first = match reader.first().await {
        First::Arrived(Next::Message(delivery)) if delivery.is_answer => {
            return json(session, text_body(delivery.text));
        }
        First::Arrived(Next::Message(delivery)) => Some(delivery),
        First::Arrived(Next::End | Next::TakenOver) | First::Late => None,
    };
    session.make_resumable(&reader);
    events(session, EventBody::new(reader, first, resumption(gateway, session, true)))
}

fn resumption(gateway: &Gateway, session: &Session, may_park: bool) -> Option<Resumption> {
    let knows = session.version().is_some_and(Version::understands_priming);
    let park_after = gateway.config.park_after.filter(|_| may_park);
    knows.then_some(Resumption { park_after, retry: gateway.config.retry })
}

async fn take_batch(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
    messages: Vec<Message>,
) -> Result<Response, Problem> {
    Era::of_batch(&messages).map_err(Problem::EraContradiction)?;
    headers::check_version(headers)?;
    let has_initialize = messages.iter().any(|message| message.method() == Some(method::INITIALIZE));
    let session = locate(gateway, principal, headers)?;
    if has_initialize || !session.version().is_some_and(Version::allows_batches) {
        return Err(Problem::BatchNotAllowed);
    }
    let mut answers = Vec::new();
    for message in messages {
        match message {
            Message::Request(request) => {
                let id = request.id.clone();
                answers.push((id, session.call_in_batch(request)));
            }
            Message::Notification(notification) => {
                session.notify(&notification).await.map_err(Problem::Refused)?;
            }
            Message::Response(response) => session.answer(&response),
        }
    }
    if answers.is_empty() {
        return Ok(accepted());
    }
    let mut whole = Vec::from(*b"[");
    for (id, answer) in answers {
        let text = match answer {
            Ok(mut reader) => match reader.next().await {
                Next::Message(delivery) => delivery.text.into_bytes(),
                Next::End | Next::TakenOver => Bytes::new(),
            },
            Err(refusal) => refusal.reply().to_message(Some(&id)),
        };
        if whole.len() > 1 && !text.is_empty() {
            whole.push(b',');
        }
        whole.extend_from_slice(&text);
    }
    whole.push(b']');
    Ok(json(&session, Body::from(whole)))
}

fn open_stream(gateway: &Gateway, principal: &Principal, headers: &HeaderMap) -> Result<Response, Problem> {
    refuse_modern(headers)?;
    headers::accepts_events(headers)?;
    headers::check_version(headers)?;
    let session = locate(gateway, principal, headers)?;
    let after = headers::last_event_id(headers)?;
    let client = headers::instance(headers);
    let reader = session.listen(client.as_ref(), after).map_err(Problem::Refused)?;
    let may_park = after.is_some_and(|event| session.is_of_a_call(event.stream));
    Ok(events(&session, EventBody::new(reader, None, resumption(gateway, &session, may_park))))
}

async fn end_session(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    refuse_modern(headers)?;
    headers::check_version(headers)?;
    let session = locate(gateway, principal, headers)?;
    gateway.sessions.end(session.key(), EndReason::Deleted).await.map_err(Problem::Refused)?;
    Ok(no_content())
}

pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// GET and DELETE do not exist in the modern era.
fn refuse_modern(headers: &HeaderMap) -> Result<(), Problem> {
    if headers::version_text(headers).is_some_and(names_modern_version) {
        return Err(Problem::MethodNotAllowed);
    }
    Ok(())
}

fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn json(session: &Session, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    with_session_id(session, response)
}

fn events(session: &Session, body: EventBody) -> Response {
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    with_session_id(session, response)
}

fn with_session_id(session: &Session, mut response: Response) -> Response {
    if let Ok(id) = HeaderValue::try_from(session.id().expose()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    response
}
