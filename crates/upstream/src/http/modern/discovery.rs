//! Finds out with `server/discover` whether a server that refused `initialize` is a modern one, and makes the answer to
//! `initialize` from it.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wire::{Id, Outcome};

use super::envelope::{Envelope, VERSION};
use super::exchange::{ExchangeError, Outgoing};
use super::headers;
use super::state::{Modern, own_id, session};
use super::subscriptions::ChangeNotifications;
use crate::http::client::{Http, Session};
use crate::http::conversation::Conversation;
use crate::http::error_response::modern_versions;

const DISCOVER: &str = "server/discover";
/// For a server that does not name itself; only the caller's era requires a name.
const NAMELESS: &str = r#"{"name":"unnamed MCP server","version":"unknown"}"#;

/// The answer of a server to `server/discover`.
struct ServerDescription {
    supported_versions: Vec<String>,
    /// As JSON text, like the next two.
    capabilities_json: String,
    info_json: Option<String>,
    instructions_json: Option<String>,
    /// The part of the capabilities that is about change notifications.
    change_notifications: ChangeNotifications,
}

/// The result of a probe.
pub(crate) enum Discovery {
    /// The server speaks [`VERSION`]. `answer` is the answer to `initialize`.
    Modern {
        session: Session,
        modern: Arc<Modern>,
        answer: Bytes,
    },
    /// The server speaks only these modern versions.
    OtherVersions(Vec<String>),
    NotModern,
}

/// Sends `server/discover`. `initialize` is the caller's line, and `id` its id.
pub(crate) async fn probe(
    conversation: &Arc<Conversation>,
    http: &Http,
    initialize: &Bytes,
    id: &Id,
) -> Discovery {
    let envelope = Envelope::of(initialize);
    let session = session(1);
    let own_id = own_id("discover", 1);
    let Ok(text) = envelope.request(&own_id, DISCOVER, None, None, None) else {
        return Discovery::NotModern;
    };
    let outgoing = Outgoing { session: &session, id: &own_id, text, headers: headers::of_method(DISCOVER) };
    let response = match outgoing.exchange(conversation, http, None).await {
        Ok(response) => response,
        Err(ExchangeError::Refused(error)) => return Discovery::of_versions(error.supported_versions()),
        Err(ExchangeError::Failed(reply)) => {
            tracing::debug!(reason = reply.message, "the MCP server does not answer server/discover");
            return Discovery::NotModern;
        }
    };
    let server = match response.outcome() {
        Outcome::Result(result) => ServerDescription::read(result),
        Outcome::Error(error) => {
            let error = serde_json::from_str(error).ok();
            return Discovery::of_versions(error.and_then(|error| modern_versions(&error)));
        }
    };
    let Some(server) = server else { return Discovery::NotModern };
    if !server.supported_versions.iter().any(|version| version == VERSION) {
        let versions = server.supported_versions.into_iter();
        let modern: Vec<String> = versions.filter(|version| wire::names_modern_version(version)).collect();
        return Discovery::of_versions((!modern.is_empty()).then_some(modern));
    }
    let answer = server.initialize_result(&envelope);
    let answer = wire::Text::result(id, answer.into()).into_bytes();
    let modern = Arc::new(Modern::new(session.clone(), envelope, server.change_notifications));
    Discovery::Modern { session, modern, answer }
}

impl Discovery {
    fn of_versions(versions: Option<Vec<String>>) -> Self {
        versions.map_or(Self::NotModern, Self::OtherVersions)
    }
}

impl ServerDescription {
    /// Returns `None` if the result is not an answer to `server/discover`.
    fn read(result: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            supported_versions: Vec<String>,
            #[serde(borrow)]
            capabilities: &'a RawValue,
            #[serde(borrow, default)]
            instructions: Option<&'a RawValue>,
            #[serde(borrow, default, rename = "_meta")]
            meta: Option<Meta<'a>>,
        }
        #[derive(Deserialize)]
        struct Meta<'a> {
            #[serde(borrow, default, rename = "io.modelcontextprotocol/serverInfo")]
            server_info: Option<&'a RawValue>,
        }
        let fields: Fields<'_> = wire::read_object(result).ok()?;
        let capabilities: Value = serde_json::from_str(fields.capabilities.get()).ok()?;
        let text = |raw: Option<&RawValue>, begins: char| {
            raw.map(RawValue::get).filter(|text| text.starts_with(begins)).map(str::to_owned)
        };
        capabilities.is_object().then(|| Self {
            change_notifications: ChangeNotifications::of(&capabilities),
            supported_versions: fields.supported_versions,
            capabilities_json: fields.capabilities.get().to_owned(),
            info_json: text(fields.meta.and_then(|meta| meta.server_info), '{'),
            instructions_json: text(fields.instructions, '"'),
        })
    }

    fn initialize_result(&self, envelope: &Envelope) -> String {
        let version = envelope.caller_version();
        let capabilities = &self.capabilities_json;
        let info = self.info_json.as_deref().unwrap_or(NAMELESS);
        let instructions = self.instructions_json.as_ref();
        let instructions = instructions.map(|text| format!(r#","instructions":{text}"#)).unwrap_or_default();
        format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{info}{instructions}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIALIZE: &[u8] =
        br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;

    fn greeting(result: &str) -> Option<String> {
        let envelope = Envelope::of(&Bytes::from_static(INITIALIZE));
        ServerDescription::read(result).map(|server| server.initialize_result(&envelope))
    }

    #[test]
    fn the_greeting_repeats_what_the_server_says_and_nothing_else() {
        let result = format!(
            r#"{{"resultType":"complete","supportedVersions":["{VERSION}"],"capabilities":{{"tools":{{ "x":1.0 }}}},"instructions":"do","ttlMs":5,"cacheScope":"public","_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"s","version":"1"}}}}}}"#
        );
        let expected = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{ "x":1.0 }},"serverInfo":{"name":"s","version":"1"},"instructions":"do"}"#;
        assert_eq!(greeting(&result).as_deref(), Some(expected));
        let least = r#"{"supportedVersions":[],"capabilities":{}}"#;
        assert!(greeting(least).unwrap().contains(NAMELESS));
    }

    #[test]
    fn anything_else_is_no_such_answer() {
        for odd in [
            r#"{"tools":[]}"#,
            r#"{"supportedVersions":"x","capabilities":{}}"#,
            r#"{"supportedVersions":[],"capabilities":[]}"#,
            "[]",
        ] {
            assert_eq!(greeting(odd), None, "{odd}");
        }
    }
}
