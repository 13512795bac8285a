//! `create_directory`: creates a directory, and those missing above it.

use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::files::Parents;

pub(super) const TOOL: Tool = Tool {
    name: "create_directory",
    title: "Create a directory",
    about: "Creates a directory and missing directories above it. An existing directory is not an error.",
    effect: Effect::Adds,
    pace: Pace::Brief,
    takes: &[
        Field::required("path", Kind::Text, "The directory to create."),
        Field::optional("recursive", Kind::Flag, "Create missing directories above it too.")
            .with_default(Presence::DefaultFlag(true)),
    ],
    gives: &[
        Field::optional("path", Kind::Text, "The directory."),
        Field::optional("created", Kind::Flag, "False if it existed already."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let parents = if arguments.flag("recursive") { Parents::Create } else { Parents::Expect };
    let is_new = workspace.make_directory(&path, parents)?;
    call.did("create_directory", &path, 0);
    let shown = workspace.show(&path);
    let text = if is_new { format!("created {shown}/") } else { format!("{shown}/ was there already") };
    Ok(Answer::new(text, &json!({ "path": shown, "created": is_new })))
}
