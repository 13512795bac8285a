//! `run_terminal_cmd`: a shell command inside the fence.

use std::error::Error as _;
use std::time::Duration;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::operation_answer::{REPORT_FIELDS, answer, wait};
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::shell::{ShellCommand, StartError, Waited};

/// What a command may take in all, if nobody says otherwise.
const DEFAULT_TIMEOUT: u64 = 600;
/// A day.
const MAX_TIMEOUT: u64 = 86_400;
/// How long the client is kept waiting before it gets an operation id.
const DEFAULT_WAIT: u64 = 5;
/// Clients give calls up after a minute, often.
const MAX_WAIT: u64 = 45;

pub(super) const TOOL: Tool = Tool {
    name: "run_terminal_cmd",
    title: "Run a command",
    about: "Runs a shell command in the workspace, inside the session's fence: it can change files of the workspace only. Returns output and exit code if it ends within a few seconds; otherwise an operation id for await_operation. Standard input is closed. Start servers and watchers with `is_background`.",
    effect: Effect::Runs,
    pace: Pace::Long,
    takes: TAKES,
    gives: REPORT_FIELDS,
    run,
};

/// The same under the name that other servers gave it.
pub(super) const ALIAS: Tool =
    Tool { name: "sandboxed_shell", title: "Run a command in the sandbox", ..TOOL };

const TAKES: &[Field] = &[
    Field::required("command", Kind::Text, "The command, as for `bash -c`. Pipes, `&&` and several lines are fine.").or(&["script"]),
    Field::switch("is_background", "Return at once with an operation id, and let it run until it ends or the session does.")
        .or(&["background"]),
    Field::optional("working_directory", Kind::Text, "Where to run it, inside the workspace.")
        .or(&["cwd", "directory"])
        .with_default(Presence::DefaultText(".")),
    Field::optional(
        "timeout",
        Kind::Number { least: 1, most: MAX_TIMEOUT },
        "Seconds after which the command and all it started are ended. 600 if it is not given; none for background commands.",
    )
    .or(&["timeout_seconds"]),
    Field::number("wait_seconds", (0, MAX_WAIT), DEFAULT_WAIT, "Seconds to wait for the end before an operation id is returned.")
        .or(&["wait"]),
    Field::optional("require_user_approval", Kind::Flag, "Taken and not used: approval is the client's business."),
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
    // Not what it says: a script may hold secrets.
    call.did("run", &path, 0);
    let time = if is_background { 0 } else { arguments.number("wait_seconds") as u64 };
    if wait(call, &operation, Duration::from_secs(time)) == Waited::Cancelled {
        // Whoever takes the call back takes the command back.
        let _ = call.context.operations.cancel(&operation.id().to_string(), "the call was cancelled");
    }
    Ok(answer(&operation.report()))
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
