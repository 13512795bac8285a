//! The operator's paths: list, show, stop and prune sessions. They require the operator's token.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use session::Sessions;
use subtle::ConstantTimeEq;

use crate::Gateway;
use crate::status::RequestError;

/// More than any request to prune is long.
const LONGEST_PRUNING: usize = 1024;

pub(crate) async fn list(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    answer_operator(&gateway, &headers, async || {
        let sessions = on_blocking_thread(&gateway, Sessions::overview).await;
        Ok(json!({ "sessions": sessions }))
    })
    .await
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(handle): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer_operator(&gateway, &headers, async || {
        let found = on_blocking_thread(&gateway, move |sessions| sessions.overview_of(&handle));
        found.await.flatten().map(|overview| json!(overview)).ok_or(RequestError::NoSuchSession)
    })
    .await
}

pub(crate) async fn stop(
    State(gateway): State<Arc<Gateway>>,
    Path(handle): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer_operator(&gateway, &headers, async || {
        gateway.sessions.stop(&handle).await.map_err(|_| RequestError::NoSuchSession)?;
        Ok(json!({ "stopped": handle }))
    })
    .await
}

/// Which stored sessions to forget.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Pruning {
    unused_for_seconds: u64,
    /// Only say which.
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn prune(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, body: Body) -> Response {
    answer_operator(&gateway, &headers, async || {
        let body =
            axum::body::to_bytes(body, LONGEST_PRUNING).await.map_err(|_| RequestError::BodyUnreadable)?;
        let pruning: Pruning =
            serde_json::from_slice(&body).map_err(|error| RequestError::BadPruning(error.to_string()))?;
        let unused_for = Duration::from_secs(pruning.unused_for_seconds);
        let pruned = gateway.sessions.prune(unused_for, pruning.dry_run).await;
        Ok(json!({ "pruned": pruned, "dryRun": pruning.dry_run }))
    })
    .await
}

/// Returns true if the request carries the operator's token.
pub(crate) fn is_operator(gateway: &Gateway, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
    match &gateway.config.admin_token {
        Some(token) => bool::from(token.as_bytes().ct_eq(given.as_bytes())),
        None => false,
    }
}

pub(crate) async fn answer_operator(
    gateway: &Gateway,
    headers: &HeaderMap,
    answer: impl AsyncFnOnce() -> Result<serde_json::Value, RequestError>,
) -> Response {
    if !is_operator(gateway, headers) {
        return RequestError::NotOperator.into();
    }
    match answer().await {
        Ok(value) => {
            let mut response = Response::new(Body::from(format!("{value}\n")));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => error.into(),
    }
}

/// Reads an overview, and with it much of `/proc`, on a thread that serves no requests.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    gateway: &Gateway,
    look: impl FnOnce(&Sessions) -> T + Send + 'static,
) -> Option<T> {
    let sessions = Arc::clone(&gateway.sessions);
    tokio::task::spawn_blocking(move || look(&sessions)).await.ok()
}
