//! The few parameters that the gateway inspects. A key that occurs twice is refused, so that the value that was
//! inspected is the value that the receiver uses.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::message::Span;
use crate::{ClientCapabilities, Version, read_object};

/// The positions of the parameters that the gateway's rules need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peek {
    /// `params._meta.progressToken`: the caller wants progress under this token.
    pub(crate) wants_progress: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]`: claims the modern era.
    pub(crate) modern_claim: Option<Span>,
    /// `params._meta["io.modelcontextprotocol/clientCapabilities"]`.
    pub(crate) modern_capabilities: Option<Span>,
    /// `params.progressToken` of a progress notification.
    pub(crate) progress_token: Option<Span>,
    /// `params.requestId` of a cancellation.
    pub(crate) request_id: Option<Span>,
    /// `params.uri`, or that of `params.ref`.
    pub(crate) uri: Option<Span>,
    /// `params.name`, or that of `params.ref`.
    pub(crate) name: Option<Span>,
    pub(crate) cursor: Option<Span>,
    pub(crate) task_id: Option<Span>,
    pub(crate) level: Option<Span>,
    /// `params.task`: the caller wants the call to run as a task.
    pub(crate) task: Option<Span>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, rename = "_meta", deserialize_with = "present")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken", deserialize_with = "present")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId", deserialize_with = "present")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    cursor: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ref", deserialize_with = "present")]
    reference: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId", deserialize_with = "present")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    level: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    task: Option<&'a RawValue>,
}

/// The prompt or resource that a completion is for.
#[derive(Deserialize)]
struct ReferenceFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    uri: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MetaFields<'a> {
    #[serde(borrow, default, rename = "progressToken", deserialize_with = "present")]
    progress_token: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/protocolVersion",
        deserialize_with = "present"
    )]
    protocol_version: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/clientCapabilities",
        deserialize_with = "present"
    )]
    client_capabilities: Option<&'a RawValue>,
}

/// Keeps an explicit `null` apart from an absent key, which `Option` alone would not.
pub(crate) fn present<'de: 'a, 'a, D>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Peek {
    /// Finds the parameters of a message, `whole` being its text. Positional parameters have nothing to inspect.
    pub(crate) fn into_params(whole: &str, params: Option<&RawValue>) -> Result<Self, serde_json::Error> {
        let Some(params) = params.filter(|params| params.get().starts_with('{')) else {
            return Ok(Self::default());
        };
        let fields: Fields<'_> = serde_json::from_str(params.get())?;
        let span = |raw: Option<&RawValue>| raw.map(|raw| Span::of(raw, whole));
        let mut peek = Self {
            progress_token: span(fields.progress_token),
            request_id: span(fields.request_id),
            uri: span(fields.uri),
            name: span(fields.name),
            cursor: span(fields.cursor),
            task_id: span(fields.task_id),
            level: span(fields.level),
            task: span(fields.task),
            ..Self::default()
        };
        if let Some(reference) = fields.reference.filter(|reference| reference.get().starts_with('{')) {
            let reference: ReferenceFields<'_> = serde_json::from_str(reference.get())?;
            peek.name = peek.name.or(span(reference.name));
            peek.uri = peek.uri.or(span(reference.uri));
        }
        if let Some(meta) = fields.meta.filter(|meta| meta.get().starts_with('{')) {
            let meta: MetaFields<'_> = serde_json::from_str(meta.get())?;
            peek.wants_progress = span(meta.progress_token);
            peek.modern_claim = span(meta.protocol_version);
            peek.modern_capabilities = span(meta.client_capabilities);
        }
        Ok(peek)
    }
}

/// Characters kept of a client's name and version.
const MAX_CLIENT_NAME: usize = 200;

/// The parameters of a client's `initialize`.
#[derive(Clone, Debug)]
pub struct InitializeParams {
    /// The revision that the client asked for, known or not.
    pub protocol_version: String,
    pub capabilities: ClientCapabilities,
    /// `name/version`, for logs.
    pub client: String,
}

impl InitializeParams {
    /// Reads the parameters. The error is a message for the client.
    pub fn read(params: Option<&RawValue>) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            protocol_version: String,
            #[serde(default)]
            capabilities: ClientCapabilities,
            #[serde(borrow, default)]
            client_info: Option<ClientInfo<'a>>,
        }
        #[derive(Deserialize)]
        struct ClientInfo<'a> {
            #[serde(borrow, default)]
            name: Cow<'a, str>,
            #[serde(borrow, default)]
            version: Cow<'a, str>,
        }
        let params = params.ok_or("initialize needs params with a protocolVersion")?;
        let fields: Fields<'_> =
            read_object(params.get()).map_err(|error| format!("invalid initialize params: {error}"))?;
        let client = fields.client_info.map_or_else(
            || "unknown".to_owned(),
            |info| format!("{}/{}", info.name, info.version).chars().take(MAX_CLIENT_NAME).collect(),
        );
        Ok(Self { protocol_version: fields.protocol_version, capabilities: fields.capabilities, client })
    }

    /// The revision that the client asked for, or else the newest that the gateway knows.
    pub fn version(&self) -> Version {
        Version::parse(&self.protocol_version).unwrap_or(Version::NEWEST)
    }
}

/// An upstream's answer to `initialize`, kept as text.
#[derive(Clone, Debug)]
pub struct InitializeResult {
    text: Box<str>,
    version_span: Span,
    /// The negotiated revision; `None` if the gateway does not know it.
    pub version: Option<Version>,
}

impl InitializeResult {
    /// Reads the `result` of an `initialize` response. The error is a message for the log.
    pub fn read(result: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, rename = "protocolVersion")]
            protocol_version: &'a RawValue,
        }
        let fields: Fields<'_> = read_object(result).map_err(|error| error.to_string())?;
        let version: String =
            serde_json::from_str(fields.protocol_version.get()).map_err(|error| error.to_string())?;
        Ok(Self {
            version_span: Span::of(fields.protocol_version, result),
            version: Version::parse(&version),
            text: result.into(),
        })
    }

    /// The result as the upstream wrote it.
    pub fn as_json(&self) -> &str {
        &self.text
    }

    /// The same result for a client that negotiated another revision.
    pub fn with_version(&self, version: Version) -> String {
        let span = self.version_span.range();
        format!("{}\"{version}\"{}", &self.text[..span.start], &self.text[span.end..])
    }
}

/// Puts a note before the `instructions` in the result of an `initialize`, or makes them from it. The rest of the text
/// stays as it was written.
pub fn with_note_for_model(result: &str, note: &str) -> String {
    #[derive(Deserialize)]
    struct Fields<'a> {
        #[serde(borrow, default)]
        instructions: Option<&'a RawValue>,
    }
    let note = serde_json::Value::from(note).to_string();
    let own = read_object::<Fields<'_>>(result).ok().and_then(|fields| fields.instructions);
    if let Some(own) = own.filter(|own| own.get().starts_with('"')) {
        let start = Span::of(own, result).range().start + 1;
        let note = &note[1..note.len() - 1];
        return format!("{}{note}\\n\\n{}", &result[..start], &result[start..]);
    }
    match result.trim_start().strip_prefix('{') {
        Some(rest) if own.is_none() => {
            let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
            format!(r#"{{"instructions":{note}{comma}{rest}"#)
        }
        _ => result.to_owned(),
    }
}

/// Severity of a log notification, least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_changes_only_its_version() {
        let text = r#"{"instructions":"2025-11-25", "protocolVersion" : "2025-11-25","x":1.50}"#;
        let result = InitializeResult::read(text).unwrap();
        assert_eq!(result.version, Some(Version::V2025_11_25));
        assert_eq!(
            result.with_version(Version::V2025_03_26),
            r#"{"instructions":"2025-11-25", "protocolVersion" : "2025-03-26","x":1.50}"#
        );
    }

    #[test]
    fn a_note_comes_before_the_instructions_and_changes_nothing_else() {
        let noted = |text| with_note_for_model(text, "in \"/a\"");
        assert_eq!(
            noted(r#"{"x":1.50, "instructions" : "say \"hi\"","y":{}}"#),
            r#"{"x":1.50, "instructions" : "in \"/a\"\n\nsay \"hi\"","y":{}}"#
        );
        assert_eq!(noted(r#"{"x":1.50}"#), r#"{"instructions":"in \"/a\"","x":1.50}"#);
        assert_eq!(noted("{ }"), r#"{"instructions":"in \"/a\"" }"#);
        assert_eq!(noted(r#"{"instructions":7}"#), r#"{"instructions":7}"#, "not ours to mend");
    }

    #[test]
    fn initialize_without_a_version_says_what_is_missing() {
        let params = RawValue::from_string(r#"{"capabilities":{}}"#.into()).unwrap();
        assert!(InitializeParams::read(Some(&params)).unwrap_err().contains("protocolVersion"));
        assert!(InitializeParams::read(None).is_err());
    }
}
