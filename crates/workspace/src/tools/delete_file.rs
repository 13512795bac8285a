//! `delete_file`: deletes a file or a link, but never the target of a link or a directory.

use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::files::{Parents, PathError};

pub(super) const TOOL: Tool = Tool {
    name: "delete_file",
    title: "Delete a file",
    about: "Deletes one file, or a symlink but not its target. Directories are refused; run_terminal_cmd can remove those.",
    effect: Effect::Changes,
    pace: Pace::Brief,
    takes: &[Field::required("path", Kind::Text, "The file to delete.").or(&["target_file", "file_path"])],
    gives: &[
        Field::optional("path", Kind::Text, "The file."),
        Field::optional("deleted", Kind::Flag, "True."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let target = workspace.target(&path, Parents::Expect)?;
    let contents = call.original(&path);
    target.delete().map_err(|error| match error {
        PathError::IsDirectory { path } => ToolError::new(
            "is_a_directory",
            format!("`{path}` is a directory"),
        )
        .with_hint(
            "run_terminal_cmd can remove directories: `rmdir` an empty one, `rm -r` one with its contents",
        )
        .at(path),
        PathError::NotFound { .. } => workspace.path_error(&path, rustix::io::Errno::NOENT).into(),
        other => other.into(),
    })?;
    call.note_change(&path, contents);
    call.did("delete", &path, 0);
    let shown = workspace.show(&path);
    Ok(Answer::new(format!("deleted {shown}"), &json!({ "path": shown, "deleted": true })))
}
