//! `grep_search`: finds lines that match a regular expression.

use std::fmt::Write as _;
use std::os::fd::AsFd;

use ignore::overrides::{Override, OverrideBuilder};
use serde_json::{Value, json};

use super::answer::{Answer, ToolError};
use super::arguments::Arguments;
use super::call::Call;
use super::parameters::{Field, Kind, Presence};
use super::tool::{Effect, Pace, Tool};
use crate::files::{PathError, SessionPath};
use crate::search::{GrepHit, GrepQuery, GrepReport, Walk, WalkFilter, grep};

pub(super) const TOOL: Tool = Tool {
    name: "grep_search",
    title: "Search in files",
    about: "Finds lines that match a regular expression (Rust syntax, as ripgrep; linear time), in all files of the workspace or below a path. Skips binary files and what .gitignore excludes. All matches are counted; `limit` of them are shown. Use it before you read whole files.",
    effect: Effect::Reads,
    pace: Pace::Long,
    takes: &[
        Field::required(
            "query",
            Kind::Text,
            "The regular expression. A query that begins with `-` is an expression like any other.",
        )
        .or(&["pattern"]),
        Field::optional("path", Kind::Text, "A directory or file to search; by default, the workspace.")
            .with_default(Presence::DefaultText(".")),
        Field::switch("case_sensitive", "Distinguish upper and lower case."),
        Field::switch("literal", "The query is plain text, not an expression."),
        Field::optional(
            "include_pattern",
            Kind::Text,
            "Only files that match this glob, such as `*.rs` or `src/**/*.ts`.",
        ),
        Field::optional("exclude_pattern", Kind::Text, "Skip files that match this glob."),
        Field::number("max_context_lines", (0, 20), 0, "Lines shown before and after each match.")
            .or(&["context"]),
        Field::number("limit", (1, 1000), 50, "Matching lines (files, if `files_only`) to show at most."),
        Field::switch("files_only", "Show only which files match."),
        Field::switch(
            "include_hidden",
            "Also search files whose names begin with a dot; files that `include_pattern` names are searched anyway.",
        ),
        Field::switch("include_ignored", "Also search what .gitignore excludes."),
    ],
    gives: &[
        Field::optional(
            "matches",
            Kind::Objects(&[]),
            "Each has path, line, text; with context, also before and after.",
        ),
        Field::optional("files", Kind::Texts, "The files that match, if `files_only`."),
        Field::optional("total_matches", Kind::COUNT, "All matching lines, shown or not."),
        Field::optional("files_with_matches", Kind::COUNT, "Files with a match."),
        Field::optional("files_searched", Kind::COUNT, "Files that were searched."),
        Field::optional(
            "truncated",
            Kind::Flag,
            "There are more matches than shown, or the search was ended early.",
        ),
    ],
    run,
};

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, ToolError> {
    let workspace = &call.context.workspace;
    let path = workspace.path(arguments.text("path"))?;
    let query = GrepQuery {
        pattern: arguments.text("query").to_owned(),
        case_sensitive: arguments.flag("case_sensitive"),
        is_literal: arguments.flag("literal"),
        context: arguments.number("max_context_lines"),
        limit: arguments.number("limit"),
        files_only: arguments.flag("files_only"),
    };
    if query.pattern.is_empty() {
        return Err(ToolError::new("bad_arguments", "`query` is empty: every line would match"));
    }
    let (begin, only) = match workspace.open_directory(&path) {
        Ok(directory) => ((path.clone(), directory), None),
        Err(PathError::NotADirectory { .. }) => {
            // By its real path: a link is searched as its target.
            let found = workspace.open_file(&path)?;
            let real = workspace.real_below(found.file.as_fd());
            let file = real.map_or_else(|| path.clone(), |real| SessionPath::found(path.root(), real));
            let (directory, name) = workspace.directory_of(&file)?;
            (directory, Some(name))
        }
        Err(error) => return Err(error.into()),
    };
    let filter = WalkFilter {
        hidden: arguments.flag("include_hidden"),
        ignored: arguments.flag("include_ignored"),
        globs: globs(arguments, workspace.root_path(path.root()))?,
        only,
        ..WalkFilter::default()
    };
    let report = call
        .with_patience(|patience| grep(Walk::new(workspace, &begin.0, begin.1, filter, patience), &query));
    let report = report.map_err(|error| {
        ToolError::new("bad_pattern", error.to_string())
            .with_hint("set `literal: true` to search for plain text")
    })?;
    call.did("search", &path, 0);
    let name = |hit: &GrepHit| workspace.show(&SessionPath::found(path.root(), hit.below.clone()));
    Ok(Answer::new(in_words(&report, &query, name), &as_data(&report, &query, name)))
}

fn globs(arguments: &Arguments, root: &std::path::Path) -> Result<Override, ToolError> {
    let failed = |error: ignore::Error| ToolError::new("bad_pattern", format!("not a glob: {error}"));
    let mut builder = OverrideBuilder::new(root);
    if let Some(include) = arguments.given_text("include_pattern") {
        builder.add(include).map_err(failed)?;
    }
    if let Some(exclude) = arguments.given_text("exclude_pattern") {
        builder.add(&format!("!{exclude}")).map_err(failed)?;
    }
    builder.build().map_err(failed)
}

fn is_truncated(report: &GrepReport, query: &GrepQuery) -> bool {
    let shown = report.hits.iter().flat_map(|hit| &hit.lines).filter(|line| line.is_match).count() as u64;
    let is_all = if query.files_only {
        report.hits.len() as u64 >= report.files_with_matches
    } else {
        shown.min(query.limit as u64) >= report.total_matches
    };
    report.walk.is_incomplete() || !is_all
}

/// Writes `path:line: text` for matches and `path-line- text` for their context.
fn in_words(report: &GrepReport, query: &GrepQuery, name: impl Fn(&GrepHit) -> String) -> String {
    let mut text = String::new();
    let mut shown = 0;
    'files: for hit in &report.hits {
        let path = name(hit);
        if query.files_only {
            let _ = writeln!(text, "{path}");
            continue;
        }
        let mut last = 0;
        for line in &hit.lines {
            if line.is_match && shown == query.limit {
                break 'files;
            }
            shown += usize::from(line.is_match);
            if query.context > 0 && last != 0 && line.number > last + 1 {
                text.push_str("--\n");
            }
            last = line.number;
            let mark = if line.is_match { ':' } else { '-' };
            let _ = writeln!(text, "{path}{mark}{}{mark} {}", line.number, line.text);
        }
    }
    if report.hits.is_empty() {
        let _ = writeln!(text, "no match in {} files", report.files_searched);
    }
    if report.walk.is_partial {
        text.push_str("the search took too long and was given up; narrow it with path or include_pattern\n");
    } else if report.walk.too_deep > 0 {
        text.push_str("directories that lie too deep were left out; name one with path\n");
    } else if is_truncated(report, query) {
        let _ = writeln!(
            text,
            "… {} matching lines in {} files in all; narrow the query or raise limit",
            report.total_matches, report.files_with_matches
        );
    }
    text.truncate(text.trim_end().len());
    text
}

fn as_data(report: &GrepReport, query: &GrepQuery, name: impl Fn(&GrepHit) -> String) -> Value {
    let mut data = json!({
        "total_matches": report.total_matches,
        "files_with_matches": report.files_with_matches,
        "files_searched": report.files_searched,
        "truncated": is_truncated(report, query),
    });
    if query.files_only {
        data["files"] = report.hits.iter().map(&name).collect();
    } else {
        data["matches"] =
            report.hits.iter().flat_map(|hit| matches_of(hit, &name(hit), query)).take(query.limit).collect();
    }
    data
}

fn matches_of(hit: &GrepHit, path: &str, query: &GrepQuery) -> Vec<Value> {
    let around = |number: u64, after: bool| -> Vec<&str> {
        let reach = query.context as u64;
        let range =
            if after { number + 1..=number + reach } else { number.saturating_sub(reach)..=number - 1 };
        hit.lines.iter().filter(|line| range.contains(&line.number)).map(|line| line.text.as_str()).collect()
    };
    hit.lines
        .iter()
        .filter(|line| line.is_match)
        .map(|line| {
            let mut data = json!({ "path": path, "line": line.number, "text": line.text });
            if query.context > 0 {
                data["before"] = around(line.number, false).into();
                data["after"] = around(line.number, true).into();
            }
            data
        })
        .collect()
}
