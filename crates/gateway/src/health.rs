//! `GET /health` and `GET /ready`: whether the gateway lives, whether it accepts new work, and its counters. Where
//! callers need tokens, only the operator sees the counters.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};
use session::Condition;

use crate::Gateway;
use crate::admin::is_operator;

/// `GET /health` answers `OK`; `GET /health?verbose` answers like `/ready`.
pub(crate) async fn health(
    State(gateway): State<Arc<Gateway>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let is_verbose = query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    if is_verbose { report(&gateway, &headers) } else { Response::new(Body::from("OK")) }
}

pub(crate) async fn ready(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    report(&gateway, &headers)
}

fn report(gateway: &Gateway, headers: &HeaderMap) -> Response {
    let sessions = &gateway.sessions;
    let is_ready = !sessions.is_closing();
    let mut report = json!({ "service": "ringfence", "live": true, "ready": is_ready });
    if !gateway.wants_tokens() || is_operator(gateway, headers) {
        let counters = sessions.counters().list().into_iter();
        let counters: Map<String, Value> =
            counters.map(|(name, value)| (name.to_owned(), value.into())).collect();
        report["version"] = env!("CARGO_PKG_VERSION").into();
        report["upstream"] = sessions.name().into();
        report["lifecycle"] = sessions.lifecycle().into();
        report["servers"] = sessions.servers().into();
        report["sessions"] = sessions.count().into();
        report["stored_sessions"] = sessions.count_dormant().into();
        report["store"] = match sessions.store_condition() {
            None => "none".into(),
            Some(Condition::Healthy) => "healthy".into(),
            Some(Condition::Degraded(reason)) => json!({ "degraded": reason }),
        };
        report["counters"] = counters.into();
    }
    let mut response = Response::new(Body::from(report.to_string()));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
