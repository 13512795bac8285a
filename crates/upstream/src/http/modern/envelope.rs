//! The `params._meta` of every request: it carries what `initialize` used to settle.

use bytes::Bytes;
use wire::{ClientCapabilities, ErrorReply, Id, LogLevel, Message, Version, code};

use super::members::Members;

/// The revision that is spoken to the server.
pub(crate) const VERSION: &str = "2026-07-28";

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

const META: &str = "_meta";
const INPUT_RESPONSES: &str = "inputResponses";
const REQUEST_STATE: &str = "requestState";

/// What the caller said in `initialize`, as JSON text.
#[derive(Debug)]
pub(super) struct Envelope {
    capabilities: String,
    client_info: Option<String>,
    /// The revision that the caller asked for.
    asked: Option<Version>,
}

/// The parameters that are added to a call that is sent again.
#[derive(Debug, Default)]
pub(super) struct Continuation {
    /// The answers to the server's questions, as a JSON object.
    pub(super) input_responses: Option<String>,
    /// The server's own state as JSON text, to be returned unchanged.
    pub(super) request_state: Option<String>,
}

impl Envelope {
    /// Reads the caller's `initialize`.
    pub(super) fn of(initialize: &Bytes) -> Self {
        let Ok(Message::Request(request)) = Message::parse(initialize.clone()) else {
            return Self { capabilities: "{}".to_owned(), client_info: None, asked: None };
        };
        let params = request.params_text().and_then(Members::read).unwrap_or_default();
        let object = |key: &str| params.get(key).filter(|text| text.starts_with('{')).map(str::to_owned);
        let version =
            params.get("protocolVersion").and_then(|text| serde_json::from_str::<String>(text).ok());
        Self {
            capabilities: object("capabilities").unwrap_or_else(|| "{}".to_owned()),
            client_info: object("clientInfo"),
            asked: version.and_then(|version| Version::parse(&version)),
        }
    }

    pub(super) fn capabilities(&self) -> ClientCapabilities {
        serde_json::from_str(&self.capabilities).unwrap_or_default()
    }

    /// The revision that the caller continues with: the one it asked for, if that is of its era.
    pub(super) fn caller_version(&self) -> Version {
        self.asked.unwrap_or(Version::NEWEST)
    }

    /// A whole request. Adds the envelope to `params` and leaves everything else in it unchanged.
    pub(super) fn request(
        &self,
        id: &Id,
        method: &str,
        params: Option<&str>,
        level: Option<LogLevel>,
        continuation: Option<&Continuation>,
    ) -> Result<Bytes, ErrorReply> {
        let mut params = match params {
            None => Members::default(),
            Some(text) => Members::read(text)
                .ok_or_else(|| ErrorReply::new(code::INVALID_PARAMS, "params must be an object"))?,
        };
        if let Some(continuation) = continuation {
            // The caller's era does not have these, so they can only be ours.
            params.remove(INPUT_RESPONSES);
            params.remove(REQUEST_STATE);
            if let Some(responses) = &continuation.input_responses {
                params.set(INPUT_RESPONSES, responses);
            }
            if let Some(state) = &continuation.request_state {
                params.set(REQUEST_STATE, state);
            }
        }
        let meta = self.meta(params.get(META), level).to_string();
        params.set(META, meta);
        let (id, method) = (id.as_json(), serde_json::Value::from(method));
        Ok(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#).into())
    }

    fn meta<'a>(&'a self, given: Option<&'a str>, level: Option<LogLevel>) -> Members<'a> {
        let mut meta = given.and_then(Members::read).unwrap_or_default();
        meta.set(PROTOCOL_VERSION, format!("\"{VERSION}\""));
        meta.set(CLIENT_CAPABILITIES, self.capabilities.as_str());
        match &self.client_info {
            Some(info) => meta.set(CLIENT_INFO, info.as_str()),
            None => meta.remove(CLIENT_INFO),
        }
        match level {
            Some(level) => meta.set(LOG_LEVEL, format!("\"{}\"", level.as_str())),
            None => meta.remove(LOG_LEVEL),
        }
        meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let line = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{},"x":1.0},"clientInfo":{"name":"c"}}}"#;
        Envelope::of(&Bytes::from_static(line))
    }

    fn text(result: Result<Bytes, ErrorReply>) -> String {
        String::from_utf8(result.unwrap().to_vec()).unwrap()
    }

    const OURS: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{},"x":1.0},"io.modelcontextprotocol/clientInfo":{"name":"c"}"#;

    #[test]
    fn the_envelope_is_added_and_everything_else_keeps_its_text() {
        let params = r#"{"name":"t","arguments":{"n":1.0e400,"n":2},"_meta":{"progressToken":7,"io.modelcontextprotocol/logLevel":"debug"}}"#;
        let sent = envelope().request(&Id::number(1), "tools/call", Some(params), None, None);
        let expected = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{{"n":1.0e400,"n":2}},"_meta":{{"progressToken":7,{OURS}}}}}}}"#
        );
        assert_eq!(text(sent), expected);
        let sent = envelope().request(&Id::number(2), "m", None, Some(LogLevel::Info), None);
        assert!(text(sent).ends_with(&format!(
            r#""params":{{"_meta":{{{OURS},"io.modelcontextprotocol/logLevel":"info"}}}}}}"#
        )));
    }

    #[test]
    fn what_is_sent_again_brings_the_answers_and_the_exact_state() {
        let continuation = Continuation {
            input_responses: Some(r#"{"k":{"action":"accept"}}"#.to_owned()),
            request_state: Some(r#""\u0061b""#.to_owned()),
        };
        let params = r#"{"requestState":"of the caller","name":"t"}"#;
        let sent =
            text(envelope().request(&Id::number(1), "tools/call", Some(params), None, Some(&continuation)));
        assert!(!sent.contains("of the caller"), "{sent}");
        assert!(
            sent.contains(r#""inputResponses":{"k":{"action":"accept"}},"requestState":"\u0061b","_meta""#),
            "{sent}"
        );
    }

    #[test]
    fn positional_parameters_are_refused() {
        let refused = envelope().request(&Id::number(1), "m", Some("[1]"), None, None).unwrap_err();
        assert_eq!(refused.code, code::INVALID_PARAMS);
    }

    #[test]
    fn the_version_of_the_caller_is_one_of_its_era() {
        assert_eq!(envelope().caller_version(), Version::V2025_06_18);
        let odd =
            br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2099-01-01"}}"#;
        let odd = Envelope::of(&Bytes::from_static(odd));
        assert_eq!((odd.caller_version(), odd.capabilities.as_str()), (Version::NEWEST, "{}"));
    }
}
