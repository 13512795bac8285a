//! Finding out whether a server that refuses `initialize` speaks the newer revision, and greeting our user in its name.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wire::{Id, Outcome};

use super::envelope::Envelope;
use super::exchange::{Failure, Outgoing};
use super::subscriptions::ServerCapabilities;
use super::{Modern, VERSION, headers, own_id, session};
use crate::http::client::{Http, Session};
use crate::http::conversation::Conversation;
use crate::http::refusal::newer_versions;

const DISCOVER: &str = "server/discover";
/// For a server that does not say who it is, which only our user's era insists on.
const NAMELESS: &str = r#"{"name":"unnamed MCP server","version":"unknown"}"#;

/// What a server says of itself, each as JSON text.
pub(super) struct Discovered {
    supported: Vec<String>,
    capabilities: String,
    server_info: Option<String>,
    instructions: Option<String>,
    pub(super) can: ServerCapabilities,
}

/// What came of asking.
pub(crate) enum Found {
    /// The server speaks it: from now on all goes this way, and this is the answer to `initialize`.
    Modern {
        session: Session,
        modern: Arc<Modern>,
        answer: Bytes,
    },
    /// It speaks other revisions without `initialize`.
    Others(Vec<String>),
    Nothing,
}

/// Asks the server in the words of the newer revision. `initialize` is what our user said, under `id`.
pub(crate) async fn probe(
    conversation: &Arc<Conversation>,
    http: &Http,
    initialize: &Bytes,
    id: &Id,
) -> Found {
    let envelope = Envelope::of(initialize);
    let session = session(1);
    let own_id = own_id("discover", 1);
    let Ok(text) = envelope.request(&own_id, DISCOVER, None, None, None) else { return Found::Nothing };
    let outgoing = Outgoing { session: &session, id: &own_id, text, headers: headers::of_method(DISCOVER) };
    let response = match outgoing.exchange(conversation, http, None).await {
        Ok(response) => response,
        Err(Failure::Refused(refusal)) => return Found::others(refusal.supported_versions()),
        Err(Failure::Failed(reply)) => {
            tracing::debug!(reason = reply.message, "the MCP server does not answer server/discover");
            return Found::Nothing;
        }
    };
    let found = match response.outcome() {
        Outcome::Result(result) => Discovered::read(result),
        Outcome::Error(error) => {
            return Found::others(serde_json::from_str(error).ok().and_then(|error| newer_versions(&error)));
        }
    };
    let Some(found) = found else { return Found::Nothing };
    if !found.supported.iter().any(|version| version == VERSION) {
        let newer = found.supported.into_iter().filter(|version| wire::names_modern_version(version));
        return Found::others(Some(newer.collect()).filter(|newer: &Vec<String>| !newer.is_empty()));
    }
    let answer = found.initialize_result(&envelope);
    let answer = wire::Text::result(id, answer.into()).into_bytes();
    let modern = Arc::new(Modern::new(session.clone(), envelope, &found));
    Found::Modern { session, modern, answer }
}

impl Found {
    fn others(versions: Option<Vec<String>>) -> Self {
        versions.map_or(Self::Nothing, Self::Others)
    }
}

impl Discovered {
    /// `None`: it is not what a server answers to `server/discover`.
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
            can: ServerCapabilities::of(&capabilities),
            supported: fields.supported_versions,
            capabilities: fields.capabilities.get().to_owned(),
            server_info: text(fields.meta.and_then(|meta| meta.server_info), '{'),
            instructions: text(fields.instructions, '"'),
        })
    }

    fn initialize_result(&self, envelope: &Envelope) -> String {
        let version = envelope.user_version();
        let capabilities = &self.capabilities;
        let info = self.server_info.as_deref().unwrap_or(NAMELESS);
        let instructions =
            self.instructions.as_ref().map(|text| format!(r#","instructions":{text}"#)).unwrap_or_default();
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
        Discovered::read(result).map(|found| found.initialize_result(&envelope))
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
