//! `cancel_operation`: ends a command and everything that it started.

use std::time::Duration;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::operation_answer::{REPORT_FIELDS, answer, answer_past, lookup_error, wait};
use super::parameters::{Field, Kind, Presence};
use super::session_argument::SESSION;
use super::tool::{Effect, Pace, Tool};

/// How long to wait for the processes to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) const TOOL: Tool = Tool {
    name: "cancel_operation",
    title: "End a command",
    about: "Ends a command and everything that it started, including background processes. Sends SIGTERM, and SIGKILL two seconds later.",
    effect: Effect::Manages,
    pace: Pace::Long,
    takes: &[
        Field::required("operation_id", Kind::Text, "The id that run_terminal_cmd returned.")
            .or(&["id", "operationId"]),
        Field::optional("reason", Kind::Text, "Why, for the record.")
            .with_default(Presence::DefaultText("cancelled by the client")),
        SESSION,
    ],
    gives: REPORT_FIELDS,
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    if let Some(past) = answer_past(call, arguments.text("operation_id")) {
        return Ok(past);
    }
    let operation = call
        .context
        .operations
        .cancel(arguments.text("operation_id"), arguments.text("reason"))
        .map_err(|error| lookup_error(&error))?;
    wait(call, &operation, PATIENCE);
    let mut answer = answer(&operation.report(), call.context);
    // The command ended as requested, so this is no error.
    answer.is_error = false;
    Ok(answer)
}
