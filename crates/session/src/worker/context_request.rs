//! What the built-in server asks about its session: what is said about it, after a change if it asks for one.

use bytes::Bytes;
use serde_json::Value;
use wire::{ErrorReply, Request, code};

use crate::client::{Client, ContextReport, update_context};
use crate::messages;
use crate::session_context::{Author, ContextUpdate};

/// Answers when a change is on the disk, so that the agent is told of no more than a restart leaves.
pub(super) async fn answer_about_context(client: &Client, request: &Request) -> Bytes {
    match use_context(client, request).await {
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
