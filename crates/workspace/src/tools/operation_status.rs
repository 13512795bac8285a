//! `operation_status`: shows one command, or lists all.

use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::operation_answer::{REPORT_FIELDS, answer, answer_past, as_data, lookup_error};
use super::parameters::{Field, Kind};
use super::session_argument::SESSION;
use super::tool::{Effect, Pace, Tool};

/// Characters of each script in the list.
const SCRIPT_CHARACTERS: usize = 80;

pub(super) const TOOL: Tool = Tool {
    name: "operation_status",
    title: "Show commands",
    about: "Shows the state of a command with its output so far; without an id, lists the commands of this session, newest first.",
    effect: Effect::Reads,
    pace: Pace::Brief,
    takes: &[
        Field::optional(
            "operation_id",
            Kind::Text,
            "The id that run_terminal_cmd returned; by default, all commands are listed.",
        )
        .or(&["id", "operationId"]),
        SESSION,
    ],
    gives: GIVES,
    run,
};

const GIVES: &[Field] = &[
    Field::optional(
        "operations",
        Kind::Objects(REPORT_FIELDS),
        "If no id was given: all commands, with the beginning of each `command` and without output.",
    ),
    Field::optional(
        "operation_id",
        Kind::Text,
        "If an id was given: this and the other fields of run_terminal_cmd.",
    ),
];

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let operations = &call.context.operations;
    if let Some(id) = arguments.given_text("operation_id") {
        if let Some(past) = answer_past(call, id) {
            return Ok(Answer { is_error: false, ..past });
        }
        let report = operations.get(id).map_err(|error| lookup_error(&error))?.report();
        let mut answer = answer(&report, call.context);
        // The state was reported, so this is no error even if the command failed.
        answer.is_error = false;
        return Ok(answer);
    }
    let mut lines = Vec::new();
    let mut data = Vec::new();
    let present = operations.list().into_iter().map(|operation| operation.report());
    let past = operations.list_past().into_iter().map(|operation| operation.report());
    for report in present.chain(past) {
        let script: String = report.script.chars().take(SCRIPT_CHARACTERS).collect();
        lines.push(format!(
            "{}: {}, {:.1} s: {script}",
            report.id,
            report.state,
            report.duration.as_secs_f64()
        ));
        let mut entry = as_data(&report);
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("output");
        }
        entry["command"] = script.into();
        data.push(entry);
    }
    let text =
        if lines.is_empty() { "no commands were run in this session".to_owned() } else { lines.join("\n") };
    Ok(Answer::new(text, &json!({ "operations": data })))
}
