//! `cancel_operation`: ends a command and all that it started.

use std::time::Duration;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::operation_answer::{REPORT_FIELDS, answer, lookup_error, wait};
use super::parameters::{Field, Kind, Presence};
use super::session_argument::SESSION;
use super::tool::{Effect, Pace, Tool};

/// What a tree of processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) const TOOL: Tool = Tool {
    name: "cancel_operation",
    title: "End a command",
    about: "Ends a command with everything that it started, also what it left in the background. First politely, after two seconds by force.",
    effect: Effect::Manages,
    pace: Pace::Long,
    takes: &[
        Field::required("operation_id", Kind::Text, "As run_terminal_cmd returned it.")
            .or(&["id", "operationId"]),
        Field::optional("reason", Kind::Text, "Why, for the record.")
            .with_default(Presence::DefaultText("cancelled by the client")),
        SESSION,
    ],
    gives: REPORT_FIELDS,
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let operation = call
        .context
        .operations
        .cancel(arguments.text("operation_id"), arguments.text("reason"))
        .map_err(|error| lookup_error(&error))?;
    wait(call, &operation, PATIENCE);
    let mut answer = answer(&operation.report());
    // Ended is what was wanted.
    answer.is_error = false;
    Ok(answer)
}
