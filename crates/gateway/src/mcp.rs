//! The MCP endpoint: POST, GET and DELETE of Streamable HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use identity::{Principal, SessionId, SessionKey};
use session::{Caller, Contexts, EndReason, First, Next, Refusal, Session, StreamReader};
use wire::{Body as Payload, Era, EraHeaders, Message, Version, method, names_modern_version};

use crate::Gateway;
use crate::event_body::{EventBody, Resumption};
use crate::headers::{self, SESSION_ID};
use crate::pieces_body::text_body;
use crate::status::{ErrorResponse, RequestError};

/// How long a client may take to send its body.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// How much of a body that is too large is read and discarded before the error is sent.
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
    open_stream(&gateway, &principal, request.headers()).unwrap_or_else(Into::into)
}

pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    end_session(&gateway, &principal, request.headers()).await.unwrap_or_else(Into::into)
}

pub(crate) async fn wrong_method() -> Response {
    RequestError::MethodNotAllowed.into()
}

async fn take_post(
    gateway: &Gateway,
    principal: &Principal,
    workspace: Option<&str>,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    headers::accepts_post_answers(&headers)?;
    headers::is_json(&headers)?;
    let body = read_body(body, gateway.config.max_body).await?;
    match Payload::parse(body) {
        Ok(Payload::Single(message)) => {
            let id = message.request_id().cloned();
            let taken = take_message(gateway, principal, workspace, &headers, message).await;
            taken.map_err(|error| error.answering(id))
        }
        Ok(Payload::Batch(messages)) => Ok(take_batch(gateway, principal, &headers, messages).await?),
        Err(error) => {
            let id = error.id.clone();
            Err(RequestError::Malformed(error).answering(id))
        }
    }
}

pub(crate) async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, RequestError> {
    let collected = if body.size_hint().lower() > limit as u64 {
        None
    } else {
        match tokio::time::timeout(BODY_WITHIN, Limited::new(&mut body, limit).collect()).await {
            Ok(Ok(collected)) => Some(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => None,
            Ok(Err(_)) => return Err(RequestError::BodyUnreadable),
            Err(_) => return Err(RequestError::BodyTooSlow),
        }
    };
    if collected.is_none() {
        discard_rest(body).await;
    }
    collected.ok_or(RequestError::TooLarge { limit })
}

/// Reads on for a while and discards the bytes: a client that is still sending would otherwise meet a closed
/// connection instead of the answer.
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
) -> Result<Response, RequestError> {
    require_legacy_era(&message, headers)?;
    if message.method() == Some(method::INITIALIZE)
        && let Message::Request(request) = message
    {
        return open_session(gateway, principal, workspace, headers, request).await;
    }
    headers::check_version(headers)?;
    let session = locate(gateway, principal, headers)?;
    match message {
        Message::Request(request) => {
            let reader = session.call(request)?;
            Ok(respond_to_call(gateway, &session, reader).await)
        }
        Message::Notification(notification) => {
            session.notify(&notification).await?;
            Ok(accepted())
        }
        Message::Response(response) => {
            session.answer(&response);
            Ok(accepted())
        }
    }
}

/// The gateway serves the legacy era only.
fn require_legacy_era(message: &Message, headers: &HeaderMap) -> Result<(), RequestError> {
    let era = EraHeaders { protocol_version: headers::version_text(headers) };
    match Era::of(message, era).map_err(RequestError::EraContradiction)? {
        Era::Modern => Err(RequestError::ModernEra),
        Era::Legacy => Ok(()),
    }
}

/// Opens a session for `initialize`. A request that carries the id of a session that has ended opens a new one.
async fn open_session(
    gateway: &Gateway,
    principal: &Principal,
    in_url: Option<&str>,
    headers: &HeaderMap,
    request: wire::Request,
) -> Result<Response, RequestError> {
    if let Ok(session) = locate(gateway, principal, headers) {
        let answer = session.initialize_late(&request)?;
        return Ok(json(session.id(), text_body(answer)));
    }
    let caller = Caller {
        principal: principal.clone(),
        instance: headers::instance(headers),
        workspace: headers::workspace(headers, in_url)?,
        contexts: Contexts::default(),
    };
    let (session, answer) = gateway.sessions.open(caller, request).await?;
    Ok(json(session.id(), text_body(answer)))
}

fn locate(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<Arc<Session>, RequestError> {
    gateway.sessions.find(&session_key(principal, headers)?).map_err(RequestError::Refused)
}

fn session_key(principal: &Principal, headers: &HeaderMap) -> Result<SessionKey, RequestError> {
    let id = headers::session_id(headers)?.ok_or(RequestError::Refused(Refusal::SessionNotFound))?;
    Ok(SessionKey { principal: principal.clone(), id })
}

async fn respond_to_call(gateway: &Gateway, session: &Session, mut reader: StreamReader) -> Response {
    let first = match reader.first().await {
        First::Arrived(Next::Message(delivery)) if delivery.is_answer => {
            return json(session.id(), text_body(delivery.text));
        }
        First::Arrived(Next::Message(delivery)) => Some(delivery),
        First::Arrived(Next::End | Next::TakenOver) | First::Late => None,
    };
    session.make_resumable(&reader);
    events(session.id(), EventBody::new(reader, first, resumption(gateway, session, true)))
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
) -> Result<Response, RequestError> {
    Era::of_batch(&messages).map_err(RequestError::EraContradiction)?;
    headers::check_version(headers)?;
    let has_initialize = messages.iter().any(|message| message.method() == Some(method::INITIALIZE));
    let session = locate(gateway, principal, headers)?;
    if has_initialize || !session.version().is_some_and(Version::allows_batches) {
        return Err(RequestError::BatchNotAllowed);
    }
    let mut calls = Vec::new();
    for message in messages {
        match message {
            Message::Request(request) => {
                let id = request.id.clone();
                calls.push((id, session.call_in_batch(request)));
            }
            Message::Notification(notification) => {
                session.notify(&notification).await?;
            }
            Message::Response(response) => session.answer(&response),
        }
    }
    if calls.is_empty() {
        return Ok(accepted());
    }
    let mut answers = Vec::with_capacity(calls.len());
    for (id, call) in calls {
        answers.push(match call {
            Ok(mut reader) => match reader.next().await {
                Next::Message(delivery) => delivery.text.into_bytes(),
                Next::End | Next::TakenOver => Bytes::new(),
            },
            Err(refusal) => refusal.reply().to_message(Some(&id)),
        });
    }
    Ok(json(session.id(), Body::from(as_json_array(&answers))))
}

/// Joins the answers of a batch. A call that ended without an answer is left out.
fn as_json_array(answers: &[Bytes]) -> Vec<u8> {
    let mut array = Vec::from(*b"[");
    for answer in answers.iter().filter(|answer| !answer.is_empty()) {
        if array.len() > 1 {
            array.push(b',');
        }
        array.extend_from_slice(answer);
    }
    array.push(b']');
    array
}

fn open_stream(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<Response, RequestError> {
    refuse_modern(headers)?;
    headers::accepts_events(headers)?;
    headers::check_version(headers)?;
    let session = locate(gateway, principal, headers)?;
    let after = headers::last_event_id(headers)?;
    let client = headers::instance(headers);
    let reader = session.listen(client.as_ref(), after)?;
    let may_park = after.is_some_and(|event| session.is_of_a_call(event.stream));
    Ok(events(session.id(), EventBody::new(reader, None, resumption(gateway, &session, may_park))))
}

async fn end_session(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<Response, RequestError> {
    refuse_modern(headers)?;
    headers::check_version(headers)?;
    let session = locate(gateway, principal, headers)?;
    gateway.sessions.end(session.key(), EndReason::Deleted).await?;
    Ok(no_content())
}

/// GET and DELETE do not exist in the modern era.
fn refuse_modern(headers: &HeaderMap) -> Result<(), RequestError> {
    if headers::version_text(headers).is_some_and(names_modern_version) {
        return Err(RequestError::MethodNotAllowed);
    }
    Ok(())
}

pub(crate) fn no_content() -> Response {
    empty(StatusCode::NO_CONTENT)
}

fn accepted() -> Response {
    empty(StatusCode::ACCEPTED)
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn json(session: SessionId, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    with_session_id(session, response)
}

fn events(session: SessionId, body: EventBody) -> Response {
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    with_session_id(session, response)
}

fn with_session_id(session: SessionId, mut response: Response) -> Response {
    if let Ok(id) = HeaderValue::try_from(session.expose()) {
        response.headers_mut().insert(SESSION_ID, id);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::http::request;
    use serde_json::{Value, json};

    use super::*;
    use crate::Config;
    use crate::test_gateway::{answer, gateway_with};

    const BOTH: &str = "application/json, text/event-stream";
    const UNKNOWN_SESSION: &str = "0b0a86bd-6f18-4a0f-8f3b-3f1f0f6f0a11";

    fn post() -> request::Builder {
        axum::http::Request::post("/mcp")
            .header("host", "localhost")
            .header("accept", BOTH)
            .header("content-type", "application/json")
    }

    async fn send(request: request::Builder, body: impl Into<Body>) -> (u16, Value) {
        answer(&gateway_with(Config::default()), request.body(body.into()).unwrap()).await
    }

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_message_of_the_modern_era_is_refused() {
        let plain = message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        let mut headers = HeaderMap::new();
        assert!(require_legacy_era(&plain, &headers).is_ok());
        headers.insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
        let refused = require_legacy_era(&plain, &headers);
        assert!(matches!(refused, Err(RequestError::EraContradiction(_))));
        let notification = message(r#"{"jsonrpc":"2.0","method":"n"}"#);
        assert!(matches!(require_legacy_era(&notification, &headers), Err(RequestError::ModernEra)));
        let response = message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(require_legacy_era(&response, &headers).is_ok());
    }

    #[test]
    fn a_batch_is_answered_with_one_array() {
        let array = |answers: &[&'static str]| {
            let answers: Vec<Bytes> =
                answers.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
            String::from_utf8(as_json_array(&answers)).unwrap()
        };
        assert_eq!(array(&["1", "2"]), "[1,2]");
        assert_eq!(array(&["", "1", "", "2", ""]), "[1,2]");
        assert_eq!(array(&[""]), "[]");
    }

    #[test]
    fn a_response_names_its_session() {
        let id = SessionId::random();
        let response = json(id, Body::empty());
        assert_eq!(response.headers()["mcp-session-id"], id.expose().as_str());
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(
            (accepted().status(), no_content().status()),
            (StatusCode::ACCEPTED, StatusCode::NO_CONTENT)
        );
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        assert_eq!(read_body(Body::from("12345"), 5).await.unwrap(), "12345");
        for body in [Body::from("123456"), in_pieces(&["123", "456"])] {
            assert!(matches!(read_body(body, 5).await, Err(RequestError::TooLarge { limit: 5 })));
        }
    }

    /// A body whose length is not known in advance.
    fn in_pieces(pieces: &[&'static str]) -> Body {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    #[tokio::test]
    async fn headers_are_checked_before_the_body() {
        for (name, value, expected) in
            [("accept", "application/json", 406), ("content-type", "text/plain", 415)]
        {
            let mut request = post().body(Body::from("nonsense")).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_static(value));
            let (status, _) = answer(&gateway_with(Config::default()), request).await;
            assert_eq!(status, expected, "{name}");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_no_message_is_a_bad_request_under_its_id() {
        let (status, body) = send(post(), "nonsense").await;
        assert_eq!((status, &body["error"]["code"], &body["id"]), (400, &json!(-32700), &Value::Null));
        let (status, body) = send(post(), r#"{"jsonrpc":"1.0","id":"x","method":"ping"}"#).await;
        assert_eq!((status, &body["error"]["code"], &body["id"]), (400, &json!(-32600), &json!("x")));
    }

    #[tokio::test]
    async fn a_call_needs_a_known_session() {
        let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        let (status, body) = send(post(), ping).await;
        assert_eq!((status, &body["id"]), (400, &json!(7)), "{body}");
        for unknown in [UNKNOWN_SESSION, "not-a-uuid"] {
            let (status, body) = send(post().header("mcp-session-id", unknown), ping).await;
            assert_eq!((status, &body["error"]["code"], &body["id"]), (404, &json!(-32001), &json!(7)));
        }
    }

    #[tokio::test]
    async fn a_batch_needs_a_session_and_cannot_claim_the_modern_era() {
        let batch = r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#;
        let (status, _) = send(post().header("mcp-session-id", UNKNOWN_SESSION), batch).await;
        assert_eq!(status, 404);
        let modern = r#"[{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]"#;
        let (status, body) = send(post(), modern).await;
        assert_eq!((status, &body["error"]["code"], &body["id"]), (400, &json!(-32600), &Value::Null));
    }

    #[tokio::test]
    async fn get_and_delete_do_not_exist_in_the_modern_era() {
        for method in ["GET", "DELETE"] {
            let request = || {
                let builder = axum::http::Request::builder().method(method).uri("/mcp");
                builder.header("host", "localhost").header("accept", "text/event-stream")
            };
            let (status, _) =
                send(request().header("mcp-protocol-version", "2026-07-28"), Body::empty()).await;
            assert_eq!(status, 405, "{method}");
            let (status, _) = send(request().header("mcp-session-id", UNKNOWN_SESSION), Body::empty()).await;
            assert_eq!(status, 404, "{method}");
        }
    }

    #[tokio::test]
    async fn a_method_or_path_that_does_not_exist_is_said_so() {
        let request = |method: &str, path: &str| {
            axum::http::Request::builder().method(method).uri(path).header("host", "localhost")
        };
        assert_eq!(send(request("PUT", "/mcp"), Body::empty()).await.0, 405);
        let (status, body) =
            send(request("GET", "/.well-known/oauth-authorization-server"), Body::empty()).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!(-32000)));
    }
}
