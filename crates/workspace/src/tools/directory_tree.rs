//! `directory_tree`: an outline of everything below a directory.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::listing::is_placeholder;
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::search::{Finding, Walk, WalkFilter};

pub(super) const TOOL: Tool = Tool {
    name: "directory_tree",
    title: "Show a directory tree",
    about: "Shows the files and directories below a directory as an outline. Skips what .gitignore excludes and names that begin with a dot, unless told to include them. Use it to get to know a project.",
    effect: Effect::Reads,
    pace: Pace::Long,
    takes: &[
        Field::optional("path", Kind::Text, "Where to begin; by default, the workspace.")
            .with_default(Presence::DefaultText(".")),
        Field::number("depth", (1, 64), 3, "How many levels to show."),
        Field::number("limit", (1, 5000), 500, "How many entries to show at most."),
        Field::switch("include_hidden", "Also show names that begin with a dot."),
        Field::switch("include_ignored", "Also show what .gitignore excludes."),
    ],
    gives: &[
        Field::optional("path", Kind::Text, "Where it begins."),
        Field::optional("entries", Kind::Texts, "Paths below it, sorted; directories end in `/`."),
        Field::optional("truncated", Kind::Flag, "There is more than shown."),
    ],
    run,
};

/// Sorted paths, each with whether it is a directory.
type Entries = BTreeSet<(PathBuf, bool)>;

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let start = workspace.open_directory(&path)?;
    let limit = arguments.number("limit");
    let filter = WalkFilter {
        hidden: arguments.flag("include_hidden"),
        ignored: arguments.flag("include_ignored"),
        max_depth: arguments.number("depth"),
        ..WalkFilter::default()
    };
    let found: Mutex<(Entries, bool)> = Mutex::default();
    let outcome = call.with_patience(|patience| {
        let walk = Walk::new(workspace, &path, start, filter, patience);
        walk.run(|| {
            let found = &found;
            move |finding: &Finding<'_>| {
                let is_directory = finding.kind == FileType::Directory;
                if is_directory && is_placeholder(finding.directory, finding.name) {
                    return true;
                }
                let mut found = found.lock();
                found.0.insert((finding.below.to_owned(), is_directory));
                if found.0.len() > limit {
                    found.0.pop_last();
                    found.1 = true;
                }
                true
            }
        })
    });
    let (entries, was_cut) = std::mem::take(&mut *found.lock());
    call.did("list", &path, 0);
    let is_truncated = was_cut || outcome.is_incomplete();
    let begin = path.plain_below();
    let mut text = outline(&entries, &begin);
    if is_truncated {
        text.push_str("\n… there is more; narrow the path, or raise depth or limit");
    }
    let shown: Vec<String> = entries
        .iter()
        .map(|(entry, is_directory)| {
            let below = entry.strip_prefix(&begin).unwrap_or(entry);
            format!("{}{}", below.display(), if *is_directory { "/" } else { "" })
        })
        .collect();
    let data = json!({ "path": workspace.show(&path), "entries": shown, "truncated": is_truncated });
    Ok(Answer::new(if text.is_empty() { "(empty)".to_owned() } else { text }, &data))
}

/// One line per entry, indented by two spaces per level.
fn outline(entries: &Entries, begin: &Path) -> String {
    let line = |(path, is_directory): &(PathBuf, bool)| {
        let below = path.strip_prefix(begin).unwrap_or(path);
        let depth = below.components().count().saturating_sub(1);
        let name = below.file_name().unwrap_or_default().to_string_lossy();
        format!("{}{name}{}", "  ".repeat(depth), if *is_directory { "/" } else { "" })
    };
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}
