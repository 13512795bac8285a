//! Whether the gateway lives, whether it takes new work, and what it has counted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::Gateway;

/// `GET /health` answers `OK`; `GET /health?verbose` the same as `/ready`.
pub(crate) async fn health(State(gateway): State<Arc<Gateway>>, RawQuery(query): RawQuery) -> Response {
    let is_verbose = query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    if is_verbose { report(&gateway) } else { Response::new(Body::from("OK")) }
}

pub(crate) async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    report(&gateway)
}

fn report(gateway: &Gateway) -> Response {
    let sessions = &gateway.sessions;
    let is_ready = !sessions.is_closing();
    let counters: Map<String, Value> =
        sessions.counters().list().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let report = json!({
        "service": "ringfence",
        "version": env!("CARGO_PKG_VERSION"),
        "live": true,
        "ready": is_ready,
        "upstream": sessions.upstream().name,
        "lifecycle": sessions.upstream().lifecycle.as_str(),
        "sessions": sessions.count(),
        "counters": counters,
    });
    let mut response = Response::new(Body::from(report.to_string()));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
