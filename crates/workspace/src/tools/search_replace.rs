//! `search_replace`: replaces a text in a file.

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{
    ALLOW_GROWTH, ALLOW_SHRINK, CHANGE_FIELDS, DRY_RUN, EXPECTED_HASH, OpenText, commit_replaced, edit_error,
};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::edit::replace;

pub(super) const TOOL: Tool = Tool {
    name: "search_replace",
    title: "Replace text in a file",
    about: "Replaces a text that occurs exactly once in a file, or every occurrence with `replace_all`. The text is literal: white space counts, and there are no patterns. Include enough lines around the change to make it unique.",
    effect: Effect::Changes,
    pace: Pace::Brief,
    takes: &[
        Field::required("path", Kind::Text, "The file to change.").or(&["file_path", "target_file"]),
        Field::required("old_string", Kind::Text, "The text to replace, exactly as it is in the file.")
            .or(&["search"]),
        Field::required("new_string", Kind::Text, "The text to put in its place.").or(&["replace"]),
        Field::switch("replace_all", "Replace every occurrence.").or(&["replaceAll"]),
        ALLOW_GROWTH,
        ALLOW_SHRINK,
        EXPECTED_HASH,
        DRY_RUN,
    ],
    gives: CHANGE_FIELDS,
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let path = call.context.workspace.path(arguments.text("path"))?;
    let before = OpenText::read(call, &path)?;
    OpenText::check_hash(Some(&before), &path, arguments)?;
    let (old, new) =
        (before.style.adapt(arguments.text("old_string")), before.style.adapt(arguments.text("new_string")));
    let replaced = replace(&before.text, &old, &new, arguments.flag("replace_all"))
        .map_err(|error| edit_error(&path, error.code(), error.to_string()))?;
    let hits = replaced.places.len();
    commit_replaced(call, arguments, (&path, before), replaced, hits)
}
