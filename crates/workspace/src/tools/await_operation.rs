//! `await_operation`: waits for a command that is still running.

use std::time::Duration;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::operation_answer::{REPORT_FIELDS, answer, answer_past, lookup_error, wait};
use super::parameters::{Field, Kind};
use super::session_argument::SESSION;
use super::tool::{Effect, Pace, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "await_operation",
    title: "Wait for a command",
    about: "Waits until a command that is still running ends, and returns its output. After `timeout` it returns the state so far; call it again to wait longer.",
    effect: Effect::Reads,
    pace: Pace::Long,
    takes: &[
        Field::required("operation_id", Kind::Text, "The id that run_terminal_cmd returned.")
            .or(&["id", "operationId"]),
        Field::number(
            "timeout",
            (0, 3600),
            30,
            "Seconds to wait at most. Less than your client waits for a call, often 60.",
        )
        .or(&["timeout_seconds", "wait_seconds"]),
        SESSION,
    ],
    gives: REPORT_FIELDS,
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    if let Some(answer) = answer_past(call, arguments.text("operation_id")) {
        return Ok(answer);
    }
    let operation =
        call.context.operations.get(arguments.text("operation_id")).map_err(|error| lookup_error(&error))?;
    wait(call, &operation, Duration::from_secs(arguments.number("timeout") as u64));
    Ok(answer(&operation.report(), call.context))
}
