//! For the operator: sessions to see and to stop. Whoever asks must know the token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde_json::json;
use session::{EndReason, Sessions};
use subtle::ConstantTimeEq;

use crate::Gateway;
use crate::status::Problem;

pub(crate) async fn list(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    answer(&gateway, &headers, async || {
        let sessions = on_a_thread(&gateway, Sessions::overview).await;
        Ok(json!({ "sessions": sessions }))
    })
    .await
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(handle): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer(&gateway, &headers, async || {
        let found = on_a_thread(&gateway, move |sessions| {
            sessions.find_by_handle(&handle).map(|session| session.overview())
        });
        found.await.flatten().map(|overview| json!(overview)).ok_or(Problem::NoSuchSession)
    })
    .await
}

pub(crate) async fn stop(
    State(gateway): State<Arc<Gateway>>,
    Path(handle): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer(&gateway, &headers, async || {
        let session = gateway.sessions.find_by_handle(&handle).ok_or(Problem::NoSuchSession)?;
        let ended = gateway.sessions.end(session.key(), EndReason::Stopped).await;
        ended.map_err(|_| Problem::NoSuchSession)?;
        Ok(json!({ "stopped": handle }))
    })
    .await
}

/// Whether the caller knows the operator's token.
pub(crate) fn is_operator(gateway: &Gateway, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
    match &gateway.config.admin_token {
        Some(token) => bool::from(token.as_bytes().ct_eq(given.as_bytes())),
        None => false,
    }
}

async fn answer(
    gateway: &Gateway,
    headers: &HeaderMap,
    answer: impl AsyncFnOnce() -> Result<serde_json::Value, Problem>,
) -> Response {
    if !is_operator(gateway, headers) {
        return Problem::NotOperator.about(None).into();
    }
    match answer().await {
        Ok(value) => {
            let mut response = Response::new(Body::from(format!("{value}\n")));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(problem) => problem.about(None).into(),
    }
}

/// What reads much of `/proc` does not belong on a thread that serves others.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    gateway: &Gateway,
    look: impl FnOnce(&Sessions) -> T + Send + 'static,
) -> Option<T> {
    let sessions = Arc::clone(&gateway.sessions);
    tokio::task::spawn_blocking(move || look(&sessions)).await.ok()
}
