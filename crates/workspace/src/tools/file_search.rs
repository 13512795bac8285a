//! `file_search`: finds files by parts of their path.

use serde_json::json;

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::files::SessionPath;
use crate::search::{Walk, WalkFilter, find_by_name};

pub(super) const TOOL: Tool = Tool {
    name: "file_search",
    title: "Find files by name",
    about: "Finds files whose path matches a fuzzy query, best match first: `modrs` finds src/tools/mod.rs. Skips what .gitignore excludes. Use grep_search to search contents.",
    effect: Effect::Reads,
    pace: Pace::Long,
    takes: &[
        Field::required(
            "query",
            Kind::Text,
            "Parts of the path, in order. Several words must all match; `'word` matches exactly, `^` and `$` mark beginning and end, `!word` excludes.",
        ),
        Field::optional("path", Kind::Text, "Where to search; by default, the workspace.")
            .with_default(Presence::DefaultText(".")),
        Field::number("limit", (1, 200), 10, "How many to show at most."),
        Field::switch("include_hidden", "Also find names that begin with a dot."),
        Field::switch("include_ignored", "Also find what .gitignore excludes."),
    ],
    gives: &[
        Field::optional("files", Kind::Texts, "Paths, best match first."),
        Field::optional("total_matches", Kind::COUNT, "How many match, shown or not."),
        Field::optional("truncated", Kind::Flag, "There are more than shown."),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let query = arguments.text("query");
    if query.trim().is_empty() {
        return Err(
            ToolError::new("bad_arguments", "`query` is empty").with_hint("directory_tree shows all files")
        );
    }
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let start = workspace.open_directory(&path)?;
    let filter = WalkFilter {
        hidden: arguments.flag("include_hidden"),
        ignored: arguments.flag("include_ignored"),
        ..WalkFilter::default()
    };
    let (hits, total, outcome) = call.with_patience(|patience| {
        find_by_name(Walk::new(workspace, &path, start, filter, patience), query, arguments.number("limit"))
    });
    call.did("search", &path, 0);
    let shown: Vec<String> =
        hits.into_iter().map(|hit| workspace.show(&SessionPath::found(path.root(), hit.below))).collect();
    let is_truncated = total > shown.len() || outcome.is_incomplete();
    let text = match (shown.is_empty(), is_truncated) {
        (true, _) => format!("no file matches `{query}`"),
        (false, false) => shown.join("\n"),
        (false, true) => format!("{}\n… {total} match in all", shown.join("\n")),
    };
    Ok(Answer::new(text, &json!({ "files": shown, "total_matches": total, "truncated": is_truncated })))
}
