//! A response without success: what of it matters to a caller.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::Value;
use wire::{ErrorReply, Id, Message, compact_newlines};

use crate::http::answer::read_refusal;
use crate::http::error_answers;

/// The longest time that a server can make us wait before we try once more.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(10);
/// What a server of the newer era answers to a revision that it does not speak.
const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
const METHOD_NOT_FOUND: i64 = wire::code::METHOD_NOT_FOUND as i64;

#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    /// What `WWW-Authenticate` says about the reason.
    challenge: Option<String>,
    body: Bytes,
    /// The error in the body, if it is one of JSON-RPC.
    error: Option<Value>,
}

impl Refusal {
    pub(crate) async fn read(response: Response) -> Self {
        let status = response.status().as_u16();
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = challenge.and_then(challenge_error);
        let body = compact_newlines(read_refusal(response).await);
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

    /// Whether the server says that it no longer knows the session that the request named. It did not act on the
    /// request then. Besides the 404 of the protocol there is the 400 of many servers that were written after an
    /// early example of the official SDK.
    pub(crate) fn is_forgotten_session(&self, id: Option<&Id>) -> bool {
        match self.status {
            404 => {
                !(self.code() == Some(METHOD_NOT_FOUND) && id.is_some_and(|id| self.answer_to(id).is_some()))
            }
            400 => self.message().is_some_and(|message| message.contains("No valid session ID")),
            _ => false,
        }
    }

    /// Whether to knock again is of no use.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self.status, 401 | 403) || self.is_redirection()
    }

    pub(crate) fn to_reply(&self) -> ErrorReply {
        if self.is_redirection() {
            return error_answers::redirects_elsewhere(self.status);
        }
        let detail = self.challenge.as_deref().or(self.message());
        error_answers::refused(self.status, detail)
    }

    /// Whether a server of the newer era may mean by this that it does not know `initialize`. What is about who we are,
    /// or about being busy, says nothing of the era.
    pub(crate) fn may_be_of_newer_era(&self) -> bool {
        let is_about_the_request =
            (400..500).contains(&self.status) && !matches!(self.status, 401 | 403 | 408 | 429);
        is_about_the_request || self.supported_versions().is_some()
    }

    /// Whether the same request may succeed later.
    pub(crate) fn may_change(&self) -> bool {
        reqwest::StatusCode::from_u16(self.status).is_ok_and(crate::http::call::may_change)
    }

    /// The revisions that the server supports, if it says that it does not support ours.
    pub(crate) fn supported_versions(&self) -> Option<Vec<String>> {
        newer_versions(self.error.as_ref()?)
    }

    fn is_redirection(&self) -> bool {
        (300..400).contains(&self.status)
    }

    pub(crate) fn code(&self) -> Option<i64> {
        self.error.as_ref()?.get("code")?.as_i64()
    }

    fn message(&self) -> Option<&str> {
        self.error.as_ref()?.get("message")?.as_str()
    }
}

/// The revisions that a JSON-RPC error names in place of the one that was asked for.
pub(crate) fn newer_versions(error: &Value) -> Option<Vec<String>> {
    let supported = error.pointer("/data/supported").and_then(Value::as_array);
    let is_known_code = error.get("code").and_then(Value::as_i64) == Some(UNSUPPORTED_PROTOCOL_VERSION);
    let versions: Vec<String> =
        supported.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let are_newer =
        !versions.is_empty() && versions.iter().all(|version| wire::names_modern_version(version));
    (is_known_code || are_newer).then_some(versions)
}

/// How long the server wants us to wait, if it says so and we are willing to.
pub(crate) fn acceptable_wait(response: &Response) -> Option<Duration> {
    if !matches!(response.status().as_u16(), 429 | 503) {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= LONGEST_RETRY_AFTER)
}

/// The description of the error in a challenge, or else its code.
fn challenge_error(challenge: &str) -> Option<String> {
    let quoted = |key: &str| {
        let (_, after) = challenge.split_once(key)?;
        let (text, _) = after.split_once('"')?;
        Some(error_answers::quotable(text))
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
            newer_versions(&error(-32022, json!(["2026-07-28"]))),
            Some(vec!["2026-07-28".to_owned()])
        );
        assert_eq!(
            newer_versions(&error(-32004, json!(["2026-07-28"]))),
            Some(vec!["2026-07-28".to_owned()])
        );
        assert_eq!(newer_versions(&error(-32602, json!(["2025-06-18"]))), None);
        assert_eq!(newer_versions(&json!({ "code": -32022 })), Some(vec![]));
        assert_eq!(newer_versions(&json!({ "code": -32600 })), None);
    }
}
