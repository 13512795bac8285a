//! An HTTP response with an error status, and what it means for the session and the protocol era.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use wire::{ErrorReply, Id, Message, compact_newlines};

use crate::http::error_replies;
use crate::http::response_body::read_error_body;

/// The longest `Retry-After` that is waited for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(10);
/// The error of a modern server for a revision that it does not speak.
const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
const METHOD_NOT_FOUND: i64 = wire::code::METHOD_NOT_FOUND as i64;

#[derive(Debug)]
pub(crate) struct ErrorResponse {
    status: StatusCode,
    /// The reason in `WWW-Authenticate`.
    challenge: Option<String>,
    body: Bytes,
    /// The JSON-RPC error in the body, if there is one.
    error: Option<Value>,
}

impl ErrorResponse {
    pub(crate) async fn read(response: Response) -> Self {
        let status = response.status();
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = challenge.and_then(challenge_error);
        let body = compact_newlines(read_error_body(response).await);
        let error = serde_json::from_slice::<Value>(&body)
            .ok()
            .and_then(|mut body| body.get_mut("error").map(Value::take).filter(Value::is_object));
        Self { status, challenge, body, error }
    }

    /// The whole body, if it is an answer to the request with this id.
    pub(crate) fn answer_to(&self, id: &Id) -> Option<Bytes> {
        match Message::parse(self.body.clone()) {
            Ok(Message::Response(response)) if response.id == *id => Some(self.body.clone()),
            _ => None,
        }
    }

    /// Returns true if the server no longer knows the session of the request, and so did not act on it. Besides the
    /// 404 of the protocol there is the 400 of many servers that follow an early example of the official SDK.
    pub(crate) fn is_forgotten_session(&self, id: Option<&Id>) -> bool {
        match self.status.as_u16() {
            404 => {
                !(self.code() == Some(METHOD_NOT_FOUND) && id.is_some_and(|id| self.answer_to(id).is_some()))
            }
            400 => self.message().is_some_and(|message| message.contains("No valid session ID")),
            _ => false,
        }
    }

    /// Returns true if trying again is of no use.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self.status.as_u16(), 401 | 403) || self.status.is_redirection()
    }

    pub(crate) fn to_reply(&self) -> ErrorReply {
        if self.status.is_redirection() {
            return error_replies::redirects_elsewhere(self.status.as_u16());
        }
        let detail = self.challenge.as_deref().or(self.message());
        error_replies::refused(self.status.as_u16(), detail)
    }

    /// Returns true if a modern server may mean by this that it does not know `initialize`. Errors of authorization,
    /// and of a busy server, say nothing about the era.
    pub(crate) fn may_be_of_modern_era(&self) -> bool {
        let is_about_the_request =
            self.status.is_client_error() && !matches!(self.status.as_u16(), 401 | 403 | 408 | 429);
        is_about_the_request || self.supported_versions().is_some()
    }

    /// See [`may_change`].
    pub(crate) fn may_change(&self) -> bool {
        may_change(self.status)
    }

    /// The revisions that the server supports, if it does not support ours.
    pub(crate) fn supported_versions(&self) -> Option<Vec<String>> {
        modern_versions(self.error.as_ref()?)
    }

    pub(crate) fn code(&self) -> Option<i64> {
        self.error.as_ref()?.get("code")?.as_i64()
    }

    fn message(&self) -> Option<&str> {
        self.error.as_ref()?.get("message")?.as_str()
    }
}

/// Returns true if the same request may succeed later.
pub(crate) fn may_change(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429)
}

/// The revisions that the JSON-RPC error of a modern server lists as supported.
pub(crate) fn modern_versions(error: &Value) -> Option<Vec<String>> {
    let supported = error.pointer("/data/supported").and_then(Value::as_array);
    let is_known_code = error.get("code").and_then(Value::as_i64) == Some(UNSUPPORTED_PROTOCOL_VERSION);
    let versions: Vec<String> =
        supported.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let are_newer =
        !versions.is_empty() && versions.iter().all(|version| wire::names_modern_version(version));
    (is_known_code || are_newer).then_some(versions)
}

/// The `Retry-After` of a busy server, if it is short enough to wait for.
pub(crate) fn acceptable_wait(response: &Response) -> Option<Duration> {
    if !matches!(response.status().as_u16(), 429 | 503) {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= LONGEST_RETRY_AFTER)
}

/// The description of the error in a challenge, or its code.
fn challenge_error(challenge: &str) -> Option<String> {
    let quoted = |key: &str| {
        let (_, after) = challenge.split_once(key)?;
        let (text, _) = after.split_once('"')?;
        Some(error_replies::quotable(text))
    };
    quoted("error_description=\"").or_else(|| quoted("error=\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_challenge_is_reduced_to_its_error() {
        let challenge =
            r#"Bearer realm="x", error="invalid_token", error_description="It has expired", scope="a""#;
        assert_eq!(challenge_error(challenge).as_deref(), Some("It has expired"));
        assert_eq!(challenge_error(r#"Bearer error="invalid_token""#).as_deref(), Some("invalid_token"));
        assert_eq!(challenge_error("Bearer"), None);
    }

    #[test]
    fn only_newer_revisions_make_a_newer_server() {
        let error = |code: i64, supported: Value| json!({ "code": code, "data": { "supported": supported } });
        assert_eq!(
            modern_versions(&error(-32022, json!(["2026-07-28"]))),
            Some(vec!["2026-07-28".to_owned()])
        );
        assert_eq!(
            modern_versions(&error(-32004, json!(["2026-07-28"]))),
            Some(vec!["2026-07-28".to_owned()])
        );
        assert_eq!(modern_versions(&error(-32602, json!(["2025-06-18"]))), None);
        assert_eq!(modern_versions(&json!({ "code": -32022 })), Some(vec![]));
        assert_eq!(modern_versions(&json!({ "code": -32600 })), None);
    }
}
