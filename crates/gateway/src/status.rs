//! The one place where errors become HTTP: a status code and a JSON-RPC error with the caller's id.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use session::{Refusal, ScopeRefusal};
use wire::{ErrorReply, Id, Malformed, code};

/// Why a request was not served.
#[derive(Debug)]
pub(crate) enum Problem {
    ForbiddenHost,
    ForbiddenOrigin,
    /// Who connects is inside a fence, or cannot be named.
    FencedPeer,
    NotAcceptable {
        needed: &'static str,
    },
    NotJson,
    TooLarge {
        limit: usize,
    },
    BodyUnreadable,
    BodyTooSlow,
    Malformed(Malformed),
    /// Header and body contradict each other about the protocol era.
    EraContradiction(ErrorReply),
    /// A request of 2026-07-28 or later.
    ModernEra,
    UnsupportedVersion(String),
    BatchNotAllowed,
    MissingSessionId,
    /// The body of `POST /session/init` is not what it should be.
    BadIntroduction(String),
    TooManyAttachments,
    /// Only a WebSocket can be attached.
    NotAWebSocket,
    /// The two headers that may name a session name different ones.
    TwoSessions,
    /// The workspace header is no name or path.
    BadWorkspace,
    /// The header and the URL name different workspaces.
    TwoWorkspaces,
    /// The caller does not know the operator's token.
    NotOperator,
    /// The caller did not say who it is.
    NoToken,
    /// The caller showed a token that nobody has.
    UnknownToken,
    /// The caller's address has shown too many of these.
    TooManyAttempts,
    NoSuchSession,
    MethodNotAllowed,
    NoSuchPath,
    Refused(Refusal),
}

/// A problem with the id of the request that it concerns, where there is one.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) problem: Problem,
    pub(crate) id: Option<Id>,
}

impl Problem {
    pub(crate) fn about(self, id: Option<&Id>) -> Rejection {
        Rejection { problem: self, id: id.cloned() }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::ForbiddenHost | Self::ForbiddenOrigin | Self::FencedPeer => StatusCode::FORBIDDEN,
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
            | Self::TwoSessions
            | Self::NotAWebSocket
            | Self::BadWorkspace
            | Self::TwoWorkspaces
            | Self::MissingSessionId => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotOperator | Self::NoToken | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyAttachments => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSuchPath | Self::NoSuchSession => StatusCode::NOT_FOUND,
            Self::Refused(refusal) => refusal_status(refusal),
        }
    }

    /// What a caller who is not known is asked for. Only a token that was shown can be called wrong.
    fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::UnknownToken => r#"Bearer realm="ringfence", error="invalid_token""#,
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
        let server_error = |message: String| ErrorReply::new(code::SERVER_ERROR, message);
        match self {
            Self::ForbiddenHost => server_error(
                "Forbidden: the Host header names no address of this server (see --allowed-host)".into(),
            ),
            Self::ForbiddenOrigin => server_error(
                "Forbidden: this web origin may not call this server (see --allowed-origin)".into(),
            ),
            Self::FencedPeer => server_error(
                "Forbidden: programs inside a fence may not use the gateway that fences them (a client that \
                 hides its open files cannot be told from one; it can use `ringfence stdio`)"
                    .into(),
            ),
            Self::NotAcceptable { needed } => {
                server_error(format!("Not Acceptable: the client must accept {needed}"))
            }
            Self::NotJson => {
                server_error("Unsupported Media Type: Content-Type must be application/json".into())
            }
            Self::TooLarge { limit } => {
                server_error(format!("Payload Too Large: a message may have at most {limit} bytes"))
            }
            Self::BodyUnreadable => server_error("Bad Request: the body could not be read".into()),
            Self::BodyTooSlow => server_error("Request Timeout: the body did not arrive".into()),
            Self::Malformed(malformed) => ErrorReply::new(malformed.code, malformed.reason.clone()),
            Self::EraContradiction(reply) => reply.clone(),
            Self::BadIntroduction(reason) => ErrorReply::new(
                code::INVALID_REQUEST,
                format!("Bad Request: {reason} (expected clientInfo, workingDirectory, capabilities, preferences)"),
            ),
            Self::TooManyAttachments => server_error("too many machines are attached".into()),
            Self::NotAWebSocket => server_error("Bad Request: this path is for `ringfence connect` (a WebSocket)".into()),
            Self::TwoSessions => server_error("Bad Request: Mcp-Session-Id and X-Session-Id differ".into()),
            Self::ModernEra => server_error(
                "Bad Request: this server speaks MCP up to 2025-11-25; begin with initialize".into(),
            ),
            Self::UnsupportedVersion(version) => server_error(format!(
                "Bad Request: unsupported protocol version {version:?} (supported: {})",
                wire::Version::ALL.map(wire::Version::as_str).join(", ")
            )),
            Self::BatchNotAllowed => ErrorReply::new(
                code::INVALID_REQUEST,
                "Invalid Request: batches exist only in sessions of protocol version 2025-03-26, without initialize",
            ),
            Self::MissingSessionId => {
                server_error("Bad Request: Missing Mcp-Session-Id header; begin with initialize".into())
            }
            Self::BadWorkspace => server_error(
                "Bad Request: Ringfence-Workspace must be one name or absolute path, with its variables filled in"
                    .into(),
            ),
            Self::TwoWorkspaces => {
                server_error("Bad Request: the header and the URL name different workspaces".into())
            }
            Self::NotOperator => server_error(
                "Unauthorized: this path is for the operator; `ringfence sessions list` knows the token".into(),
            ),
            Self::NoToken => server_error(
                "Unauthorized: this server wants a token, in a header `Authorization: Bearer TOKEN`".into(),
            ),
            Self::UnknownToken => server_error("Unauthorized: nobody has this token".into()),
            Self::TooManyAttempts => {
                server_error("Too Many Requests: too many unknown tokens came from this address".into())
            }
            Self::NoSuchSession => server_error("Not Found: no session has this handle".into()),
            Self::MethodNotAllowed => server_error("Method not allowed".into()),
            Self::NoSuchPath => server_error("Not Found: the MCP endpoint is /mcp".into()),
            Self::Refused(refusal) => refusal.reply(),
        }
    }
}

fn refusal_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::SessionNotFound => StatusCode::NOT_FOUND,
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
        Refusal::TooManySessions { .. } | Refusal::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        // The request itself was served: what failed is the upstream, and clients show that error best
        // when it is the answer to their request.
        Refusal::Start(_) => StatusCode::OK,
    }
}

impl From<Rejection> for Response {
    fn from(rejection: Rejection) -> Self {
        let status = rejection.problem.status();
        let reply = rejection.problem.reply();
        tracing::debug!(status = status.as_u16(), code = reply.code, "{}", reply.message);
        let mut response = Response::new(Body::from(reply.to_message(rejection.id.as_ref())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, rejection.problem.retry_after().into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, rejection.problem.challenge());
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
        }
        response
    }
}

/// Every path, for whoever connects from inside a fence.
pub(crate) async fn fenced_peer() -> Response {
    Problem::FencedPeer.about(None).into()
}

/// Every path that is not ours, the discovery paths of OAuth among them: clients that probe them must hear a
/// plain JSON 404, or they open a browser to log in.
pub(crate) async fn no_such_path() -> Response {
    Problem::NoSuchPath.about(None).into()
}
