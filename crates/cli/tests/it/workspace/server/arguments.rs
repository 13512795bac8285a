//! Alternative names of arguments, and errors for wrong arguments.

use serde_json::{Value, json};
use testkit::Project;

use super::Desk;

#[tokio::test]
async fn the_spellings_of_other_clients_are_understood() {
    let project = Project::new("spellings");
    project.write("a.txt", "one\ntwo\nthree\n");
    let desk = Desk::open(project).await;
    let cursor = json!({
        "target_file": "a.txt", "should_read_entire_file": false, "start_line_one_indexed": 2,
        "end_line_one_indexed_inclusive": 2, "explanation": "to see the second line",
    });
    assert_eq!(desk.ok("read_file", cursor).await.data["content"], "two\n");
    desk.ok("list_dir", json!({"relative_workspace_path": ".", "explanation": "x"})).await;
    desk.ok("list_dir", json!({"target_directory": "."})).await;
    desk.ok("write_file", json!({"file_path": "b.txt", "contents": "x\n"})).await;
    desk.ok("search_replace", json!({"file_path": "b.txt", "search": "x", "replace": "y"})).await;
    let cursor = json!({
        "target_file": "c.txt", "instructions": "I create it.", "code_edit": "new\n", "explanation": "x",
    });
    desk.ok("edit_file", cursor).await;
    let cursor = json!({
        "command": "cat b.txt", "is_background": false, "require_user_approval": false, "explanation": "x",
    });
    assert_eq!(desk.ok("run_terminal_cmd", cursor).await.data["output"], "y\n");
    let cursor = json!({
        "query": "two", "case_sensitive": true, "include_pattern": "*.txt", "exclude_pattern": null,
        "explanation": "x",
    });
    assert_eq!(desk.ok("grep_search", cursor).await.data["total_matches"], 1);
    desk.ok("delete_file", json!({"target_file": "c.txt", "explanation": "x"})).await;
    desk.ok("read_file", json!({"path": "a.txt", "start_line": "2", "line_numbers": "true"})).await;
}

#[tokio::test]
async fn every_wrong_argument_is_named() {
    let project = Project::new("wrong");
    project.write("a.txt", "one\n");
    let desk = Desk::open(project).await;
    for (arguments, words) in [
        (json!({}), "`path` is missing"),
        (json!({"path": null}), "`path` is missing"),
        (json!({"path": "a.txt", "target_file": "b.txt"}), "`path` and `target_file` mean the same"),
        (json!({"path": "a.txt", "lines": 3}), "`lines` is no argument of this tool; it takes path,"),
        (json!({"path": 3}), "`path` must be a text"),
        (json!({"path": "a.txt", "line_numbers": "perhaps"}), "`line_numbers` must be true or false"),
        (json!({"path": "a.txt", "start_line": 1.5}), "`start_line_one_indexed` must be a whole number"),
        (json!(["a.txt"]), "the arguments are not an object"),
    ] {
        let refused = desk.refused("read_file", arguments.clone(), "bad_arguments").await;
        assert!(refused.text.contains(words), "{arguments}: {}", refused.text);
    }
    // The control: the same value under two names is accepted.
    desk.ok("read_file", json!({"path": "a.txt", "target_file": "a.txt"})).await;
}

#[tokio::test]
async fn an_unknown_tool_or_method_is_named() {
    let desk = Desk::empty().await;
    let answer = desk.client.call_tool("reed_file", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(answer["error"]["message"], "Unknown tool: `reed_file`; there is `read_file`");
    let answer = desk.client.request("tools/nothing", None).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let answer = desk.client.request("tools/call", Some(json!({"arguments": {}}))).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(desk.client.request("ping", None).await["result"], json!({}));
    let answer: Value = desk.client.call_tool("list_dir", json!({})).await;
    assert!(answer["error"].is_null(), "{answer}");
}
