//! `write_file`: writes a whole file.

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::changes::{CHANGE_FIELDS, Change, DRY_RUN, EXPECTED_HASH, OpenText, create_dirs, parents};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::files::FileMode;

pub(super) const TOOL: Tool = Tool {
    name: "write_file",
    title: "Write a file",
    about: "Creates a file or replaces all of it, in one step. Keeps the permissions, encoding, byte order mark and Windows line endings of an existing file. To change part of a file, use search_replace, multi_edit or edit_file.",
    effect: Effect::Changes,
    pace: Pace::Brief,
    takes: &[
        Field::required("path", Kind::Text, "The file to write.").or(&["target_file", "file_path"]),
        Field::required("content", Kind::Text, "The whole text of the file.").or(&["contents"]),
        create_dirs("Create missing directories above it."),
        EXPECTED_HASH,
        DRY_RUN,
    ],
    gives: CHANGE_FIELDS,
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let path = call.context.workspace.path(arguments.text("path"))?;
    let content = arguments.text("content");
    let before = match OpenText::read_if_there(call, &path) {
        Err(error) if error.code == "binary" || error.code == "too_large" => {
            return super::changes::replace_binary(call, &path, content, arguments);
        }
        other => other?,
    };
    OpenText::check_hash(before.as_ref(), &path, arguments)?;
    let text = match &before {
        Some(before) => before.style.adapt(content).into_owned(),
        None => content.to_owned(),
    };
    let parents = parents(arguments);
    let mode = FileMode::Kept;
    let change = Change { path: &path, before, text, parents, mode, is_dry_run: arguments.flag("dry_run") };
    Ok(change.commit(call)?.into_answer())
}
