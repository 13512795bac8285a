//! What the built-in server asks about its session: what is said about it, and in which copy of the project it works.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use staging::{ApplyError, ApplyRequest, WorkspaceCopy};
use wire::{ErrorReply, Request, code, method};

use crate::client::{Client, ContextReport, update_context};
use crate::gateway_context::GatewayContext;
use crate::messages;
use crate::session::{CopyError, SessionCopy};
use crate::session_context::{Author, ContextUpdate};

/// What the agent wants of its workspace.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WorkspaceRequest {
    apply: Option<Selection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Selection {
    only: Vec<PathBuf>,
    dry_run: bool,
}

/// Answers when a change is on the disk, so that the agent is told of no more than a restart leaves.
pub(super) async fn answer_own_request(
    context: &GatewayContext,
    client: &Arc<Client>,
    request: &Request,
) -> Bytes {
    let answer = match request.method.as_str() {
        method::SESSION_WORKSPACE => use_workspace(context, client, request).await,
        _ => use_context(client, request).await,
    };
    match answer {
        Ok(report) => messages::result(&request.id, &report.to_string()),
        Err(reason) => ErrorReply::new(code::INVALID_PARAMS, reason).to_message(Some(&request.id)),
    }
}

async fn use_context(client: &Client, request: &Request) -> Result<Value, String> {
    if let Some(params) = request.params_text() {
        let update: ContextUpdate = serde_json::from_str(params).map_err(|error| error.to_string())?;
        if update != ContextUpdate::default() {
            update_context(client, &update, Author::Agent).map_err(|error| error.to_string())?.await;
        }
    }
    serde_json::to_value(ContextReport::of(client)).map_err(|error| error.to_string())
}

/// Tells the agent its copy and the others of the project, or takes its changes over if the operator lets it.
async fn use_workspace(
    context: &GatewayContext,
    client: &Arc<Client>,
    request: &Request,
) -> Result<Value, String> {
    let wish: WorkspaceRequest = match request.params_text() {
        Some(params) => serde_json::from_str(params).map_err(|error| error.to_string())?,
        None => WorkspaceRequest::default(),
    };
    let (rules, client) = (Arc::clone(&context.rules), Arc::clone(client));
    let look = move || {
        let scope = client.scope().ok_or("the session has no workspace yet")?;
        if let Some(selection) = wish.apply {
            let copy = SessionCopy::in_scope(&rules, &scope, client.handle());
            return copy.and_then(|copy| apply(&copy, selection)).map_err(|error| in_words(&error));
        }
        let Some(copies) = &rules.copies else { return Ok(json!({ "others": [] })) };
        let own = copies.of(&scope);
        let project = scope.primary().unwrap_or(std::path::Path::new(""));
        let principal = client.record().key.principal.clone();
        let mut others = copies.of_project(project, &principal);
        others.retain(|other| own.as_ref().is_none_or(|own| own.record().id != other.record().id));
        let others: Vec<Value> = others.iter().map(described).collect();
        Ok(json!({ "own": own.as_ref().map(described), "others": others }))
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|error| Err(error.to_string()))
}

fn described(copy: &WorkspaceCopy) -> Value {
    json!({ "name": copy.name(), "method": copy.record().method, "in_use": copy.user().is_some() })
}

fn apply(copy: &SessionCopy, selection: Selection) -> Result<Value, CopyError> {
    let Selection { only, dry_run } = selection;
    let applied = copy.apply(&ApplyRequest { only, dry_run, ..ApplyRequest::default() })?;
    Ok(json!(applied))
}

/// The error with its hint, as the built-in server splits them.
fn in_words(error: &CopyError) -> String {
    let hint = match error {
        CopyError::Apply(error) => ApplyError::hint(error),
        CopyError::Staging(error) => error.hint(),
        CopyError::NoCopy | CopyError::NotAllowed => None,
    };
    hint.map_or_else(|| error.to_string(), |hint| format!("{error}; hint: {hint}"))
}
