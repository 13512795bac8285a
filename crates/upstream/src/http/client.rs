//! The HTTP client of a connection: builds requests with their headers and sends them.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Request, Url, redirect};

use crate::http::certificates::{self, tls};
use crate::http::endpoint::Endpoint;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Node closes an idle connection after five seconds. Closing it earlier avoids most requests that are sent into a
/// connection that is just being closed, of which it is unknown whether they were received.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
const MAX_IDLE_CONNECTIONS: usize = 32;
/// Detects that the other machine is gone while a stream is quiet for hours.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Redirects within the same origin that are followed.
const MAX_REDIRECTS: usize = 3;

/// The server's session, which every request names.
#[derive(Debug, Default, Clone)]
pub(crate) struct Session {
    /// Counts the handshakes, to tell a session from its successor.
    pub(crate) number: u64,
    pub(crate) id: Option<HeaderValue>,
    pub(crate) version: Option<HeaderValue>,
}

/// Why an endpoint cannot be used. The message holds no secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("the URL is not valid: {0}")]
    Url(String),
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    #[error("{0:?} is not the name of a header")]
    HeaderName(String),
    #[error("the value of the header {0} has characters that a header cannot hold")]
    HeaderValue(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

pub(crate) struct Http {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Http {
    pub(crate) fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let url = Url::parse(&endpoint.url).map_err(|error| EndpointError::Url(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointError::Scheme);
        }
        let headers = secret_headers(endpoint.headers)?;
        let mut builder = Client::builder()
            .http1_only()
            .tcp_nodelay(true)
            .tcp_keepalive(KEEP_ALIVE)
            .connect_timeout(endpoint.connect_timeout)
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            // The callers retry, where they know that it is safe.
            .retry(reqwest::retry::never())
            .referer(false)
            .redirect(redirect::Policy::custom(same_origin_only))
            .user_agent(concat!("ringfence/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            // A proxy that the environment names would see what plain HTTP carries, and reach another machine.
            builder = builder.no_proxy();
        }
        builder = builder.tls_backend_preconfigured(tls()?);
        let client = builder.build().map_err(|error| EndpointError::Client(explain(&error)))?;
        Ok(Self { client, url, headers })
    }

    pub(crate) fn post(&self, session: &Session, line: Bytes) -> Request {
        let mut request = self.request(reqwest::Method::POST, session);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        *request.body_mut() = Some(line.into());
        request
    }

    /// Asks for a stream: resumes one after an event, or opens the one that belongs to no call.
    pub(crate) fn get(&self, session: &Session, last_event: Option<&str>) -> Request {
        let mut request = self.request(reqwest::Method::GET, session);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        request
    }

    pub(crate) fn delete(&self, session: &Session) -> Request {
        self.request(reqwest::Method::DELETE, session)
    }

    pub(crate) fn execute(
        &self,
        request: Request,
    ) -> impl Future<Output = reqwest::Result<reqwest::Response>> + use<> {
        self.client.execute(request)
    }

    fn request(&self, method: reqwest::Method, session: &Session) -> Request {
        let mut request = Request::new(method, self.url.clone());
        let headers = request.headers_mut();
        // The configured headers come first, so that the protocol's own override them.
        headers.clone_from(&self.headers);
        if let Some(id) = &session.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(version) = &session.version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        request
    }
}

/// The session id that a response carries.
pub(crate) fn session_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers
        .get(SESSION_ID)
        .filter(|id| !id.is_empty() && id.as_bytes().iter().all(u8::is_ascii_graphic))
        .cloned()
}

/// The root cause of an error below HTTP. Leaves out the URL, which may hold a key.
pub(crate) fn explain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    loop {
        if let Some(words) = certificates::about(cause) {
            return words.to_owned();
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => break,
        }
    }
    if std::ptr::addr_eq(cause, error) {
        return if error.is_timeout() {
            "it took too long".to_owned()
        } else {
            "the request failed".to_owned()
        };
    }
    cause.to_string()
}

fn secret_headers(pairs: Vec<(String, String)>) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::with_capacity(pairs.len() + 4);
    for (name, value) in pairs {
        let parsed: HeaderName = name.parse().map_err(|_| EndpointError::HeaderName(name.clone()))?;
        let mut value =
            HeaderValue::from_bytes(value.as_bytes()).map_err(|_| EndpointError::HeaderValue(name))?;
        value.set_sensitive(true);
        headers.append(parsed, value);
    }
    Ok(headers)
}

/// Follows only redirects to the same origin, because the headers are secrets of this server, and only those that
/// keep the method.
fn same_origin_only(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
    let keeps_origin = attempt.previous().iter().all(|url| url.origin() == attempt.url().origin());
    if keeps_method && keeps_origin && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// Returns true if the URL leads to this machine itself: an address of 127.0.0.0/8, `::1` or `localhost`.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
