//! What all calls of one server share.

use serde_json::{Value, json};

use crate::baseline::{Baseline, GitAccess};
use crate::files::Workspace;
use crate::gateway_line::GatewayLine;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::rules::Rules;
use crate::shell::Operations;
use crate::state::Restored;
use crate::tools::ResultForm;

#[derive(Debug)]
pub(crate) struct ServerContext {
    pub(crate) workspace: Workspace,
    pub(crate) rules: Rules,
    pub(crate) identity: Identity,
    pub(crate) gateway: GatewayLine,
    pub(crate) operations: Operations,
    pub(crate) journal: Journal,
    pub(crate) baseline: Baseline,
    /// What it has of earlier servers of the session.
    pub(crate) restored: Restored,
    /// The names of the tools that clients may call, in the order of `tools/list`.
    pub(crate) offered_tools: Vec<&'static str>,
    /// Nothing may be written.
    pub(crate) is_read_only: bool,
    /// Report file operations to the gateway.
    pub(crate) reports: bool,
    /// What results consist of, unless a call asks for data.
    pub(crate) results: ResultForm,
}

impl ServerContext {
    pub(crate) fn offers(&self, tool: &str) -> bool {
        self.offered_tools.contains(&tool)
    }

    /// Lets the baseline run git as one of the session's commands.
    pub(crate) fn git_access(&self) -> GitAccess<'_> {
        GitAccess {
            workspace: &self.workspace,
            operations: &self.operations,
            is_fenced: self.identity.confinement.is_some(),
        }
    }

    /// The limits that `session_info` reports.
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
