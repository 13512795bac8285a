//! `run_terminal_cmd`: runs a shell command inside the fence.

use std::error::Error as _;
use std::time::Duration;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::operation_answer::{REPORT_FIELDS, answer, wait};
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::shell::{ShellCommand, StartError, Waited};

/// Default time limit of a command, in seconds.
const DEFAULT_TIMEOUT: u64 = 600;
/// One day, in seconds.
const MAX_TIMEOUT: u64 = 86_400;
/// Default seconds that the client waits before it gets an operation id.
const DEFAULT_WAIT: u64 = 5;
/// An hour, as long as a gateway lets a call take. Many clients give up on a call after a minute.
const MAX_WAIT: u64 = 3600;

pub(super) const TOOL: Tool = Tool {
    name: "run_terminal_cmd",
    title: "Run a command",
    about: "Runs a shell command in the workspace, inside the session's fence: it can change only files of the workspace. Returns output and exit code if it ends within a few seconds; otherwise an operation id for await_operation. Standard input is closed. Start servers and watchers with `is_background`.",
    effect: Effect::Runs,
    pace: Pace::Long,
    takes: TAKES,
    gives: REPORT_FIELDS,
    run,
};

const TAKES: &[Field] = &[
    Field::required("command", Kind::Text, "The command, as for `bash -c`. Pipes, `&&` and several lines are fine.").or(&["script"]),
    Field::switch("is_background", "Return an operation id at once, and let the command run until it or the session ends.")
        .or(&["background"]),
    Field::optional("working_directory", Kind::Text, "Where to run it, inside the workspace.")
        .or(&["cwd", "directory"])
        .with_default(Presence::DefaultText(".")),
    Field::optional(
        "timeout",
        Kind::Number { least: 1, most: MAX_TIMEOUT },
        "Seconds after which the command and everything it started are ended. By default 600; no limit for background commands.",
    )
    .or(&["timeout_seconds"]),
    Field::number("wait_seconds", (0, MAX_WAIT), DEFAULT_WAIT, "Seconds to wait for the command to end before returning an operation id. Less than your client waits for a call, often 60.")
        .or(&["wait"]),
    Field::optional("require_user_approval", Kind::Flag, "Accepted and ignored: approval is up to the client."),
];

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let script = arguments.text("command").to_owned();
    if script.trim().is_empty() {
        return Err(ToolError::new("bad_arguments", "`command` is empty"));
    }
    if let Some(rule) = call.context.rules.against_script(&script) {
        return Err(ToolError::new("blocked_by_rule", rule).at(arguments.text("working_directory")));
    }
    let path = workspace.path(arguments.text("working_directory"))?;
    let directory = workspace.open_directory(&path)?;
    let is_background = arguments.flag("is_background");
    let timeout = arguments.given_number("timeout").or((!is_background).then_some(DEFAULT_TIMEOUT));
    call.context.baseline.take(call.context.git_access());
    let command = ShellCommand {
        script,
        directory,
        directory_name: workspace.show(&path),
        environment: Vec::new(),
        timeout: timeout.map(Duration::from_secs),
    };
    let operation = call.context.operations.start(command).map_err(|error| start_error(&error))?;
    // Leaves out the script, which may contain secrets.
    call.did("run", &path, 0);
    let time = if is_background { 0 } else { arguments.number("wait_seconds") as u64 };
    if wait(call, &operation, Duration::from_secs(time)) == Waited::Cancelled {
        // Cancelling the call cancels its command.
        let _ = call.context.operations.cancel(&operation.id().to_string(), "the call was cancelled");
    }
    Ok(answer(&operation.report(), call.context))
}

fn start_error(error: &StartError) -> ToolError {
    let code = match error {
        StartError::TooMany { .. } | StartError::TooManyLeft { .. } => "too_many_operations",
        _ => "cannot_start",
    };
    let message = match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    ToolError::new(code, message)
}
