//! What all calls of one worker share.

use serde_json::{Value, json};

use crate::baseline::Baseline;
use crate::files::Workspace;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::rules::Rules;
use crate::shell::Operations;
use crate::tools::{Effect, Tool};

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) workspace: Workspace,
    pub(crate) rules: Rules,
    pub(crate) identity: Identity,
    pub(crate) operations: Operations,
    pub(crate) journal: Journal,
    pub(crate) baseline: Baseline,
    /// The fence lets nothing be written.
    pub(crate) is_read_only: bool,
    /// Whether file operations are reported to the gateway.
    pub(crate) reports: bool,
}

impl Host {
    /// Whether a tool is there for clients.
    pub(crate) fn offers(&self, tool: &Tool) -> bool {
        self.rules.allows_tool(tool.name) && !(self.is_read_only && self.may_write(tool))
    }

    /// Without a fence nothing keeps a command from writing.
    fn may_write(&self, tool: &Tool) -> bool {
        tool.writes_files() || (tool.effect == Effect::Runs && self.identity.confinement.is_none())
    }

    /// Bounds that a client may want to know.
    pub(crate) fn limits(&self, longest_text: u64) -> Value {
        let operations = self.operations.limits();
        json!({
            "file_bytes": longest_text,
            "message_bytes": wire::MAX_MESSAGE_BYTES,
            "running_operations": operations.running,
            "remembered_operations": operations.kept,
            "output_bytes": operations.head + operations.tail,
        })
    }
}
