//! The MCP Inspector's command line against the built-in server: every tool listed, and every tool called.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{Gateway, PartRun, Project, node_binary, parts_dir, run_part};

use super::TOOLS;

/// Runs the Inspector with its own home.
async fn inspect(gateway: &Gateway, home: &Project, arguments: &[&str]) -> PartRun {
    let script =
        parts_dir().join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let mut all: Vec<OsString> = vec![format!("HOME={}", home.path.display()).into()];
    all.extend([node_binary().into(), script.into(), "--cli".into(), gateway.url().into()]);
    all.extend(arguments.iter().map(OsString::from));
    run_part(Path::new("/usr/bin/env"), all).await
}

/// Calls a tool; returns the result that the Inspector prints, and whether it exited successfully.
async fn call(gateway: &Gateway, home: &Project, tool: &str, arguments: &[&str]) -> (Value, bool) {
    let mut all = vec!["--method", "tools/call", "--tool-name", tool];
    if !arguments.is_empty() {
        all.push("--tool-arg");
        all.extend(arguments);
    }
    let run = inspect(gateway, home, &all).await;
    let result = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|error| panic!("{tool}: {error}\n{}\n{}", run.stdout, run.stderr));
    (result, run.status.success())
}

fn project() -> Project {
    let project = Project::new("inspected");
    project.write("a.txt", "one\ntwo\nthree\n");
    project.write("b.txt", "b\n");
    project
}

#[tokio::test]
async fn the_inspector_lists_all_tools_and_finds_no_fault_with_their_schemas() {
    let (project, home) = (project(), Project::new("home"));
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    let run = inspect(&gateway, &home, &["--method", "tools/list", "--strict"]).await.succeeded("tools/list");
    let listed: Value = serde_json::from_str(&run.stdout).unwrap();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, TOOLS);
    let run = inspect(&gateway, &home, &["--method", "resources/list"]).await.succeeded("resources/list");
    assert!(run.stdout.contains(&project.uri("a.txt")), "{}", run.stdout);
    let uri = project.uri("a.txt");
    let read = ["--method", "resources/read", "--uri", &uri];
    let run = inspect(&gateway, &home, &read).await.succeeded("resources/read");
    assert!(run.stdout.contains(r"one\ntwo\nthree\n"), "{}", run.stdout);
}

#[tokio::test]
async fn the_inspector_calls_every_tool() {
    let (project, home) = (project(), Project::new("home"));
    // Every run opens a session of its own, and operations must outlive it.
    let gateway =
        Gateway::built_in().flags(["--lifecycle", "workspace"]).current_dir(&project.path).start().await;
    let patch = "patch=--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-b\n+B\n";
    let marked = "code_edit=// ... existing code ...\ntwo\n2.5\nthree\n";
    let edits = r#"edits=[{"old_string":"one","new_string":"eins"},{"old_string":"2.5","new_string":"2½"}]"#;
    let calls: [(&str, &[&str], &str, Value); 22] = [
        ("read_file", &["path=a.txt", "start_line_one_indexed=2"], "content", json!("two\nthree\n")),
        ("write_file", &["path=new/c.txt", "content=c\n"], "created", json!(true)),
        ("edit_file", &["path=a.txt", marked], "lines_added", json!(1)),
        ("search_replace", &["path=a.txt", "old_string=three", "new_string=drei"], "replacements", json!(1)),
        ("multi_edit", &["path=a.txt", edits], "replacements", json!(2)),
        ("apply_patch", &[patch], "files", Value::Null),
        ("list_dir", &["path=."], "total_entries", json!(3)),
        ("directory_tree", &["depth=1"], "entries", json!(["a.txt", "b.txt", "new/"])),
        ("file_search", &["query=ctxt"], "total_matches", json!(1)),
        ("grep_search", &["query=^two$", "case_sensitive=true"], "total_matches", json!(1)),
        ("file_info", &["path=a.txt"], "exists", json!(true)),
        ("create_directory", &["path=dir"], "created", json!(true)),
        ("move_file", &["source=new/c.txt", "destination=dir/c.txt"], "destination", json!("dir/c.txt")),
        ("copy_file", &["source=b.txt", "destination=dir/b.txt"], "bytes_written", json!(2)),
        ("delete_file", &["path=dir/b.txt"], "deleted", json!(true)),
        ("run_terminal_cmd", &["command=cat b.txt"], "output", json!("B\n")),
        ("run_terminal_cmd", &["command=sleep 10000", "is_background=true"], "status", json!("running")),
        ("await_operation", &["operation_id=op-1"], "exit_code", json!(0)),
        ("operation_status", &["operation_id=op-2"], "status", json!("running")),
        ("cancel_operation", &["operation_id=op-2"], "status", json!("cancelled")),
        ("session_info", &[], "workspace", json!([project.path])),
        ("session_diff", &["stat=true"], "files", Value::Null),
    ];
    let mut names = calls.each_ref().map(|call| call.0).to_vec();
    names.dedup();
    // A server that sessions share knows of no context of one.
    let expected: Vec<&str> = TOOLS.into_iter().filter(|name| *name != "session_context").collect();
    assert_eq!(names, expected);
    for (tool, arguments, field, expected) in calls {
        let (result, is_success) = call(&gateway, &home, tool, arguments).await;
        assert!(is_success && result["isError"] != true, "{tool}: {result}");
        let given = &result["structuredContent"][field];
        assert!(!given.is_null() && (expected.is_null() || *given == expected), "{tool}: {result}");
        assert!(
            result["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()),
            "{tool}: {result}"
        );
    }
    assert_eq!(project.text("a.txt"), "eins\ntwo\n2½\ndrei\n");
    assert_eq!((project.text("b.txt"), project.text("dir/c.txt")), ("B\n".to_owned(), "c\n".to_owned()));
    let (result, is_success) = call(&gateway, &home, "read_file", &["path=/etc/passwd"]).await;
    assert!(!is_success && result["structuredContent"]["code"] == "outside_workspace", "{result}");
}
