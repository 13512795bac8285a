//! The one place where errors become HTTP: a status code and a JSON-RPC error with the caller's id.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use session::{ContextError, CopyError, Refusal, ScopeRefusal};
use thiserror::Error;
use wire::{ErrorReply, Id, MessageError, Version, code};

use crate::upgrade_request::UpgradeRefusal;

/// Why a request was not served. Its text is the message that the caller reads.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error("Forbidden: the Host header does not name this server (see --allowed-host)")]
    ForbiddenHost,
    #[error("Forbidden: this web origin may not call this server (see --allowed-origin)")]
    ForbiddenOrigin,
    /// The peer is inside a fence, or cannot be identified.
    #[error(
        "Forbidden: programs inside a fence may not use the gateway that fences them (a client that hides its open \
         files cannot be told from one; it can use `ringfence stdio`)"
    )]
    FencedPeer,
    /// The peer is another user's process, or another host, where callers need no token.
    #[error(
        "Forbidden: without tokens the gateway serves only the user who runs it (see --allow-uid, --auth-token-file)"
    )]
    ForeignPeer,
    #[error("Service Unavailable: too many connections have requests in progress (see --max-connections)")]
    TooManyConnections,
    #[error("Too Many Requests: this caller has too many requests in progress (see --max-connections)")]
    TooManyRequests,
    #[error("Not Acceptable: the client must accept {needed}")]
    NotAcceptable { needed: &'static str },
    #[error("Unsupported Media Type: Content-Type must be application/json")]
    NotJson,
    #[error("Payload Too Large: a message may have at most {limit} bytes")]
    TooLarge { limit: usize },
    #[error("Bad Request: the body could not be read")]
    BodyUnreadable,
    #[error("Request Timeout: the body did not arrive")]
    BodyTooSlow,
    #[error(transparent)]
    Malformed(#[from] MessageError),
    /// Header and body contradict each other about the protocol era.
    #[error("{}", .0.message)]
    EraContradiction(ErrorReply),
    /// A request of 2026-07-28 or later.
    #[error("Bad Request: this server speaks MCP up to 2025-11-25; begin with initialize")]
    ModernEra,
    #[error("Bad Request: unsupported protocol version {0:?} (supported: {list})", list = supported_versions())]
    UnsupportedVersion(String),
    #[error(
        "Invalid Request: batches exist only in sessions of protocol version 2025-03-26, without initialize"
    )]
    BatchNotAllowed,
    #[error("Bad Request: Missing Mcp-Session-Id header; begin with initialize")]
    MissingSessionId,
    /// The body of `POST /session/init` cannot be read.
    #[error("Bad Request: {0} (expected clientInfo, workingDirectory, capabilities, preferences)")]
    BadIntroduction(String),
    /// The body of `POST /session/{id}/apply` cannot be read.
    #[error("Bad Request: {0} (expected only, includeExecutables, includeIgnored, dryRun)")]
    BadSelection(String),
    #[error("Bad Request: {0} (expected unusedForSeconds, dryRun)")]
    BadPruning(String),
    /// The body of `PATCH /session/{id}/context` cannot be read.
    #[error("Bad Request: {0} (expected name, labels, note, removeNote)")]
    BadContext(String),
    #[error("Bad Request: {0}")]
    RefusedContext(#[from] ContextError),
    #[error("Bad Request: `{0}` is no parameter of this path (expected search, label)")]
    BadQuery(String),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("too many machines are attached")]
    TooManyAttachments,
    #[error("Bad Request: this path is for `ringfence connect` (a WebSocket)")]
    NotAWebSocket,
    #[error("Bad Request: Mcp-Session-Id and X-Session-Id differ")]
    TwoSessions,
    #[error(
        "Bad Request: Ringfence-Workspace must be one name or absolute path, with its variables filled in"
    )]
    BadWorkspace,
    #[error("Bad Request: the header and the URL name different workspaces")]
    TwoWorkspaces,
    #[error("Unauthorized: this path is for the operator; `ringfence sessions list` knows the token")]
    NotOperator,
    #[error("Unauthorized: this server wants a token, in a header `Authorization: Bearer TOKEN`")]
    NoToken,
    #[error("Unauthorized: unknown token")]
    UnknownToken,
    /// The token, or the access of its principal.
    #[error("Unauthorized: the token has expired; the operator makes another with `ringfence token create`")]
    ExpiredToken,
    #[error("Too Many Requests: too many unknown tokens came from this address")]
    TooManyAttempts,
    #[error("Not Found: no session has this handle")]
    NoSuchSession,
    #[error("Method not allowed")]
    MethodNotAllowed,
    #[error("Not Found: the MCP endpoint is /mcp")]
    NoSuchPath,
    #[error("Conflict: {0}")]
    Upgrade(#[from] UpgradeRefusal),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// An error with the JSON-RPC id of the request that it answers, where there is one.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    error: RequestError,
    id: Option<Id>,
}

impl From<RequestError> for ErrorResponse {
    fn from(error: RequestError) -> Self {
        error.answering(None)
    }
}

impl RequestError {
    pub(crate) fn answering(self, id: Option<Id>) -> ErrorResponse {
        ErrorResponse { error: self, id }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::ForbiddenHost | Self::ForbiddenOrigin | Self::FencedPeer | Self::ForeignPeer => {
                StatusCode::FORBIDDEN
            }
            Self::NotAcceptable { .. } => StatusCode::NOT_ACCEPTABLE,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::BodyUnreadable
            | Self::Malformed(_)
            | Self::EraContradiction(_)
            | Self::ModernEra
            | Self::UnsupportedVersion(_)
            | Self::BatchNotAllowed
            | Self::BadIntroduction(_)
            | Self::BadSelection(_)
            | Self::BadPruning(_)
            | Self::BadContext(_)
            | Self::RefusedContext(_)
            | Self::BadQuery(_)
            | Self::TwoSessions
            | Self::NotAWebSocket
            | Self::BadWorkspace
            | Self::TwoWorkspaces
            | Self::MissingSessionId => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotOperator | Self::NoToken | Self::UnknownToken | Self::ExpiredToken => {
                StatusCode::UNAUTHORIZED
            }
            Self::TooManyAttempts | Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyAttachments | Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSuchPath | Self::NoSuchSession => StatusCode::NOT_FOUND,
            Self::Copy(error) => match error {
                CopyError::NoCopy => StatusCode::NOT_FOUND,
                CopyError::NotAllowed => StatusCode::FORBIDDEN,
                CopyError::Apply(_) => StatusCode::CONFLICT,
                CopyError::Staging(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Self::Upgrade(_) => StatusCode::CONFLICT,
            Self::Refused(refusal) => refusal_status(refusal),
        }
    }

    /// The `WWW-Authenticate` header. Only a token that was shown can be invalid.
    fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::UnknownToken | Self::ExpiredToken | Self::Refused(Refusal::AccessExpired) => {
                r#"Bearer realm="ringfence", error="invalid_token""#
            }
            _ => r#"Bearer realm="ringfence""#,
        })
    }

    /// Whole seconds after which the request may succeed.
    fn retry_after(&self) -> u64 {
        match self {
            Self::Refused(Refusal::TooFast { retry_after }) => retry_after.as_secs() + 1,
            _ => 1,
        }
    }

    fn reply(&self) -> ErrorReply {
        match self {
            Self::Malformed(error) => ErrorReply::new(error.code, self.to_string()),
            Self::EraContradiction(reply) => reply.clone(),
            Self::Refused(refusal) => refusal.reply(),
            Self::BadIntroduction(_)
            | Self::BadSelection(_)
            | Self::BadPruning(_)
            | Self::BadContext(_)
            | Self::RefusedContext(_)
            | Self::BatchNotAllowed => ErrorReply::new(code::INVALID_REQUEST, self.to_string()),
            _ => ErrorReply::new(code::SERVER_ERROR, self.to_string()),
        }
    }
}

fn supported_versions() -> String {
    Version::ALL.map(Version::as_str).join(", ")
}

fn refusal_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::SessionNotFound => StatusCode::NOT_FOUND,
        Refusal::AccessExpired => StatusCode::UNAUTHORIZED,
        Refusal::BadInitialize(_)
        | Refusal::AlreadyInitialized
        | Refusal::IdInUse(_)
        | Refusal::UnknownEvent => StatusCode::BAD_REQUEST,
        Refusal::Scope { refusal: ScopeRefusal::UnknownWorkspace(_) | ScopeRefusal::Root { .. } } => {
            StatusCode::BAD_REQUEST
        }
        Refusal::Scope { .. } | Refusal::Terminated(_) => StatusCode::FORBIDDEN,
        Refusal::TooManyCalls { .. }
        | Refusal::TooManyListeners { .. }
        | Refusal::TooManyOfOne { .. }
        | Refusal::TooFast { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::TooManySessions { .. } | Refusal::NoUser | Refusal::ShuttingDown => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // The gateway served the request and the upstream failed. Clients show that error best as the answer to
        // their request.
        Refusal::Start(_) => StatusCode::OK,
    }
}

impl From<ErrorResponse> for Response {
    fn from(ErrorResponse { error, id }: ErrorResponse) -> Self {
        let status = error.status();
        let reply = error.reply();
        tracing::debug!(status = status.as_u16(), code = reply.code, "{}", reply.message);
        let mut response = Response::new(Body::from(reply.to_message(id.as_ref())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, error.retry_after().into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, error.challenge());
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        }
        response
    }
}

impl From<RequestError> for Response {
    fn from(error: RequestError) -> Self {
        ErrorResponse::from(error).into()
    }
}

/// The whole response, head and body, for a connection that is refused before it is served.
pub(crate) fn last_response(error: &RequestError) -> Bytes {
    let (status, body) = (error.status(), error.reply().to_message(None));
    let reason = status.canonical_reason().unwrap_or_default();
    let retry = if status == StatusCode::SERVICE_UNAVAILABLE {
        format!("retry-after: {}\r\n", error.retry_after())
    } else {
        String::new()
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{retry}\
         connection: close\r\n\r\n",
        status.as_u16(),
        body.len()
    );
    [head.as_bytes(), &body].concat().into()
}

/// Answers every unknown path, among them the discovery paths of OAuth: clients that probe them need a plain JSON
/// 404, or they open a browser to log in.
pub(crate) async fn no_such_path() -> Response {
    RequestError::NoSuchPath.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
        response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    fn body(error: &RequestError, id: Option<&Id>) -> serde_json::Value {
        let reply = error.reply().to_message(id);
        serde_json::from_slice(&reply).unwrap()
    }

    #[test]
    fn an_error_is_answered_under_the_callers_id_or_null() {
        let answered = body(&RequestError::BatchNotAllowed, Some(&Id::number(7)));
        assert_eq!((&answered["id"], &answered["error"]["code"]), (&7.into(), &code::INVALID_REQUEST.into()));
        let answered = body(&RequestError::NotJson, None);
        assert_eq!((&answered["id"], &answered["error"]["code"]), (&().into(), &code::SERVER_ERROR.into()));
    }

    #[test]
    fn only_a_token_that_was_shown_is_called_invalid() {
        for (error, is_invalid) in [
            (RequestError::NoToken, false),
            (RequestError::UnknownToken, true),
            (RequestError::ExpiredToken, true),
            (RequestError::Refused(Refusal::AccessExpired), true),
        ] {
            let response = Response::from(error);
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
            let challenge = header(&response, "www-authenticate").unwrap();
            assert!(challenge.starts_with("Bearer realm=\"ringfence\""), "{challenge}");
            assert_eq!(challenge.contains("invalid_token"), is_invalid, "{challenge}");
        }
    }

    #[test]
    fn a_busy_gateway_says_when_to_come_back() {
        let retry_after = |error: RequestError| {
            let response = Response::from(error);
            header(&response, "retry-after").map(str::to_owned)
        };
        let too_fast = Refusal::TooFast { retry_after: Duration::from_millis(2500) };
        assert_eq!(retry_after(RequestError::Refused(too_fast)).as_deref(), Some("3"));
        assert_eq!(retry_after(RequestError::TooManyAttempts).as_deref(), Some("1"));
        assert_eq!(retry_after(RequestError::Refused(Refusal::ShuttingDown)).as_deref(), Some("1"));
        assert_eq!(retry_after(RequestError::NotJson), None);
    }

    #[test]
    fn a_refused_connection_gets_a_whole_response() {
        for (error, status, has_time) in [
            (RequestError::FencedPeer, "403 Forbidden", false),
            (RequestError::ForeignPeer, "403 Forbidden", false),
            (RequestError::TooManyConnections, "503 Service Unavailable", true),
        ] {
            let response = String::from_utf8(last_response(&error).to_vec()).unwrap();
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
            assert!(head.ends_with("connection: close"), "{head}");
            assert_eq!(head.contains("retry-after: 1\r\n"), has_time, "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["error"]["message"], error.to_string());
        }
    }

    #[test]
    fn a_wrong_method_names_the_right_ones() {
        let response = Response::from(RequestError::MethodNotAllowed);
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(header(&response, "allow"), Some("GET, POST, DELETE"));
    }

    #[test]
    fn a_refused_session_has_the_status_of_its_reason() {
        for (refusal, status) in [
            (Refusal::SessionNotFound, StatusCode::NOT_FOUND),
            (Refusal::AlreadyInitialized, StatusCode::BAD_REQUEST),
            (Refusal::UnknownEvent, StatusCode::BAD_REQUEST),
            (Refusal::ShuttingDown, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let error = RequestError::from(refusal);
            assert_eq!(error.status(), status, "{error}");
        }
    }

    #[test]
    fn an_unsupported_version_lists_the_supported_ones() {
        let message = RequestError::UnsupportedVersion("v9".to_owned()).to_string();
        assert!(message.contains("\"v9\"") && message.contains("2024-11-05, 2025-03-26"), "{message}");
    }
}
