//! Who calls: the token of a request, and the principal that it stands for.
//!
//! Tokens come in the `Authorization` header and nowhere else: URLs end up in logs. A request is refused before
//! its body is read.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use session::Principal;

use crate::Gateway;
use crate::failed_attempts::FailedAttempts;
use crate::reloaded::Reloaded;
use crate::status::Problem;
use crate::token_file::{TokenFile, TokenFileError, TokenTable};

/// Whether callers must show who they are.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// Everybody who can connect is `anonymous`.
    Open,
    Tokens(TokenStore),
}

/// The tokens of a file, as it is now.
#[derive(Clone, Debug)]
pub struct TokenStore {
    file: Arc<Reloaded<TokenFile>>,
}

impl TokenStore {
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, TokenFileError> {
        Ok(Self { file: Arc::new(Reloaded::new(TokenFile::at(path))?) })
    }

    fn find(&self, token: &[u8]) -> Option<Principal> {
        self.current().find(token)
    }

    /// All tokens, as of a second ago or later.
    pub(crate) fn current(&self) -> Arc<TokenTable> {
        self.file.current()
    }
}

/// What was refused, so that guessing stays slow and the logs stay short.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    attempts: FailedAttempts,
    told: AtomicU64,
}

impl Refused {
    /// The first few are worth a line, then one in a thousand: nobody may flood the logs.
    fn should_tell(&self) -> bool {
        let before = self.told.fetch_add(1, Ordering::Relaxed);
        before < 20 || before.is_multiple_of(1000)
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectedFrom(pub(crate) SocketAddr);

/// The step before every path that needs a principal. The request goes on with it.
pub(crate) async fn require_principal(
    State(gateway): State<Arc<Gateway>>,
    Extension(ConnectedFrom(peer)): Extension<ConnectedFrom>,
    mut request: Request,
    next: Next,
) -> Response {
    match authenticate(&gateway, request.headers(), peer.ip()) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(problem) => problem.about(None).into(),
    }
}

/// The principal whose token the request shows.
pub(crate) fn authenticate(
    gateway: &Gateway,
    headers: &HeaderMap,
    peer: IpAddr,
) -> Result<Principal, Problem> {
    let store = match &gateway.config.authentication {
        Authentication::Open => return Ok(Principal::anonymous()),
        Authentication::Tokens(store) => store,
    };
    let (address, now) = (caller_address(gateway, headers, peer), Instant::now());
    if gateway.refused.attempts.are_too_many(address, now) {
        return Err(refuse(gateway, address, Problem::TooManyAttempts));
    }
    match token(headers) {
        Shown::Nothing => Err(refuse(gateway, address, Problem::NoToken)),
        Shown::Token(token) => store.find(token).ok_or_else(|| {
            gateway.refused.attempts.add(address, now);
            refuse(gateway, address, Problem::UnknownToken)
        }),
        Shown::SomethingElse => Err(refuse(gateway, address, Problem::UnknownToken)),
    }
}

/// Counts a refusal and tells of it. The token is in neither.
fn refuse(gateway: &Gateway, address: IpAddr, problem: Problem) -> Problem {
    let (label, reason) = match problem {
        Problem::NoToken => ("no_token", "a request without a token"),
        Problem::TooManyAttempts => ("too_many_attempts", "too many requests with unknown tokens"),
        _ => ("unknown_token", "a request with an unknown token"),
    };
    gateway.sessions.counters().denials.add(label);
    if gateway.refused.should_tell() {
        tracing::warn!(%address, "{reason} is refused");
        gateway.sessions.refused(reason, Some(&address.to_string()));
    }
    problem
}

/// What a request shows of its sender.
#[derive(Debug, PartialEq, Eq)]
enum Shown<'a> {
    Nothing,
    Token(&'a [u8]),
    /// Several tokens, or credentials of another kind.
    SomethingElse,
}

fn token(headers: &HeaderMap) -> Shown<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Shown::Nothing,
        (Some(value), None) => value.as_bytes(),
        (Some(_), Some(_)) => return Shown::SomethingElse,
    };
    match value.split_at_checked(b"Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => Shown::Token(token.trim_ascii()),
        _ => Shown::SomethingElse,
    }
}

/// Behind a proxy every connection is the proxy's. The last address in the list is the one that the proxy
/// itself has added; those before it are only what the client says.
fn caller_address(gateway: &Gateway, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    if !gateway.config.is_behind_proxy {
        return peer;
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
    let last = forwarded.and_then(|value| value.to_str().ok()).and_then(|list| list.rsplit(',').next());
    last.and_then(|address| address.trim().parse().ok()).unwrap_or(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn one_bearer_token_is_read_in_any_spelling_of_the_scheme() {
        for good in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(token(&headers(&[good])), Shown::Token(b"abc"), "{good}");
        }
        assert_eq!(token(&headers(&["Bearer "])), Shown::Token(b""));
        assert_eq!(token(&HeaderMap::new()), Shown::Nothing);
        for other in ["", "Bearer", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(token(&headers(&[other])), Shown::SomethingElse, "{other}");
        }
        assert_eq!(token(&headers(&["Bearer abc", "Bearer abc"])), Shown::SomethingElse);
    }
}
