//! The operator's paths: list, show, name, stop and prune sessions. They require the operator's token.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use session::{SessionQuery, Sessions, context_of, update_context_of};
use subtle::ConstantTimeEq;

use crate::Gateway;
use crate::session_endpoints::read_context_update;
use crate::status::RequestError;

/// More than any request to prune is long.
const LONGEST_PRUNING: usize = 1024;

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    answer_operator(&gateway, &headers, async || {
        let query = read_query(query.as_deref().unwrap_or_default())?;
        let sessions = on_blocking_thread(&gateway, move |sessions| sessions.overview(&query)).await;
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

pub(crate) async fn context(
    State(gateway): State<Arc<Gateway>>,
    Path(handle): Path<String>,
    headers: HeaderMap,
) -> Response {
    answer_operator(&gateway, &headers, async || {
        context_of(&gateway.sessions, &handle).map(|report| json!(report)).ok_or(RequestError::NoSuchSession)
    })
    .await
}

pub(crate) async fn change_context(
    State(gateway): State<Arc<Gateway>>,
    Path(handle): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    answer_operator(&gateway, &headers, async || {
        let update = read_context_update(request).await?;
        let changed = update_context_of(&gateway.sessions, &handle, &update).await;
        Ok(json!(changed.ok_or(RequestError::NoSuchSession)??))
    })
    .await
}

/// Reads `search=WORDS` and any number of `label=K` and `label=K=V`.
fn read_query(text: &str) -> Result<SessionQuery, RequestError> {
    let mut query = SessionQuery::default();
    for part in text.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decoded(value).ok_or_else(|| RequestError::BadQuery(part.to_owned()))?;
        match name {
            "search" => query.search = Some(value),
            "label" => query = query.with_label(&value),
            _ => return Err(RequestError::BadQuery(name.to_owned())),
        }
    }
    Ok(query)
}

/// A value of a query as it was before it was encoded.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let [byte] = wire::from_hex(std::str::from_utf8(&digits).ok()?)?;
                byte
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_anything_else_is_refused() {
        let query = read_query("search=a%20b+c&label=ticket%3DAB-1&label=%C3%A4").unwrap();
        assert_eq!(query.search.as_deref(), Some("a b c"));
        let labels = [("ticket".to_owned(), Some("AB-1".to_owned())), ("\u{e4}".to_owned(), None)];
        assert_eq!(query.labels, labels);
        assert_eq!(read_query("").unwrap(), SessionQuery::default());
        for bad in ["serch=a", "label=%", "label=%4", "search=%ff", "search=%zz"] {
            assert!(matches!(read_query(bad), Err(RequestError::BadQuery(_))), "{bad}");
        }
    }
}
