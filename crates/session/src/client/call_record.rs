//! What the audit log tells of one call: which tool, how it ended, how long it took. Made only where there is a
//! log.

use std::time::Duration;

use identity::Handle;
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{Notification, Outcome, Request, Response, method, read_object};

use crate::gateway_context::GatewayContext;
use audit::{AuditArguments, AuditEntry, AuditText, CallOutcome};

/// The tools of the built-in server that run commands.
const SHELL_TOOLS: &[&str] = &["run_terminal_cmd", "sandboxed_shell"];

#[derive(Debug)]
pub(crate) struct CallRecord {
    method: String,
    tool: Option<String>,
    request_bytes: usize,
    /// What a shell tool of the built-in server is to run, redacted.
    command: Option<AuditText>,
    arguments: Option<AuditArguments>,
}

impl CallRecord {
    /// `None` for requests that reach no data, such as lists.
    pub(crate) fn of(request: &Request, context: &GatewayContext) -> Option<Box<Self>> {
        #[derive(Deserialize)]
        struct Params<'a> {
            name: Option<String>,
            uri: Option<String>,
            #[serde(borrow)]
            arguments: Option<&'a RawValue>,
        }
        context.audit.as_ref()?;
        if ![method::TOOLS_CALL, method::RESOURCES_READ, method::PROMPTS_GET]
            .contains(&request.method.as_str())
        {
            return None;
        }
        let params = request.params_text().and_then(|params| read_object::<Params<'_>>(params).ok());
        let arguments = params.as_ref().and_then(|params| params.arguments);
        let wants_arguments = context.settings.audit_arguments;
        Some(Box::new(Self {
            method: request.method.clone(),
            request_bytes: request.size(),
            arguments: arguments
                .filter(|_| wants_arguments)
                .and_then(|arguments| AuditArguments::from_json(arguments.get())),
            command: params.as_ref().and_then(|params| command(params.name.as_deref()?, arguments?)),
            tool: params.and_then(|params| params.name.or(params.uri)),
        }))
    }

    pub(crate) fn entry(
        &self,
        session: Handle,
        upstream: &str,
        outcome: CallOutcome,
        took: Duration,
        answer_bytes: usize,
    ) -> AuditEntry {
        AuditEntry::ToolCalled {
            session,
            upstream: upstream.into(),
            tool: self.tool.as_deref().map(Into::into),
            method: self.method.as_str().into(),
            outcome,
            milliseconds: took.as_secs_f64() * 1000.0,
            request_bytes: self.request_bytes as u64,
            answer_bytes: answer_bytes as u64,
            command: self.command.clone(),
            arguments: self.arguments.clone(),
        }
    }
}

/// The command of a shell tool of the built-in server, whose name may have a prefix here.
fn command(tool: &str, arguments: &RawValue) -> Option<AuditText> {
    #[derive(Deserialize)]
    struct Shell {
        #[serde(alias = "script")]
        command: String,
    }
    SHELL_TOOLS.iter().find(|name| tool.ends_with(**name))?;
    let shell = serde_json::from_str::<Shell>(arguments.get()).ok()?;
    Some(audit::redact_command(&shell.command).into())
}

/// How an upstream's answer counts.
pub(crate) fn outcome_of(response: &Response) -> CallOutcome {
    #[derive(Deserialize)]
    struct Result {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    match response.outcome() {
        Outcome::Error(_) => CallOutcome::Error,
        Outcome::Result(result) => match read_object::<Result>(result) {
            Ok(Result { is_error: true }) => CallOutcome::ToolError,
            _ => CallOutcome::Ok,
        },
    }
}

/// What the built-in server tells of the files that one call touched.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReportedFiles {
    /// The id under which it knows the call.
    pub(crate) request_id: u64,
    pub(crate) tool: String,
    pub(crate) operations: Vec<ReportedFile>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReportedFile {
    operation: String,
    path: String,
    bytes: u64,
    outcome: String,
}

impl ReportedFiles {
    pub(crate) fn read(notification: &Notification) -> Option<Self> {
        #[derive(Deserialize)]
        struct Message {
            params: ReportedFiles,
        }
        serde_json::from_slice::<Message>(&notification.text()).ok().map(|message| message.params)
    }
}

impl ReportedFile {
    pub(crate) fn entry(&self, session: Option<Handle>, upstream: &str, tool: &str) -> AuditEntry {
        AuditEntry::FileOperation {
            session,
            upstream: upstream.into(),
            tool: tool.into(),
            operation: self.operation.as_str().into(),
            path: self.path.as_str().into(),
            bytes: self.bytes,
            outcome: self.outcome.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests;
