//! Finds the principal of a request by its token.
//!
//! Tokens are accepted only in the `Authorization` header, because URLs end up in logs. A request is refused before
//! its body is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use identity::Principal;
use jiff::Timestamp;

use crate::Gateway;
use crate::status::RequestError;
use crate::token_file::Known;
use crate::token_store::Authentication;

/// The peer address of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectedFrom(pub(crate) SocketAddr);

/// Middleware for every path that needs a principal: adds it to the request as an extension.
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
        Err(error) => error.into(),
    }
}

/// Returns the principal whose token the request carries.
pub(crate) fn authenticate(
    gateway: &Gateway,
    headers: &HeaderMap,
    peer: IpAddr,
) -> Result<Principal, RequestError> {
    let store = match &gateway.config.authentication {
        Authentication::Open => return Ok(Principal::anonymous()),
        Authentication::Tokens(store) => store,
    };
    let given = credentials(headers);
    let known = match given {
        Credentials::Token(token) => store.find(token),
        Credentials::None | Credentials::Other => None,
    };
    let address = caller_address(gateway, headers, peer);
    if let Some(Known { principal, expires }) = known {
        let has_expired = expires.is_some_and(|expires| expires <= Timestamp::now());
        if has_expired || gateway.sessions.has_expired(&principal) {
            return Err(deny(gateway, address, RequestError::ExpiredToken));
        }
        return Ok(principal);
    }
    // Only failures are limited: callers behind one address must not be able to lock each other out.
    let error = match given {
        Credentials::None => RequestError::NoToken,
        Credentials::Token(_) if gateway.denials.attempts.add_and_is_too_many(address, Instant::now()) => {
            RequestError::TooManyAttempts
        }
        Credentials::Token(_) | Credentials::Other => RequestError::UnknownToken,
    };
    Err(deny(gateway, address, error))
}

/// Counts a denial, and logs and audits it without the token.
fn deny(gateway: &Gateway, address: IpAddr, error: RequestError) -> RequestError {
    let (label, reason) = match error {
        RequestError::NoToken => ("no_token", "a request without a token"),
        RequestError::ExpiredToken => ("expired_token", "a request with an expired token"),
        RequestError::TooManyAttempts => ("too_many_attempts", "too many requests with unknown tokens"),
        _ => ("unknown_token", "a request with an unknown token"),
    };
    gateway.sessions.counters().denials.add(label);
    if gateway.denials.add_and_should_log() {
        tracing::warn!(%address, "{reason} is refused");
        gateway.sessions.refused(reason, Some(&address.to_string()));
    }
    error
}

/// The `Authorization` of a request.
#[derive(Debug, PartialEq, Eq)]
enum Credentials<'a> {
    None,
    Token(&'a [u8]),
    /// Several tokens, or another scheme.
    Other,
}

fn credentials(headers: &HeaderMap) -> Credentials<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Credentials::None,
        (Some(value), None) => value.as_bytes(),
        (Some(_), Some(_)) => return Credentials::Other,
    };
    match value.split_at_checked(b"Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            Credentials::Token(token.trim_ascii())
        }
        _ => Credentials::Other,
    }
}

/// The address that failed attempts count against. Behind a proxy it is the last one of `X-Forwarded-For`, which the
/// proxy added itself; the client can make up those before it.
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
    use crate::Config;
    use crate::test_gateway::gateway_with;
    use axum::http::HeaderValue;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn one_bearer_token_is_read_in_any_spelling_of_the_scheme() {
        for good in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(credentials(&headers(&[good])), Credentials::Token(b"abc"), "{good}");
        }
        assert_eq!(credentials(&headers(&["Bearer "])), Credentials::Token(b""));
        assert_eq!(credentials(&HeaderMap::new()), Credentials::None);
        for other in ["", "Bearer", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(credentials(&headers(&[other])), Credentials::Other, "{other}");
        }
        assert_eq!(credentials(&headers(&["Bearer abc", "Bearer abc"])), Credentials::Other);
    }

    #[test]
    fn behind_a_proxy_the_last_forwarded_address_is_the_callers() {
        let peer: IpAddr = "127.0.0.1".parse().unwrap();
        let mut forwarded = HeaderMap::new();
        forwarded.append("x-forwarded-for", HeaderValue::from_static("6.6.6.6"));
        forwarded.append("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 10.0.0.7"));
        let address = |is_behind_proxy: bool, headers: &HeaderMap| {
            let config = Config { is_behind_proxy, ..Config::default() };
            caller_address(&gateway_with(config), headers, peer).to_string()
        };
        assert_eq!(address(false, &forwarded), "127.0.0.1");
        assert_eq!(address(true, &forwarded), "10.0.0.7");
        assert_eq!(address(true, &HeaderMap::new()), "127.0.0.1");
        let garbled = HeaderMap::from_iter([(
            axum::http::HeaderName::from_static("x-forwarded-for"),
            HeaderValue::from_static("10.0.0.7, unknown"),
        )]);
        assert_eq!(address(true, &garbled), "127.0.0.1");
    }
}
