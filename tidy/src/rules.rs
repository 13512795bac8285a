//! The rules, one file for each.

use std::collections::BTreeMap;

use crate::violation::Violation;
use crate::workspace::Workspace;

mod architecture_names;
mod comments;
mod crate_edges;
mod definitions;
mod markdown;
mod module_cycles;
mod module_edges;
mod opening_docs;
mod riddling_comments;
mod sizes;
mod spawning;
mod unsafe_code;

/// What the rules found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    long_functions: usize,
    riddling_comments: usize,
}

pub(crate) fn check(workspace: &Workspace) -> Report {
    let long_functions = sizes::long_functions(workspace);
    let riddling = riddling_comments::find(workspace);
    let mut violations = [
        workspace.unreadable.clone(),
        architecture_names::check(workspace),
        crate_edges::check(workspace),
        module_cycles::check(workspace),
        sizes::check_methods(workspace),
        sizes::check_functions(&long_functions),
        spawning::check(workspace),
        unsafe_code::check(workspace),
        opening_docs::check(workspace),
        riddling_comments::check(&riddling),
    ]
    .concat();
    violations.sort();
    Report { violations, long_functions: long_functions.len(), riddling_comments: riddling.len() }
}

impl Report {
    /// The last line of the output.
    pub(crate) fn summary(&self, workspace: &Workspace) -> String {
        let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in &self.violations {
            *by_rule.entry(violation.rule).or_default() += 1;
        }
        let counts: Vec<String> = by_rule.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        let verdict = match self.violations.len() {
            0 => "clean".to_owned(),
            count => format!("{count} violations ({})", counts.join(", ")),
        };
        format!(
            "tidy: {} crates, {} files; {} functions over {} lines (limit {}), {} riddling comments (limit {}): {verdict}",
            workspace.members.len(),
            workspace.sources.len(),
            self.long_functions,
            sizes::MAX_LINES,
            sizes::MAX_LONG_FUNCTIONS,
            self.riddling_comments,
            riddling_comments::LIMIT,
        )
    }
}

/// Small trees for the tests of the rules.
#[cfg(test)]
pub(crate) mod trees {
    use super::*;
    use crate::files::Files;

    const ROOT: &str = "[workspace]\nmembers = [\"crates/*\", \"bench\"]\n[workspace.dependencies]\n\
                        a = { package = \"x-a\", path = \"crates/a\" }\nb = { path = \"crates/b\" }\nserde = \"1\"\n";
    const MEMBER: &str = "[package]\nname = \"x\"\n";

    /// Adds the manifests that are missing.
    pub(crate) fn with_manifests<'a>(files: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut all = vec![
            ("Cargo.toml", ROOT),
            ("bench/Cargo.toml", MEMBER),
            ("crates/a/Cargo.toml", MEMBER),
            ("crates/b/Cargo.toml", MEMBER),
            ("crates/fence/Cargo.toml", MEMBER),
            ("crates/testkit/Cargo.toml", MEMBER),
        ];
        // The later entry of a name wins.
        all.extend_from_slice(files);
        all
    }

    pub(crate) fn workspace(files: &[(&str, &str)]) -> Workspace {
        let workspace = Workspace::parse(Files::of(&with_manifests(files)));
        assert_eq!(workspace.unreadable, [], "the tree of the test");
        workspace
    }

    /// `file:line message` of each.
    pub(crate) fn lines(violations: &[Violation]) -> Vec<String> {
        let line = |it: &Violation| format!("{}:{} {}", it.file, it.line, it.message);
        violations.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::trees::workspace;
    use super::*;

    #[test]
    fn the_summary_counts_violations_by_rule() {
        let table = "| crate | may depend on |\n|---|---|\n| `a` | |\n| `b` | |\n| `bench` | |\n| `fence` | |\n| `testkit` | |\n";
        let clean = workspace(&[("ARCHITECTURE.md", table), ("crates/a/src/lib.rs", "//! Says hello.\n")]);
        let report = check(&clean);
        assert_eq!(report.violations, []);
        assert!(report.summary(&clean).ends_with(": clean"), "{}", report.summary(&clean));
        let bad = workspace(&[("ARCHITECTURE.md", table), ("crates/a/src/lib.rs", "fn f() { unsafe {} }\n")]);
        let summary = check(&bad).summary(&bad);
        assert!(summary.ends_with(": 2 violations (opening 1, unsafe 1)"), "{summary}");
    }
}
