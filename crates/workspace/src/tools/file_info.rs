//! `file_info`: describes what is at a path, without its contents.

use rustix::fs::{AtFlags, FileType, Stat};
use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::listing::{size_in_words, uri};
use super::parameters::{Field, Kind};
use super::tool::{Effect, Pace, Tool};
use crate::files::{Parents, PathError, kind_name};

pub(super) const TOOL: Tool = Tool {
    name: "file_info",
    title: "Look at a path",
    about: "Tells whether a path exists and what is there: type, size, permissions, times, and where a symlink leads. A path outside the workspace is an error, not a missing file. Use it where the contents do not matter.",
    effect: Effect::Reads,
    pace: Pace::Brief,
    takes: &[Field::required("path", Kind::Text, "The path to look at.").or(&["target_file", "file_path"])],
    gives: &[
        Field::optional("path", Kind::Text, "The path."),
        Field::optional("exists", Kind::Flag, "Whether anything is there."),
        Field::optional("type", Kind::Text, "file, directory, symlink, pipe, socket or device."),
        Field::optional("size", Kind::COUNT, "Bytes."),
        Field::optional("mode", Kind::Text, "Permissions, in octal."),
        Field::optional("modified", Kind::COUNT, "Seconds since 1970."),
        Field::optional("links", Kind::COUNT, "Number of hard links."),
        Field::optional(
            "leads_to",
            Kind::Object,
            "For a symlink: type and size of its target, or why the target cannot be reached.",
        ),
        Field::optional("uri", Kind::Text, "The path as a resource URI."),
        Field::optional("nearest", Kind::Texts, "Similar names, if the path does not exist."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let shown = workspace.show(&path);
    let found = if shown == "." { Ok(workspace.stat(&path)?) } else { name_itself(call, &path) };
    let stat = match found {
        Ok(stat) => stat,
        Err(PathError::NotFound { nearest, .. }) => {
            call.did("stat", &path, 0);
            let text = if nearest.is_empty() {
                format!("{shown} does not exist")
            } else {
                format!("{shown} does not exist; there is {}", nearest.join(", "))
            };
            return Ok(Answer::new(text, &json!({ "path": shown, "exists": false, "nearest": nearest })));
        }
        Err(error) => return Err(error.into()),
    };
    call.did("stat", &path, 0);
    let mut data = described(&stat);
    data["path"] = shown.as_str().into();
    data["exists"] = true.into();
    data["uri"] = uri(&workspace.absolute(&path)).into();
    let mut text = format!("{shown}: {}", in_words(&stat));
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        let leads_to = match workspace.stat(&path) {
            Ok(stat) => described(&stat),
            Err(error) => json!({ "error": error.to_string(), "code": error.code() }),
        };
        text = format!("{text}, leads to {leads_to}");
        data["leads_to"] = leads_to;
    }
    Ok(Answer::new(text, &data))
}

/// The metadata of the name itself, not of a link's target.
fn name_itself(call: &Call<'_>, path: &crate::files::SessionPath) -> Result<Stat, PathError> {
    let target = call.context.workspace.target(path, Parents::Expect)?;
    match rustix::fs::statat(target.directory(), target.name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(stat),
        Err(errno) => Err(call.context.workspace.path_error(path, errno)),
    }
}

fn described(stat: &Stat) -> Value {
    json!({
        "type": kind_name(FileType::from_raw_mode(stat.st_mode)),
        "size": stat.st_size,
        "mode": format!("{:04o}", stat.st_mode & 0o7777),
        "modified": stat.st_mtime.max(0),
        "links": stat.st_nlink,
    })
}

fn in_words(stat: &Stat) -> String {
    let kind = kind_name(FileType::from_raw_mode(stat.st_mode));
    let size = size_in_words(u64::try_from(stat.st_size).unwrap_or(0));
    format!("{kind}, {size}, mode {:04o}, modified {}", stat.st_mode & 0o7777, stat.st_mtime)
}
