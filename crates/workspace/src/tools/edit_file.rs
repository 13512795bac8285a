//! `edit_file`: merges new code, with markers for what stays, into a file.

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{
    ALLOW_SHRINK, CHANGE_FIELDS, Change, DRY_RUN, EXPECTED_HASH, OpenText, create_dirs, edit_error, parents,
};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::edit::{guards, has_markers, merge};
use crate::files::FileMode;

pub(super) const TOOL: Tool = Tool {
    name: "edit_file",
    title: "Edit a file",
    about: "Changes a file by showing its new code, with a line `// ... existing code ...` (in the file's comment style) for every part that stays as it is. Repeat at least one unchanged line before and after each change, so that its place is certain; an uncertain place is an error that lists the candidates, never a guess. Without markers, the edit can only create a file, or replace one if `full_replace` is set. Use it where search_replace would have to quote much.",
    effect: Effect::Changes,
    pace: Pace::Brief,
    takes: &[
        Field::required("path", Kind::Text, "The file to edit.").or(&["target_file", "file_path"]),
        Field::required("code_edit", Kind::Text, "The new code, with markers for what stays.")
            .or(&["content"]),
        Field::optional("instructions", Kind::Text, "The purpose of the edit; it has no effect.")
            .or(&["instruction"]),
        Field::switch("full_replace", "The edit has no markers and is the whole file.").or(&["fullReplace"]),
        ALLOW_SHRINK,
        create_dirs("Create missing directories above a new file."),
        EXPECTED_HASH,
        DRY_RUN,
    ],
    gives: CHANGE_FIELDS,
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let path = call.context.workspace.path(arguments.text("path"))?;
    let before = OpenText::read_if_there(call, &path)?;
    OpenText::check_hash(before.as_ref(), &path, arguments)?;
    let edit = arguments.text("code_edit");
    let has_markers = has_markers(edit);
    let full_replace = arguments.flag("full_replace");
    let refused = |error: guards::GuardError| edit_error(&path, error.code(), error.to_string());
    guards::check_base(before.is_some(), has_markers, full_replace).map_err(refused)?;
    let text = match &before {
        Some(before) if has_markers => {
            merge(&before.text, edit).map_err(|error| edit_error(&path, error.code(), error.to_string()))?
        }
        Some(before) => before.style.adapt(edit).into_owned(),
        None => edit.to_owned(),
    };
    if let Some(before) = &before {
        guards::check_collapse(&before.text, &text, arguments.flag("allow_shrink")).map_err(refused)?;
    }
    let parents = parents(arguments);
    let mode = FileMode::Kept;
    let change = Change { path: &path, before, text, parents, mode, is_dry_run: arguments.flag("dry_run") };
    Ok(change.commit(call)?.into_answer())
}
