//! Crates depend on each other only where ARCHITECTURE.md says so.
//!
//! The page has one table with the columns `crate` and `may depend on`; both name crates in backticks:
//!
//! ```text
//! | crate | owns | may depend on |
//! |---|---|---|
//! | `wire` | JSON-RPC and MCP as data | nothing |
//! | `gateway` | HTTP | `session`, `wire` |
//! ```
//!
//! Dependencies of tests (`dev-dependencies`) are not edges.

use std::collections::{BTreeMap, BTreeSet};

use toml_edit::{DocumentMut, Item, TableLike};

use super::markdown::table;
use crate::violation::Violation;
use crate::workspace::{Member, Workspace};

const PAGE: &str = "ARCHITECTURE.md";
const COLUMNS: [&str; 2] = ["crate", "may depend on"];

pub(super) fn check(workspace: &Workspace) -> Vec<Violation> {
    let page = workspace.files.text(PAGE).unwrap_or_default();
    let Some(rows) = table(page, &COLUMNS) else {
        let message = "there is no table with the columns `crate` and `may depend on`".to_owned();
        return vec![at(PAGE, 1, message, "write down which crate may depend on which")];
    };
    let mut allowed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut violations = Vec::new();
    for row in rows {
        let [of, on] = COLUMNS.map(|column| row.cell(column).map(names).unwrap_or_default());
        for name in of.iter().chain(&on) {
            if !workspace.members.iter().any(|member| member.name == *name) {
                let message = format!("`{name}` is no crate of the workspace");
                violations.push(at(PAGE, row.line, message, "correct the name, or remove it"));
            }
        }
        for name in of {
            allowed.entry(name).or_default().extend(&on);
        }
    }
    let root = workspace.root_manifest();
    for member in &workspace.members {
        violations.extend(check_member(workspace, member, &root, allowed.get(member.name.as_str())));
    }
    violations
}

fn check_member(
    workspace: &Workspace,
    member: &Member,
    root: &DocumentMut,
    allowed: Option<&BTreeSet<&str>>,
) -> Vec<Violation> {
    let Some(allowed) = allowed else {
        let message = format!("`{}` is not in the table of crates", member.name);
        return vec![at(PAGE, 1, message, "add a row: what it owns, and on which crates it may depend")];
    };
    let path = member.manifest_path();
    let mut violations = Vec::new();
    for (key, target) in dependencies(member, root) {
        let is_ours = workspace.members.iter().any(|other| other.name == target);
        if is_ours && !allowed.contains(target.as_str()) {
            let line = line_of(workspace.files.text(&path).unwrap_or_default(), &key);
            let message = format!("`{}` may not depend on `{target}`", member.name);
            let hint = "move the code to where the edge is not needed, or allow the edge in ARCHITECTURE.md";
            violations.push(at(&path, line, message, hint));
        }
    }
    violations
}

/// The keys of dependencies that have a path, each with the name of the directory it leads to.
fn dependencies(member: &Member, root: &DocumentMut) -> Vec<(String, String)> {
    let mut tables: Vec<&dyn TableLike> = Vec::new();
    let kinds = ["dependencies", "build-dependencies"];
    tables.extend(kinds.iter().filter_map(|kind| member.manifest.get(kind)?.as_table_like()));
    if let Some(targets) = member.manifest.get("target").and_then(Item::as_table_like) {
        for (_, target) in targets.iter() {
            tables.extend(kinds.iter().filter_map(|kind| target.get(kind)?.as_table_like()));
        }
    }
    let mut found = Vec::new();
    for (key, item) in tables.into_iter().flat_map(|table| table.iter()) {
        let shared = root.get("workspace").and_then(|it| it.get("dependencies")).and_then(|it| it.get(key));
        let path = |item: &Item| item.get("path").and_then(|path| path.as_str().map(str::to_owned));
        if let Some(path) = path(item).or_else(|| shared.and_then(path)) {
            let directory = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
            found.push((key.to_owned(), directory));
        }
    }
    found
}

fn line_of(manifest: &str, key: &str) -> usize {
    let is_it = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(is_it).map_or(1, |index| index + 1)
}

fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn at(file: &str, line: usize, message: String, hint: &str) -> Violation {
    Violation { rule: "edges", file: file.to_owned(), line, message, hint: hint.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::trees::{lines, workspace};
    use super::*;

    const TABLE: &str = "# Crates\n\n| crate | owns | may depend on |\n|---|---|---|\n| `a` | x | nothing |\n\
                         | `b` | y | `a` |\n| `fence` | z | – |\n| `bench`, `testkit` | | `a`, `b` |\n";

    #[test]
    fn an_edge_must_be_in_the_table() {
        let a = "[package]\nname = \"x-a\"\n[dependencies]\nserde.workspace = true\nb.workspace = true\n";
        let b = "[package]\nname = \"x-b\"\n[dependencies]\na.workspace = true\n[dev-dependencies]\ntestkit = { path = \"../testkit\" }\n";
        let fence =
            "[package]\nname = \"f\"\n[target.'cfg(unix)'.dependencies]\nhelp = { path = \"../b\" }\n";
        let workspace = workspace(&[
            ("ARCHITECTURE.md", TABLE),
            ("crates/a/Cargo.toml", a),
            ("crates/b/Cargo.toml", b),
            ("crates/fence/Cargo.toml", fence),
        ]);
        assert_eq!(
            lines(&check(&workspace)),
            [
                "crates/a/Cargo.toml:5 `a` may not depend on `b`",
                "crates/fence/Cargo.toml:4 `fence` may not depend on `b`"
            ]
        );
    }

    #[test]
    fn the_table_names_all_crates_and_no_others() {
        let table = TABLE.replace("| `fence` | z | – |\n", "").replace("| y | `a` |", "| y | `gone` |");
        let found = lines(&check(&workspace(&[("ARCHITECTURE.md", &table)])));
        assert_eq!(
            found,
            [
                "ARCHITECTURE.md:6 `gone` is no crate of the workspace",
                "ARCHITECTURE.md:1 `fence` is not in the table of crates"
            ]
        );
        let none = lines(&check(&workspace(&[("ARCHITECTURE.md", "# Crates\n")])));
        assert_eq!(none.len(), 1);
    }
}
