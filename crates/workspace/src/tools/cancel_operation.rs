//! `cancel_operation`: ends a command and all that it started.

use std::time::Duration;

use super::operations::{REPORT_FIELDS, answer, find_failure, wait};
use super::parameters::{Field, Kind, Presence};
use super::session_argument::SESSION;
use super::{Answer, Arguments, Call, Effect, Failure, Pace, Tool};

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

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Failure> {
    let operation = call
        .host
        .operations
        .cancel(arguments.text("operation_id"), arguments.text("reason"))
        .map_err(|error| find_failure(&error))?;
    wait(call, &operation, PATIENCE);
    let mut answer = answer(&operation.report());
    // Ended is what was wanted.
    answer.is_error = false;
    Ok(answer)
}
