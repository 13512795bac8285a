//! Checks Host and Origin of every request, parsed and compared by name.
//!
//! A web page can make its own name resolve to 127.0.0.1, but it cannot change the Host and Origin that the browser
//! then sends: these two tell it from a local client. Where callers need a token any Host is accepted, because a page
//! does not have a token.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::Gateway;
use crate::status::RequestError;

/// A value of `--allowed-host` or `--allowed-origin` that is not a host or an origin.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct AllowedNameError {
    text: String,
    expected: &'static str,
}

/// An allowed host. Without a port it allows every port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    host: String,
    port: Option<u16>,
}

impl FromStr for AllowedHost {
    type Err = AllowedNameError;

    fn from_str(text: &str) -> Result<Self, AllowedNameError> {
        let invalid = || AllowedNameError {
            text: text.to_owned(),
            expected: "a host name such as dev.example or dev.example:8080",
        };
        let authority = Authority::from_str(text).map_err(|_| invalid())?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(invalid());
        }
        Ok(Self { host: normal_host(authority.host()), port: authority.port_u16() })
    }
}

/// A web origin: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigin(String);

impl FromStr for AllowedOrigin {
    type Err = AllowedNameError;

    fn from_str(text: &str) -> Result<Self, AllowedNameError> {
        let invalid =
            || AllowedNameError { text: text.to_owned(), expected: "an origin such as https://app.example" };
        let (scheme, authority) = split_origin(text).ok_or_else(invalid)?;
        Ok(Self(format!("{}://{}", scheme.to_ascii_lowercase(), authority.as_str().to_ascii_lowercase())))
    }
}

/// The first step of every request.
pub(crate) async fn admit(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    if !is_host_allowed(&gateway, request.headers()) {
        return RequestError::ForbiddenHost.into();
    }
    let origin = match request.headers().get(header::ORIGIN) {
        None => return next.run(request).await,
        Some(origin) => origin.clone(),
    };
    match judge_origin(&gateway, &origin) {
        OriginVerdict::Forbidden => RequestError::ForbiddenOrigin.into(),
        OriginVerdict::Loopback => next.run(request).await,
        OriginVerdict::Configured if request.method() == Method::OPTIONS => preflight(&origin),
        OriginVerdict::Configured => share_with(&origin, next.run(request).await),
    }
}

fn is_host_allowed(gateway: &Gateway, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    if gateway.wants_tokens() || is_loopback_name(authority.host()) {
        return true;
    }
    let host = normal_host(authority.host());
    gateway.config.allowed_hosts.iter().any(|allowed| {
        allowed.host == host && (allowed.port.is_none() || allowed.port == authority.port_u16())
    })
}

#[derive(Debug, PartialEq, Eq)]
enum OriginVerdict {
    Forbidden,
    /// A local tool: may call, but gets no CORS headers, so that pages cannot read the response.
    Loopback,
    Configured,
}

fn judge_origin(gateway: &Gateway, origin: &HeaderValue) -> OriginVerdict {
    let Some(text) = origin.to_str().ok() else { return OriginVerdict::Forbidden };
    let Ok(parsed) = text.parse::<AllowedOrigin>() else { return OriginVerdict::Forbidden };
    if gateway.config.allowed_origins.contains(&parsed) {
        return OriginVerdict::Configured;
    }
    match split_origin(text) {
        Some(("http" | "https", authority)) if is_loopback_name(authority.host()) => OriginVerdict::Loopback,
        _ => OriginVerdict::Forbidden,
    }
}

/// `scheme://authority` and nothing after it.
fn split_origin(text: &str) -> Option<(&str, Authority)> {
    let (scheme, authority) = text.split_once("://")?;
    let authority = Authority::from_str(authority).ok()?;
    let is_plain = !scheme.is_empty() && !authority.as_str().contains('@');
    is_plain.then_some((scheme, authority))
}

fn normal_host(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn is_loopback_name(host: &str) -> bool {
    if host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case("localhost.") {
        return true;
    }
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn preflight(origin: &HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "accept, authorization, content-type, last-event-id, mcp-protocol-version, mcp-session-id, \
             ringfence-instance, ringfence-workspace",
        ),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    share_with(origin, response)
}

fn share_with(origin: &HeaderValue, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("mcp-session-id"));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::test_gateway::gateway_with;

    fn gateway(hosts: &[&str], origins: &[&str]) -> Arc<Gateway> {
        gateway_with(Config {
            allowed_hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            allowed_origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(),
            ..Config::default()
        })
    }

    fn host_allowed(gateway: &Gateway, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        is_host_allowed(gateway, &headers)
    }

    #[test]
    fn hosts_are_compared_by_name_and_not_by_prefix() {
        let gateway = gateway(&["dev.example", "other.example:8080"], &[]);
        for good in [
            "localhost",
            "LOCALHOST:3000",
            "127.0.0.1:1",
            "[::1]:5",
            "127.9.9.9",
            "Dev.Example:7",
            "other.example:8080",
        ] {
            assert!(host_allowed(&gateway, good), "{good}");
        }
        for bad in [
            "localhost.evil.com",
            "evil.com",
            "127.0.0.1.evil.com",
            "localhost@evil.com",
            "evil.com:3000",
            "dev.example.evil.com",
            "other.example:8081",
            "other.example",
            "0.0.0.0",
            "10.0.0.1",
            "",
            "[::2]",
        ] {
            assert!(!host_allowed(&gateway, bad), "{bad}");
        }
        assert!(!is_host_allowed(&gateway, &HeaderMap::new()), "no Host at all");
    }

    #[test]
    fn origins_are_compared_whole() {
        let gateway = gateway(&[], &["https://app.example", "vscode-webview://abc"]);
        let judge = |origin: &str| judge_origin(&gateway, &HeaderValue::from_str(origin).unwrap());
        assert_eq!(judge("https://app.example"), OriginVerdict::Configured);
        assert_eq!(judge("vscode-webview://abc"), OriginVerdict::Configured);
        assert_eq!(judge("http://localhost:5173"), OriginVerdict::Loopback);
        assert_eq!(judge("http://[::1]"), OriginVerdict::Loopback);
        for bad in [
            "null",
            "",
            "http://localhost.evil.com",
            "https://app.example.evil.com",
            "http://app.example",
            "https://app.example:444",
            "ftp://localhost",
            "http://localhost@evil.com",
            "https://app.example/path",
        ] {
            assert_eq!(judge(bad), OriginVerdict::Forbidden, "{bad}");
        }
    }
}
