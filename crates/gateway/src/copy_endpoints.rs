//! The endpoints for the workspace of a session: what changed there, taking it over, discarding it.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Extension, Path, RawQuery, Request, State};
use axum::response::Response;
use identity::Principal;
use serde::Deserialize;
use serde_json::{Value, json};
use session::{ApplyRequest, CopyError, Session, SessionCopy};

use crate::Gateway;
use crate::mcp::read_body;
use crate::session_endpoints::{answer_json, find};
use crate::status::RequestError;

/// Longest list of paths.
const MAX_BODY: usize = 256 * 1024;

/// The body of `POST /session/{id}/apply`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Selection {
    only: Vec<PathBuf>,
    include_executables: bool,
    include_ignored: bool,
    dry_run: bool,
    /// The fingerprint of the changes that were looked at. Others are refused.
    reviewed: Option<String>,
}

pub(crate) async fn changes(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    // The text of the changes only if it is asked for.
    let with_diff = query.is_some_and(|query| query.split('&').any(|part| part == "diff=true"));
    let look = move |_: &Arc<Session>, copy: &SessionCopy| copy.changes(with_diff);
    answer(find(&gateway, principal, &id), look).await
}

pub(crate) async fn apply(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let selection = match read_selection(request).await {
        Ok(selection) => selection,
        Err(error) => return error.into(),
    };
    let request = ApplyRequest {
        only: selection.only,
        include_executables: selection.include_executables,
        include_ignored: selection.include_ignored,
        dry_run: selection.dry_run,
        reviewed: selection.reviewed,
        ..ApplyRequest::default()
    };
    let take_over =
        move |_: &Arc<Session>, copy: &SessionCopy| copy.apply(&request).map(|applied| json!(applied));
    answer(find(&gateway, principal, &id), take_over).await
}

async fn read_selection(request: Request) -> Result<Selection, RequestError> {
    let body = read_body(request.into_body(), MAX_BODY).await?;
    if body.is_empty() {
        return Ok(Selection::default());
    }
    serde_json::from_slice(&body).map_err(|error| RequestError::BadSelection(error.to_string()))
}

pub(crate) async fn discard(
    State(gateway): State<Arc<Gateway>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    let discard = |session: &Arc<Session>, copy: &SessionCopy| {
        copy.discard(session).map(|name| json!({ "discarded": name }))
    };
    answer(find(&gateway, principal, &id), discard).await
}

/// Answers with what was done to the files of a session, on a thread that serves no requests.
async fn answer(
    session: Result<Arc<Session>, RequestError>,
    act: impl FnOnce(&Arc<Session>, &SessionCopy) -> Result<Value, CopyError> + Send + 'static,
) -> Response {
    let done = async {
        let session = session?;
        let runtime = tokio::runtime::Handle::current();
        let acted = tokio::task::spawn_blocking(move || {
            let _entered = runtime.enter();
            act(&session, &SessionCopy::of(&session)?)
        });
        Ok::<Value, RequestError>(acted.await.map_err(|_| RequestError::BodyUnreadable)??)
    };
    match done.await {
        Ok(report) => answer_json(&report),
        Err(error) => error.into(),
    }
}
