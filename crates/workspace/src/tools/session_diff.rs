//! `session_diff`: shows what this session has changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::contents::read_all;
use super::parameters::{Field, Kind};
use super::session_argument::SESSION;
use super::tool::{Effect, Pace, Tool};
use crate::edit::Landing;
use crate::files::{PathError, SessionPath};
use crate::journal::Original;
use crate::text::FileText;

/// Files that are shown at most.
const MAX_FILES: usize = 200;
/// No further diff is added beyond this size.
const MAX_DIFF_BYTES: usize = 256 * 1024;

pub(super) const TOOL: Tool = Tool {
    name: "session_diff",
    title: "What this session changed",
    about: "Shows what changed in the workspace since this session began, as a unified diff: everything that the file tools changed, and in a git repository also what commands changed (except ignored files). Use it to review your work.",
    effect: Effect::Reads,
    pace: Pace::Long,
    takes: &[
        Field::optional("path", Kind::Text, "Only what is below this path."),
        Field::switch("stat", "Show only which files changed, and by how many lines."),
        SESSION,
    ],
    gives: &[
        Field::optional(
            "files",
            Kind::Objects(&[]),
            "Each has path, status (added, modified, deleted), lines_added, lines_removed.",
        ),
        Field::optional("diff", Kind::Text, "All changes."),
        Field::optional(
            "executed_later",
            Kind::Texts,
            "Changed files that people and programs outside execute or obey: review them first.",
        ),
        Field::optional("commands", Kind::Text, "Whether changes made by commands are included, or why not."),
        Field::optional("truncated", Kind::Flag, "There is more than shown."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let only = arguments.given_text("path").map(|text| workspace.path(text)).transpose()?;
    let only = only.map(|path| workspace.absolute(&path));
    let (mut originals, commands, is_complete) = all_originals(call);
    originals.retain(|path, _| only.as_ref().is_none_or(|only| path.starts_with(only)));
    let (mut files, mut diffs, mut is_truncated) = (Vec::new(), String::new(), !is_complete);
    for (path, before) in originals {
        let Some((entry, diff)) = compare(call, &path, before) else { continue };
        is_truncated |= files.len() >= MAX_FILES || diffs.len() >= MAX_DIFF_BYTES;
        if files.len() < MAX_FILES {
            files.push(entry);
        }
        if diffs.len() < MAX_DIFF_BYTES {
            diffs.push_str(&diff);
        }
    }
    let mut lines: Vec<String> = files.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("nothing has changed".to_owned());
    }
    if !arguments.flag("stat") && !diffs.is_empty() {
        lines.push(format!("\n{}", diffs.trim_end()));
    }
    let executed_later = executed_later(&files);
    if !executed_later.is_empty() {
        lines.push(format!("[review before use, programs outside obey them: {}]", executed_later.join(", ")));
    }
    if let Some(note) = commands_note(&commands) {
        lines.push(format!("[{note}]"));
    }
    let mut data = json!({ "files": files, "truncated": is_truncated, "commands": commands, "executed_later": executed_later });
    if !arguments.flag("stat") {
        data["diff"] = diffs.into();
    }
    Ok(Answer::new(lines.join("\n"), &data))
}

/// The changed files that programs outside execute or obey.
fn executed_later(files: &[Value]) -> Vec<String> {
    let paths = files.iter().filter_map(|file| file["path"].as_str());
    paths.filter(|path| fence::is_executed_later(Path::new(path))).map(str::to_owned).collect()
}

fn commands_note(commands: &str) -> Option<String> {
    (commands != "included" && commands != "none were run")
        .then(|| format!("what commands changed is not in it: {commands}"))
}

/// The originals of everything that may have changed: from the journal, or else from git.
fn all_originals(call: &Call<'_>) -> (BTreeMap<PathBuf, Original>, String, bool) {
    let (mut originals, mut is_complete) = call.context.journal.originals();
    let commands = match call.context.baseline.differences(call.context.git_access()) {
        Ok(None) => "none were run",
        Err(reason) => reason,
        Ok(Some((differences, is_all))) => {
            let root = call.context.workspace.roots().next().map(Path::to_owned).unwrap_or_default();
            for (path, before) in differences {
                originals.entry(root.join(path)).or_insert(before);
            }
            is_complete &= is_all;
            "included"
        }
    };
    (originals, commands.to_owned(), is_complete)
}

/// The current contents of a file; `None` if it does not exist.
fn contents_now(call: &Call<'_>, path: &Path) -> Result<Option<Vec<u8>>, PathError> {
    let workspace = &call.context.workspace;
    let Some((root, below)) = workspace.root_of(path) else { return Ok(None) };
    let path = SessionPath::found(root, below);
    match workspace.open_file(&path) {
        Ok(mut found) => read_all(&path, &mut found).map(Some),
        Err(PathError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compares a file with its original. `None`: it is unchanged, or blocked.
fn compare(call: &Call<'_>, path: &Path, before: Original) -> Option<(Value, String)> {
    let workspace = &call.context.workspace;
    let shown = match workspace.root_of(path) {
        Some((root, below)) => workspace.show(&SessionPath::found(root, below)),
        None => path.display().to_string(),
    };
    let is_blocked =
        |below: &Path| workspace.path_rules().is_some_and(|rules| rules.against(below).is_some());
    if workspace.root_of(path).is_some_and(|(_, below)| is_blocked(&below)) {
        return None;
    }
    let now = contents_now(call, path);
    let entry = |status: &str, added: usize, removed: usize| json!({ "path": shown, "status": status, "lines_added": added, "lines_removed": removed });
    let (before, now) = match (before, now) {
        (_, Err(PathError::Blocked { .. })) => return None,
        (Original::Contents(before), Ok(now)) => (Some(before), now),
        (Original::Nothing, Ok(now)) => (None, now),
        (Original::Unkept, _) | (_, Err(_)) => {
            return Some((entry("modified", 0, 0), format!("{shown}: too long to be compared\n")));
        }
    };
    if before == now {
        return None;
    }
    let status = match (&before, &now) {
        (None, _) => "added",
        (_, None) => "deleted",
        _ => "modified",
    };
    let text = |bytes: Option<Vec<u8>>| FileText::decode(&bytes.unwrap_or_default()).map(|text| text.text);
    match (text(before), text(now)) {
        (Ok(before), Ok(now)) => {
            let landing = Landing::between(&before, &now, &shown);
            Some((entry(status, landing.added, landing.removed), landing.diff))
        }
        _ => Some((entry(status, 0, 0), format!("{shown}: binary\n"))),
    }
}

fn line(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    format!("{} {} (+{} -{})", text("status"), text("path"), entry["lines_added"], entry["lines_removed"])
}
