//! The entries of the log. To add a field, add it to the variant; to add an event, add a variant.
//!
//! Sessions appear by handle only. Texts from clients are bounded here, so that a line is.

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use identity::{Handle, Principal};

/// Longest text of an entry: as long as a path may be.
const MAX_TEXT_BYTES: usize = 4096;

/// Longest arguments of a call that are logged. Of longer ones only the length is.
const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;

/// One line of the log. `event` is the name of the variant in `snake_case`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AuditEntry {
    SessionOpened {
        session: Handle,
        principal: Principal,
        #[serde(skip_serializing_if = "Option::is_none")]
        instance: Option<AuditText>,
        /// `name/version`, as the client calls itself.
        client: AuditText,
        #[serde(skip_serializing_if = "Option::is_none")]
        scope_source: Option<AuditText>,
    },
    /// A session of an earlier gateway goes on.
    SessionRestored {
        session: Handle,
        principal: Principal,
        /// How many gateways had it before.
        epoch: u32,
    },
    ScopeLocked {
        session: Handle,
        scope: Vec<AuditText>,
        source: AuditText,
    },
    ScopeRefused {
        session: Handle,
        reason: AuditText,
    },
    SessionEnded {
        session: Handle,
        reason: AuditText,
        calls: u64,
        errors: u64,
        #[serde(serialize_with = "rounded")]
        seconds: f64,
    },
    WorkerStarted {
        /// None for a shared upstream.
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<Handle>,
        upstream: AuditText,
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        generation: u64,
        confinement: AuditText,
    },
    WorkerExited {
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<Handle>,
        upstream: AuditText,
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        generation: u64,
        code: Option<i32>,
        signal: Option<i32>,
    },
    ToolCalled {
        session: Handle,
        upstream: AuditText,
        /// None for requests that call no tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<AuditText>,
        method: AuditText,
        outcome: CallOutcome,
        #[serde(serialize_with = "rounded")]
        milliseconds: f64,
        request_bytes: u64,
        answer_bytes: u64,
        /// What a shell tool ran, without what looks like a secret.
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<AuditText>,
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<AuditArguments>,
    },
    /// An operation on a file, as its server reported it.
    FileOperation {
        /// None if the call is unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<Handle>,
        upstream: AuditText,
        tool: AuditText,
        operation: AuditText,
        path: AuditText,
        bytes: u64,
        outcome: AuditText,
    },
    /// A request that reached no session, or that the session refused.
    RequestRefused {
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<Handle>,
        reason: AuditText,
        #[serde(skip_serializing_if = "Option::is_none")]
        peer: Option<AuditText>,
    },
    /// Rotation deleted records that the sink did not have yet.
    SinkMissed {
        count: u64,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Ok,
    /// The answer says that the tool failed.
    ToolError,
    Error,
    Cancelled,
    Timeout,
}

impl AuditEntry {
    /// The approximate size in memory, so that the queue is bounded in bytes too.
    pub(super) fn weight(&self) -> usize {
        let text = match self {
            Self::SessionOpened { instance, client, scope_source, .. } => {
                client.len() + length(instance.as_ref()) + length(scope_source.as_ref())
            }
            Self::ScopeLocked { scope, source, .. } => {
                let texts = scope.iter().map(|path| path.len() + size_of::<AuditText>());
                texts.sum::<usize>() + source.len()
            }
            Self::ScopeRefused { reason, .. } | Self::SessionEnded { reason, .. } => reason.len(),
            Self::WorkerStarted { upstream, confinement, .. } => upstream.len() + confinement.len(),
            Self::WorkerExited { upstream, .. } => upstream.len(),
            Self::ToolCalled { upstream, tool, method, command, arguments, .. } => {
                let arguments = arguments.as_ref().map_or(0, |arguments| arguments.0.get().len());
                let optional = length(tool.as_ref()) + length(command.as_ref());
                upstream.len() + optional + method.len() + arguments
            }
            Self::FileOperation { upstream, tool, operation, path, outcome, .. } => {
                upstream.len() + tool.len() + operation.len() + path.len() + outcome.len()
            }
            Self::RequestRefused { reason, peer, .. } => reason.len() + length(peer.as_ref()),
            Self::SinkMissed { .. } | Self::SessionRestored { .. } => 0,
        };
        size_of::<Self>() + text
    }
}

fn length(text: Option<&AuditText>) -> usize {
    text.map_or(0, AuditText::len)
}

/// The entries of the writer itself.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum OwnEntry {
    /// Entries that did not fit into the queue, or could not be written.
    Lost { count: u64 },
    /// An incomplete last line, left by a crash, was cut off.
    Recovered { lost_bytes: u64 },
    /// The first line of each file of a log with a key.
    ChainKeyed { keyed: bool, key_id: String },
}

/// Text of bounded length. A longer one is cut and ends in `…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditText(Box<str>);

impl AuditText {
    fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<&str> for AuditText {
    fn from(text: &str) -> Self {
        if text.len() <= MAX_TEXT_BYTES {
            return Self(text.into());
        }
        let end = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        Self(format!("{}…", &text[..end]).into())
    }
}

impl From<String> for AuditText {
    fn from(text: String) -> Self {
        if text.len() <= MAX_TEXT_BYTES { Self(text.into()) } else { Self::from(text.as_str()) }
    }
}

/// The arguments of a call as they arrived, or a text with their length if they are too long.
#[derive(Clone, Debug)]
pub struct AuditArguments(Box<RawValue>);

impl AuditArguments {
    /// Returns `None` if the text is not JSON.
    pub fn from_json(text: &str) -> Option<Self> {
        let text = if text.len() <= MAX_ARGUMENTS_BYTES {
            text.to_owned()
        } else {
            format!("\"{} bytes, too long for the log\"", text.len())
        };
        RawValue::from_string(text).ok().map(Self)
    }

    /// Changes the arguments where `change` finds something and says so. Others stay as they arrived.
    #[must_use]
    pub fn changed(self, change: impl FnOnce(&mut Value) -> bool) -> Self {
        let Ok(mut value) = serde_json::from_str(self.0.get()) else { return self };
        match change(&mut value).then(|| to_raw_value(&value)) {
            Some(Ok(changed)) => Self(changed),
            _ => self,
        }
    }
}

impl Serialize for AuditArguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Rounds to thousandths; further digits are noise.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_write_is_bounded() {
        let text = AuditText::from("ä".repeat(MAX_TEXT_BYTES));
        assert!(text.len() <= MAX_TEXT_BYTES + '…'.len_utf8() && text.0.ends_with("ä…"));
        assert_eq!(AuditText::from("short"), AuditText::from("short".to_owned()));
        let long = format!("[{}1]", "1,".repeat(MAX_ARGUMENTS_BYTES));
        let arguments = AuditArguments::from_json(&long).unwrap();
        assert_eq!(arguments.0.get(), format!("\"{} bytes, too long for the log\"", long.len()));
        assert!(AuditArguments::from_json("{").is_none());
        let as_arrived = AuditArguments::from_json("{ \"a\":1.50 }").unwrap();
        assert_eq!(as_arrived.clone().changed(|_| false).0.get(), "{ \"a\":1.50 }");
        let shown = as_arrived.changed(|value| {
            value["a"] = "x".into();
            true
        });
        assert_eq!(shown.0.get(), r#"{"a":"x"}"#);
    }

    #[test]
    fn an_entry_is_flat_and_shows_no_session_id() {
        let id = identity::SessionId::random();
        let entry = AuditEntry::SessionOpened {
            session: id.handle(),
            principal: Principal::anonymous(),
            instance: None,
            client: "test/1".into(),
            scope_source: None,
        };
        assert_eq!(
            serde_json::to_value(&entry).unwrap(),
            serde_json::json!({
                "event": "session_opened", "session": id.handle().to_string(),
                "principal": "anonymous", "client": "test/1",
            })
        );
    }
}
