//! `session_apply`: takes what changed in the session's copy over into the project.

use serde_json::{Value, json};
use wire::method;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};

pub(super) const TOOL: Tool = Tool {
    name: "session_apply",
    title: "Take changes over",
    about: "Takes what changed in this copy of the project over into the project itself, all or none. Use it only when the user asks for it.",
    effect: Effect::TakesOver,
    pace: Pace::Long,
    takes: &[
        Field::optional("only", Kind::Texts, "Only these paths and globs, relative to the workspace."),
        Field::switch("dry_run", "Say what would be taken over, and change nothing."),
    ],
    gives: &[
        Field::optional("paths", Kind::Texts, "What was taken over."),
        Field::optional(
            "executables_left_out",
            Kind::Texts,
            "What was left out because programs outside execute or obey it: the user takes it over.",
        ),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let is_trial = arguments.flag("dry_run");
    let selection = json!({ "only": arguments.texts("only"), "dry_run": is_trial });
    let applied = call.ask_gateway(method::SESSION_WORKSPACE, &json!({ "apply": selection }))?;
    let (paths, left_out) = (paths(&applied["paths"]), paths(&applied["executables_left_out"]));
    let verb = if is_trial { "would take over" } else { "took over" };
    let mut text = match paths.as_slice() {
        [] => "nothing to take over".to_owned(),
        paths => format!("{verb} {} paths:\n{}", paths.len(), paths.join("\n")),
    };
    if !left_out.is_empty() {
        text.push_str("\nleft to the user, because programs outside execute or obey them:\n");
        text.push_str(&left_out.join("\n"));
    }
    Ok(Answer::new(text, &json!({ "paths": paths, "executables_left_out": left_out })))
}

fn paths(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
