//! What the audit log tells of one call: which tool, how it ended, how long it took. Made only where there is a
//! log.

use std::time::Duration;

use identity::Handle;
use serde::Deserialize;
use serde_json::value::RawValue;
use upstream::{Redaction, Upstream};
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
    command: Option<ShellCommand>,
    arguments: Option<AuditArguments>,
}

/// What a shell tool of the built-in server is to run.
#[derive(Debug)]
struct ShellCommand {
    text: String,
    is_cut: bool,
}

/// Longer commands are cut. An entry has less, but a secret may begin there and end here.
const MAX_COMMAND: usize = 16 * 1024;

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

    /// Without the secrets of the server that the call was given to, if it was.
    pub(crate) fn entry(
        &self,
        session: Handle,
        upstream: Option<&Upstream>,
        outcome: CallOutcome,
        took: Duration,
        answer_bytes: usize,
    ) -> AuditEntry {
        let unknown = Redaction::default();
        let redaction = upstream.map_or(&unknown, |upstream| &upstream.redaction);
        let arguments = self.arguments.clone();
        AuditEntry::ToolCalled {
            session,
            upstream: upstream.map_or("", |upstream| &upstream.name).into(),
            tool: self.tool.as_deref().map(|tool| redaction.text(tool).into()),
            method: self.method.as_str().into(),
            outcome,
            milliseconds: took.as_secs_f64() * 1000.0,
            request_bytes: self.request_bytes as u64,
            answer_bytes: answer_bytes as u64,
            command: self.command.as_ref().map(|command| command.shown(redaction)),
            arguments: arguments.map(|arguments| {
                if redaction.is_empty() {
                    arguments
                } else {
                    arguments.changed(|value| redaction.value(value))
                }
            }),
        }
    }
}

impl ShellCommand {
    /// The command without the secrets that are known, and then without what looks like one.
    fn shown(&self, redaction: &Redaction) -> AuditText {
        let text = self.text.as_bytes();
        let known = if self.is_cut { redaction.beginning(text) } else { redaction.bytes(text) };
        audit::redact_command(&String::from_utf8_lossy(&known)).into()
    }
}

/// The command of a shell tool of the built-in server, whose name may have a prefix here.
fn command(tool: &str, arguments: &RawValue) -> Option<ShellCommand> {
    #[derive(Deserialize)]
    struct Shell {
        #[serde(alias = "script")]
        command: String,
    }
    SHELL_TOOLS.iter().find(|name| tool.ends_with(**name))?;
    let mut text = serde_json::from_str::<Shell>(arguments.get()).ok()?.command;
    let is_cut = text.len() > MAX_COMMAND;
    if is_cut {
        let end = (0..=MAX_COMMAND).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    Some(ShellCommand { text, is_cut })
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
    pub(crate) fn entry(&self, session: Option<Handle>, upstream: &Upstream, tool: &str) -> AuditEntry {
        AuditEntry::FileOperation {
            session,
            upstream: upstream.name.as_str().into(),
            tool: tool.into(),
            operation: self.operation.as_str().into(),
            path: upstream.redaction.text(&self.path).into(),
            bytes: self.bytes,
            outcome: self.outcome.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests;
