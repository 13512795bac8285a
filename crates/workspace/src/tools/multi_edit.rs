//! `multi_edit`: makes several replacements in one file, all or none.

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{
    ALLOW_GROWTH, ALLOW_SHRINK, CHANGE_FIELDS, DRY_RUN, EXPECTED_HASH, OpenText, commit_replaced, edit_error,
};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::edit::{Edit, replace_many};

pub(super) const TOOL: Tool = Tool {
    name: "multi_edit",
    title: "Replace several texts in a file",
    about: "Makes several exact replacements in one file, one after the other, all of them or none. Each works like search_replace, on the result of the previous ones.",
    effect: Effect::Changes,
    pace: Pace::Brief,
    takes: &[
        Field::required("path", Kind::Text, "The file to change.").or(&["file_path", "target_file"]),
        Field::required(
            "edits",
            Kind::Objects(&[
                Field::required("old_string", Kind::Text, "The text to replace, exactly.").or(&["search"]),
                Field::required("new_string", Kind::Text, "The text to put in its place.").or(&["replace"]),
                Field::switch("replace_all", "Replace every occurrence.").or(&["replaceAll"]),
            ]),
            "The replacements, in order.",
        ),
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
    let edits: Vec<Edit> = arguments
        .objects("edits")
        .iter()
        .map(|edit| Edit {
            old: before.style.adapt(edit.text("old_string")).into_owned(),
            new: before.style.adapt(edit.text("new_string")).into_owned(),
            all: edit.flag("replace_all"),
        })
        .collect();
    if edits.is_empty() {
        return Err(ToolError::new("bad_arguments", "`edits` is empty"));
    }
    let replaced = replace_many(&before.text, &edits).map_err(|(index, error)| {
        edit_error(
            &path,
            error.code(),
            format!("edit {} of {}: {error}; nothing was changed", index + 1, edits.len()),
        )
    })?;
    // Only `replace_all` can grow a file by accident.
    let hits = if edits.iter().any(|edit| edit.all) { replaced.places.len() } else { 1 };
    commit_replaced(call, arguments, (&path, before), replaced, hits)
}
