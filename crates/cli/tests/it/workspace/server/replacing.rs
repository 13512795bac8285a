//! `search_replace` and `multi_edit`: exact replacements, one or several, all or none.

use serde_json::json;
use testkit::Project;

use super::Desk;

async fn desk_with(contents: &str) -> Desk {
    let project = Project::new("replace");
    project.write("a.txt", contents);
    Desk::open(project).await
}

#[tokio::test]
async fn a_text_that_is_there_once_is_replaced() {
    let desk = desk_with("one\ntwo\nthree\n").await;
    let arguments = json!({"file_path": "a.txt", "old_string": "two\n", "new_string": "2\n$1\\n\n"});
    let replaced = desk.ok("search_replace", arguments).await;
    assert_eq!(desk.project.text("a.txt"), "one\n2\n$1\\n\nthree\n");
    assert_eq!(replaced.data["replacements"], 1);
    assert_eq!(replaced.data["changed_range"], json!({"start": 2, "end": 3}));
    assert!(replaced.text.starts_with("edited a.txt, lines 2 to 3 (+2 -1)\n"), "{}", replaced.text);
}

#[tokio::test]
async fn a_text_that_is_there_several_times_is_refused_with_its_lines() {
    let text = "x\nsame\ny\nsame\nsame\n";
    let desk = desk_with(text).await;
    let arguments =
        |all: bool| json!({"path": "a.txt", "old_string": "same", "new_string": "other", "replace_all": all});
    let refused = desk.refused("search_replace", arguments(false), "not_unique").await;
    assert!(refused.text.contains("3 times, beginning in lines 2, 4"), "{}", refused.text);
    assert_eq!(desk.project.text("a.txt"), text);
    let replaced = desk.ok("search_replace", arguments(true)).await;
    assert_eq!(replaced.data["replacements"], 3);
    assert_eq!(desk.project.text("a.txt"), text.replace("same", "other"));
}

#[tokio::test]
async fn a_text_that_is_not_there_is_refused_with_what_is() {
    let desk = desk_with("fn a() {\n    body();\n}\n").await;
    let arguments = |old: &str| json!({"path": "a.txt", "old_string": old, "new_string": "x"});
    let refused = desk.refused("search_replace", arguments("fn a() {\n  body();"), "not_found_in_file").await;
    assert!(refused.text.contains("line 1"), "{}", refused.text);
    desk.refused("search_replace", arguments(""), "empty_search").await;
    desk.refused("search_replace", arguments("x"), "no_change").await;
    desk.ok("search_replace", arguments("    body();")).await;
}

#[tokio::test]
async fn a_file_does_not_grow_by_accident() {
    let desk = desk_with(&"a b\n".repeat(50)).await;
    let arguments = |allow: bool| {
        json!({
            "path": "a.txt", "old_string": "a", "new_string": "aaaaaaaaaa", "replace_all": true,
            "allow_growth": allow,
        })
    };
    let refused = desk.refused("search_replace", arguments(false), "growth_guard").await;
    assert!(refused.text.contains("from 200 to 650 bytes"), "{}", refused.text);
    assert_eq!(desk.project.bytes("a.txt").len(), 200);
    desk.ok("search_replace", arguments(true)).await;
    assert_eq!(desk.project.bytes("a.txt").len(), 650);
}

#[tokio::test]
async fn windows_line_endings_are_matched_and_kept() {
    let desk = desk_with("one\r\ntwo\r\nthree\r\n").await;
    let arguments = json!({"path": "a.txt", "old_string": "one\ntwo\n", "new_string": "1\n2\n"});
    desk.ok("search_replace", arguments).await;
    assert_eq!(desk.project.text("a.txt"), "1\r\n2\r\nthree\r\n");
}

#[tokio::test]
async fn a_replacement_can_be_tried_and_is_bound_to_a_version() {
    let desk = desk_with("one\n").await;
    let with = |name: &str, value: serde_json::Value| {
        let mut arguments = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
        arguments[name] = value;
        arguments
    };
    let tried = desk.ok("search_replace", with("dry_run", true.into())).await;
    assert_eq!(tried.data["edited"], false);
    desk.refused("search_replace", with("expected_hash", "0".into()), "changed_since_read").await;
    assert_eq!(desk.project.text("a.txt"), "one\n");
    let hash = desk.ok("read_file", json!({"path": "a.txt"})).await.data["hash"].clone();
    let edited = desk.ok("search_replace", with("expected_hash", hash)).await;
    // The next edit can expect the hash that this one returned.
    let next = json!({
        "path": "a.txt", "old_string": "two", "new_string": "three", "expected_hash": edited.data["hash"],
    });
    desk.ok("search_replace", next).await;
    assert_eq!(desk.project.text("a.txt"), "three\n");
}

#[tokio::test]
async fn several_replacements_work_on_what_the_ones_before_left() {
    let desk = desk_with("alpha\nbeta\ngamma\n").await;
    let edits = json!([
        {"old_string": "alpha", "new_string": "beta"},
        {"old_string": "beta", "new_string": "delta", "replace_all": true},
        {"search": "gamma", "replace": "epsilon"},
    ]);
    let edited = desk.ok("multi_edit", json!({"path": "a.txt", "edits": edits})).await;
    assert_eq!(desk.project.text("a.txt"), "delta\ndelta\nepsilon\n");
    assert_eq!(edited.data["replacements"], 4);
}

#[tokio::test]
async fn several_replacements_are_made_all_or_none() {
    let desk = desk_with("alpha\nbeta\n").await;
    let edits = |last: &str| {
        json!({"path": "a.txt", "edits": [
            {"old_string": "alpha", "new_string": "ALPHA"},
            {"old_string": last, "new_string": "BETA"},
        ]})
    };
    let refused = desk.refused("multi_edit", edits("missing"), "not_found_in_file").await;
    assert!(refused.text.contains("edit 2 of 2"), "{}", refused.text);
    assert!(refused.text.contains("nothing was changed"), "{}", refused.text);
    assert_eq!(desk.project.text("a.txt"), "alpha\nbeta\n");
    desk.refused("multi_edit", json!({"path": "a.txt", "edits": []}), "bad_arguments").await;
    let nameless = json!({"path": "a.txt", "edits": [{"old_string": "alpha"}]});
    let refused = desk.refused("multi_edit", nameless, "bad_arguments").await;
    assert!(refused.text.contains("`edits[0].new_string` is missing"), "{}", refused.text);
    desk.ok("multi_edit", edits("beta")).await;
    assert_eq!(desk.project.text("a.txt"), "ALPHA\nBETA\n");
}
