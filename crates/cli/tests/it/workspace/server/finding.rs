//! `grep_search` and `file_search`: lines by expression, files by name.

use serde_json::{Value, json};
use testkit::Project;

use super::{Desk, numbered};

fn project() -> Project {
    let project = Project::new("find");
    project.write("src/main.rs", "fn main() {\n    let needle = 1;\n    print(needle);\n}\n");
    project.write("src/tools/mod.rs", "// Needle in a haystack\n");
    project.write("docs/guide.md", "a needle\n");
    project.write("ignored/copy.rs", "needle\n");
    project.write(".gitignore", "ignored/\n");
    project.write(".hidden.rs", "needle\n");
    project.write("data.bin", b"needle\0\x01\xFF");
    project
}

fn places(matches: &[Value]) -> Vec<String> {
    let place = |found: &Value| format!("{}:{}", found["path"].as_str().unwrap_or_default(), found["line"]);
    let mut places: Vec<String> = matches.iter().map(place).collect();
    places.sort();
    places
}

#[tokio::test]
async fn lines_are_found_in_all_files_but_ignored_hidden_and_binary_ones() {
    let desk = Desk::open(project()).await;
    let found = desk.ok("grep_search", json!({"query": "needle"})).await;
    let all = ["docs/guide.md:1", "src/main.rs:2", "src/main.rs:3", "src/tools/mod.rs:1"];
    assert_eq!(places(&found.list("matches")), all);
    assert_eq!(found.data["total_matches"], 4);
    assert_eq!(found.data["files_with_matches"], 3);
    assert_eq!(found.data["truncated"], false);
    assert!(found.text.contains("src/main.rs:2:     let needle = 1;"), "{}", found.text);

    let case = desk.ok("grep_search", json!({"query": "Needle", "case_sensitive": true})).await;
    assert_eq!(places(&case.list("matches")), ["src/tools/mod.rs:1"]);
    let ignored = desk.ok("grep_search", json!({"query": "needle", "include_ignored": true})).await;
    assert!(places(&ignored.list("matches")).contains(&"ignored/copy.rs:1".to_owned()));
    let hidden = desk.ok("grep_search", json!({"query": "needle", "include_hidden": true})).await;
    assert!(places(&hidden.list("matches")).contains(&".hidden.rs:1".to_owned()));
}

#[tokio::test]
async fn queries_are_expressions_or_plain_text() {
    let project = project();
    project.write("a.txt", "f(x)\nfx\n--flag\n");
    let desk = Desk::open(project).await;
    let lines = async |arguments: Value| {
        let found = desk.ok("grep_search", arguments).await;
        found.column("matches", "text")
    };
    assert_eq!(lines(json!({"query": r"let \w+ = \d"})).await, ["    let needle = 1;"]);
    assert_eq!(lines(json!({"query": "f(x)", "path": "a.txt"})).await, ["fx"]);
    assert_eq!(lines(json!({"query": "f(x)", "path": "a.txt", "literal": true})).await, ["f(x)"]);
    assert_eq!(lines(json!({"query": "--flag"})).await, ["--flag"]);
    let refused = desk.refused("grep_search", json!({"query": "f(x"}), "bad_pattern").await;
    assert!(refused.data["hint"].as_str().unwrap().contains("literal"), "{}", refused.data);
    desk.refused("grep_search", json!({"query": ""}), "bad_arguments").await;
    let none = desk.ok("grep_search", json!({"query": "no such line"})).await;
    assert_eq!(none.data["total_matches"], 0);
    assert!(none.text.starts_with("no match in"), "{}", none.text);
}

#[tokio::test]
async fn a_search_is_narrowed_by_path_and_by_globs() {
    let project = project();
    // This test leaves open whether a client's glob finds hidden files.
    std::fs::remove_file(project.join(".hidden.rs")).unwrap();
    let desk = Desk::open(project).await;
    let found = async |arguments: Value| places(&desk.ok("grep_search", arguments).await.list("matches"));
    let all_rust = ["src/main.rs:2", "src/main.rs:3", "src/tools/mod.rs:1"];
    assert_eq!(found(json!({"query": "needle", "path": "src"})).await, all_rust);
    assert_eq!(found(json!({"query": "needle", "path": "src/main.rs"})).await, all_rust[..2]);
    assert_eq!(found(json!({"query": "needle", "include_pattern": "*.rs"})).await, all_rust);
    assert_eq!(found(json!({"query": "needle", "include_pattern": "src/*/*.rs"})).await, all_rust[2..]);
    assert_eq!(found(json!({"query": "needle", "exclude_pattern": "*.rs"})).await, ["docs/guide.md:1"]);
    desk.refused("grep_search", json!({"query": "x", "include_pattern": "[z-a]"}), "bad_pattern").await;
    desk.refused("grep_search", json!({"query": "x", "path": "missing"}), "not_found").await;
}

#[tokio::test]
async fn context_limits_and_totals_are_told() {
    let project = Project::new("totals");
    let lines = numbered(200, "row ");
    project.write("a.txt", &lines);
    project.write("b.txt", &lines);
    let desk = Desk::open(project).await;
    let found = desk.ok("grep_search", json!({"query": "row", "limit": 7})).await;
    assert_eq!(found.list("matches").len(), 7);
    assert_eq!(found.data["total_matches"], 400);
    assert_eq!(found.data["files_with_matches"], 2);
    assert_eq!(found.data["truncated"], true);
    assert!(found.text.contains("400 matching lines in 2 files in all"), "{}", found.text);

    let arguments = json!({"query": "row 42$", "path": "a.txt", "max_context_lines": 2});
    let found = desk.ok("grep_search", arguments).await;
    assert_eq!(found.data["matches"][0]["before"], json!(["row 40", "row 41"]));
    assert_eq!(found.data["matches"][0]["after"], json!(["row 43", "row 44"]));
    assert!(found.text.contains("a.txt-41- row 41\na.txt:42: row 42\na.txt-43- row 43"), "{}", found.text);

    let files = desk.ok("grep_search", json!({"query": "row", "files_only": true})).await;
    let mut names = files.list("files");
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, [json!("a.txt"), json!("b.txt")]);
    let one = desk.ok("grep_search", json!({"query": "row", "files_only": true, "limit": 1})).await;
    assert_eq!((one.list("files").len(), &one.data["truncated"]), (1, &json!(true)));
    assert_eq!(one.data["files_with_matches"], 2);
}

#[tokio::test]
async fn files_are_found_by_parts_of_their_path() {
    let desk = Desk::open(project()).await;
    let found = desk.ok("file_search", json!({"query": "modrs"})).await;
    assert_eq!(found.data["files"][0], "src/tools/mod.rs");
    assert!(found.text.starts_with("src/tools/mod.rs"), "{}", found.text);
    let found = desk.ok("file_search", json!({"query": "'.rs", "limit": 1})).await;
    assert_eq!(found.list("files").len(), 1);
    assert_eq!(found.data["total_matches"], 2);
    assert_eq!(found.data["truncated"], true);
    let found = desk.ok("file_search", json!({"query": "copy", "include_ignored": true})).await;
    assert_eq!(found.data["files"], json!(["ignored/copy.rs"]));
    let found = desk.ok("file_search", json!({"query": "guide", "path": "src"})).await;
    assert_eq!(found.data["files"], json!([]));
    assert_eq!(found.text, "no file matches `guide`");
    desk.refused("file_search", json!({"query": " "}), "bad_arguments").await;
}
