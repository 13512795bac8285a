//! Which files a search sees, and in which order it reports them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ignore::overrides::OverrideBuilder;

use super::*;
use crate::files::Workspace;

/// A directory that is removed when this is dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("ringfence-search-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let tree = Self(root.canonicalize().unwrap());
        for (path, text) in files {
            let path = tree.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    fn grep(&self, below: &str, query: &GrepQuery, filter: WalkFilter) -> GrepReport {
        let workspace = Workspace::open(std::slice::from_ref(&self.0)).unwrap();
        let path = workspace.path(below).unwrap();
        let start = workspace.open_directory(&path).unwrap();
        let patience = Patience { until: Instant::now() + Duration::from_secs(600), is_cancelled: &|| false };
        grep(Walk::new(&workspace, &path, start, filter, patience), query).unwrap()
    }

    /// The files in which `x` is found.
    fn seen(&self, below: &str, filter: WalkFilter) -> Vec<String> {
        let report = self.grep(below, &query("x"), filter);
        report.hits.iter().map(|hit| hit.below.to_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn query(pattern: &str) -> GrepQuery {
    GrepQuery {
        pattern: pattern.to_owned(),
        case_sensitive: false,
        is_literal: false,
        context: 0,
        limit: 50,
        files_only: false,
    }
}

fn lines(report: &GrepReport) -> Vec<(String, u64, bool)> {
    let of_hit = |hit: &GrepHit| {
        let path = hit.below.display().to_string();
        hit.lines.iter().map(|line| (path.clone(), line.number, line.is_match)).collect::<Vec<_>>()
    };
    report.hits.iter().flat_map(of_hit).collect()
}

#[test]
fn ignore_files_are_read_as_ripgrep_reads_them() {
    let tree = Tree::new(
        "ignore",
        &[
            (".gitignore", "*.log\n/build/\nvendor/*\n!vendor/keep.rs\n"),
            (".git/info/exclude", "excluded.rs\n"),
            (".git/config", "x"),
            ("a.rs", "x"),
            ("a.log", "x"),
            ("build/b.rs", "x"),
            ("src/build/c.rs", "x"),
            ("src/deep.log", "x"),
            ("src/.gitignore", "!deep.log\ninner.rs\n"),
            ("src/inner.rs", "x"),
            ("vendor/keep.rs", "x"),
            ("vendor/other.rs", "x"),
            ("excluded.rs", "x"),
            (".hidden.rs", "x"),
            ("skip/.ignore", "*\n"),
            ("skip/s.rs", "x"),
        ],
    );
    let expected = ["a.rs", "src/build/c.rs", "src/deep.log", "vendor/keep.rs"];
    assert_eq!(tree.seen(".", WalkFilter::default()), expected);
    assert_eq!(tree.seen("vendor", WalkFilter::default()), ["vendor/keep.rs"], "rules from above count");
    assert_eq!(tree.seen("build", WalkFilter::default()), ["build/b.rs"], "what is named is looked into");
    let all = tree.seen(".", WalkFilter { ignored: true, hidden: true, ..WalkFilter::default() });
    assert_eq!(all.len(), 11, "everything but git's own files: {all:?}");
}

#[test]
fn globs_include_and_exclude() {
    let tree = Tree::new("globs", &[("a.rs", "x"), ("b.ts", "x"), ("src/c.rs", "x"), ("src/d.ts", "x")]);
    let seen = |globs: &[&str]| {
        let mut builder = OverrideBuilder::new(&tree.0);
        for glob in globs {
            builder.add(glob).unwrap();
        }
        tree.seen(".", WalkFilter { globs: builder.build().unwrap(), ..WalkFilter::default() })
    };
    assert_eq!(seen(&["*.rs"]), ["a.rs", "src/c.rs"]);
    assert_eq!(seen(&["!src"]), ["a.rs", "b.ts"]);
    assert_eq!(seen(&["src/**/*.ts"]), ["src/d.ts"]);
    assert_eq!(seen(&["*.rs", "!src/**"]), ["a.rs"]);
}

#[test]
fn the_first_matches_by_path_are_shown_and_all_are_counted() {
    let many: String = (0..30).map(|_| "x\n").collect();
    let files: Vec<(String, String)> =
        (0..40).map(|number| (format!("f{number:02}"), many.clone())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let tree = Tree::new("limit", &files);
    for _ in 0..20 {
        let report = tree.grep(".", &query("x"), WalkFilter::default());
        assert_eq!((report.total_matches, report.files_with_matches, report.files_searched), (1200, 40, 40));
        let names: Vec<_> = report.hits.iter().map(|hit| hit.below.clone()).collect();
        assert_eq!(names, [Path::new("f00"), Path::new("f01")], "however the threads ran");
    }
    let only = GrepQuery { files_only: true, limit: 3, ..query("x") };
    let report = tree.grep(".", &only, WalkFilter::default());
    assert_eq!(report.hits.len(), 3);
    assert_eq!(report.files_with_matches, 40);
}

#[test]
fn context_is_shown_around_matches() {
    let tree = Tree::new("context", &[("a", "1\n2\nx\n4\n5\n6\nx\n8\n")]);
    let report = tree.grep(".", &GrepQuery { context: 1, ..query("x") }, WalkFilter::default());
    let expected = [(2, false), (3, true), (4, false), (6, false), (7, true), (8, false)];
    assert_eq!(lines(&report), expected.map(|(number, is_match)| ("a".to_owned(), number, is_match)));
}

#[test]
fn a_pattern_may_begin_with_a_dash() {
    let tree = Tree::new("options", &[("a", "--help\n-e x\nfile (1)\nCASE\n")]);
    let found = |query: GrepQuery| tree.grep(".", &query, WalkFilter::default()).total_matches;
    assert_eq!(found(query("--help")), 1);
    assert_eq!(found(query("-e")), 1);
    assert_eq!(found(GrepQuery { is_literal: true, ..query("(1)") }), 1);
    assert_eq!(found(query("case")), 1);
    assert_eq!(found(GrepQuery { case_sensitive: true, ..query("case") }), 0);
    assert_eq!(found(query("(e+)+$")), 1, "an expression that others choke on");
}

#[test]
fn links_are_shown_and_not_followed() {
    let tree = Tree::new("links", &[("real/a.rs", "x")]);
    symlink(tree.0.join("real"), tree.0.join("directory")).unwrap();
    symlink("real/a.rs", tree.0.join("file.rs")).unwrap();
    symlink("loop", tree.0.join("loop")).unwrap();
    assert_eq!(tree.seen(".", WalkFilter::default()), ["real/a.rs"]);
}

#[test]
fn binary_files_are_left_alone() {
    let tree = Tree::new("binary", &[("a", "x\n"), ("b", "x\n\0\n"), ("c", "ä x \u{1F600}\n")]);
    assert_eq!(tree.seen(".", WalkFilter::default()), ["a", "c"]);
}

#[test]
fn names_are_found_by_their_parts() {
    let tree = Tree::new("fuzzy", &[("src/tools/mod.rs", ""), ("src/main.rs", ""), ("docs/mode.md", "")]);
    let workspace = Workspace::open(std::slice::from_ref(&tree.0)).unwrap();
    let find = |query: &str, limit: usize| {
        let path = workspace.path(".").unwrap();
        let start = workspace.open_directory(&path).unwrap();
        let patience = Patience { until: Instant::now() + Duration::from_secs(600), is_cancelled: &|| false };
        let walk = Walk::new(&workspace, &path, start, WalkFilter::default(), patience);
        let (hits, total, _) = find_by_name(walk, query, limit);
        (hits.into_iter().map(|hit| hit.below.display().to_string()).collect::<Vec<_>>(), total)
    };
    assert_eq!(find("toolsmod", 10), (vec!["src/tools/mod.rs".to_owned()], 1));
    assert_eq!(find("mod", 1).1, 2, "all are counted");
    assert_eq!(find("zzz", 10), (Vec::new(), 0));
}

#[test]
fn a_cancelled_search_ends() {
    let tree = Tree::new("cancel", &[("a/b/c/d", "x")]);
    let workspace = Workspace::open(std::slice::from_ref(&tree.0)).unwrap();
    let path = workspace.path(".").unwrap();
    let start = workspace.open_directory(&path).unwrap();
    let patience = Patience { until: Instant::now() + Duration::from_secs(600), is_cancelled: &|| true };
    let report =
        grep(Walk::new(&workspace, &path, start, WalkFilter::default(), patience), &query("x")).unwrap();
    assert!(report.walk.is_partial && report.files_searched == 0, "{report:?}");
}
