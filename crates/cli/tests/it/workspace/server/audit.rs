//! `--audit-log`: every file operation of the built-in server is written to the audit log, and reported nowhere else.

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Project, ringfence_binary, wait_until};

use super::Desk;

const REPORT: &str = "notifications/io.ringfence/file_operations";

async fn audited(flags: &[&str]) -> (Desk, Project) {
    let logs = Project::new("logs");
    let project = Project::new("audited");
    project.write("a.txt", "one\n");
    project.write("secret.txt", "secret\n");
    let path = logs.join("audit.log").display().to_string();
    let flags: Vec<&str> = ["--audit-log", &path].into_iter().chain(flags.iter().copied()).collect();
    (Desk::with_flags(project, &flags).await, logs)
}

fn entries(logs: &Project) -> Vec<Value> {
    let text = std::fs::read_to_string(logs.join("audit.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn file_operations(logs: &Project) -> Vec<Value> {
    entries(logs).into_iter().filter(|entry| entry.to_string().contains("file_operation")).collect()
}

/// Waits until this many file operations are logged, and returns their entries.
async fn operations(logs: &Project, count: usize) -> Vec<Value> {
    wait_until("all operations are written down", async || file_operations(logs).len() >= count).await;
    file_operations(logs)
}

#[tokio::test]
async fn every_file_operation_is_written_down_with_its_session() {
    let (desk, logs) = audited(&[]).await;
    let handle = desk.handle().await;
    desk.ok("read_file", json!({"path": "a.txt"})).await;
    desk.ok("write_file", json!({"path": "b.txt", "content": "12345"})).await;
    desk.ok("search_replace", json!({"path": "a.txt", "old_string": "one", "new_string": "two!"})).await;
    desk.ok("copy_file", json!({"source": "a.txt", "destination": "c.txt"})).await;
    desk.ok("move_file", json!({"source": "c.txt", "destination": "d.txt"})).await;
    desk.ok("delete_file", json!({"path": "d.txt"})).await;
    desk.ok("create_directory", json!({"path": "dir"})).await;
    desk.ok("list_dir", json!({})).await;
    desk.ok("grep_search", json!({"query": "two"})).await;
    desk.run("echo from the shell").await;
    let logged = operations(&logs, 12).await;
    let expected = [
        ("read_file", "read", "a.txt", 4),
        ("write_file", "write", "b.txt", 5),
        ("search_replace", "write", "a.txt", 5),
        ("copy_file", "read", "a.txt", 5),
        ("copy_file", "write", "c.txt", 5),
        ("move_file", "move_from", "c.txt", 0),
        ("move_file", "move_to", "d.txt", 0),
        ("delete_file", "delete", "d.txt", 0),
        ("create_directory", "create_directory", "dir", 0),
        ("list_dir", "list", ".", 0),
        ("grep_search", "search", ".", 0),
        ("run_terminal_cmd", "run", ".", 0),
    ];
    assert_eq!(logged.len(), expected.len(), "{logged:#?}");
    for (entry, (tool, operation, path, bytes)) in logged.iter().zip(expected) {
        assert_eq!(entry["tool"], tool, "{entry}");
        assert_eq!(entry["operation"], operation, "{entry}");
        assert_eq!(entry["path"], path, "{entry}");
        assert_eq!(entry["bytes"], bytes, "{entry}");
        assert_eq!(entry["outcome"], "ok", "{entry}");
        assert_eq!(entry["session"], handle, "{entry}");
        assert_eq!(entry["upstream"], "workspace", "{entry}");
    }
}

#[tokio::test]
async fn of_a_file_that_is_too_long_to_be_held_what_was_shown_counts() {
    let (desk, logs) = audited(&[]).await;
    desk.run("yes 1234567 | head -c 20000000 > long.txt").await;
    let lines = json!({"path": "long.txt", "start_line": 2, "end_line": 4});
    assert_eq!(desk.ok("read_file", lines).await.data["content"], "1234567\n".repeat(3));
    let logged = operations(&logs, 2).await;
    assert_eq!((&logged[1]["operation"], &logged[1]["bytes"]), (&json!("read"), &json!(24)), "{logged:#?}");
}

#[tokio::test]
async fn refused_operations_are_written_down_too() {
    let (desk, logs) = audited(&["--block-path", "secret.txt"]).await;
    desk.refused("read_file", json!({"path": "/etc/shadow"}), "outside_workspace").await;
    desk.refused("read_file", json!({"path": "secret.txt"}), "blocked_by_rule").await;
    desk.refused("write_file", json!({"path": "secret.txt", "content": "x"}), "blocked_by_rule").await;
    desk.refused("delete_file", json!({"path": "missing.txt"}), "not_found").await;
    desk.ok("read_file", json!({"path": "a.txt"})).await;
    let logged = operations(&logs, 5).await;
    let refused = |tool: &str, path: &str, outcome: &str| [tool, "refused", path, outcome].map(str::to_owned);
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let seen: Vec<[String; 4]> = logged
        .iter()
        .map(|entry| ["tool", "operation", "path", "outcome"].map(|name| text(entry, name)))
        .collect();
    assert_eq!(
        seen,
        [
            refused("read_file", "/etc/shadow", "outside_workspace"),
            refused("read_file", "secret.txt", "blocked_by_rule"),
            refused("write_file", "secret.txt", "blocked_by_rule"),
            refused("delete_file", "missing.txt", "not_found"),
            ["read_file", "read", "a.txt", "ok"].map(str::to_owned),
        ]
    );
}

#[tokio::test]
async fn a_refused_command_is_written_down() {
    let (desk, logs) = audited(&["--block-command", "rm"]).await;
    desk.refused("run_terminal_cmd", json!({"command": "rm a.txt"}), "blocked_by_rule").await;
    desk.run("echo control").await;
    wait_until("the control is written down", async || {
        file_operations(&logs).iter().any(|entry| entry["operation"] == "run" && entry["outcome"] == "ok")
    })
    .await;
    let logged = file_operations(&logs);
    let refused = logged.iter().find(|entry| entry["outcome"] == "blocked_by_rule");
    assert!(refused.is_some(), "{logged:#?}");
    assert!(desk.project.has("a.txt"));
}

#[tokio::test]
async fn the_log_holds_and_the_client_never_sees_a_report() {
    let (mut desk, logs) = audited(&[]).await;
    let mut events = desk.client.get_stream(None).await.into_events();
    let exchange = desk
        .client
        .call_tool_answering("write_file", json!({"path": "b.txt", "content": "x"}), |_| Ok(json!({})))
        .await;
    assert_eq!(exchange.notifications, Vec::<Value>::new());
    let params = json!({
        "name": "run_terminal_cmd", "arguments": {"command": "echo x > c.txt"}, "_meta": {"progressToken": 1},
    });
    let exchange = desk.client.request_answering("tools/call", Some(params), |_| Ok(json!({}))).await;
    assert!(!format!("{exchange:?}").contains(REPORT));
    operations(&logs, 2).await;
    let called = |entry: &Value| entry.to_string().contains("tool_called");
    wait_until("the calls are written down", async || {
        entries(&logs).iter().filter(|entry| called(entry)).count() >= 2
    })
    .await;
    desk.client.delete().await;
    let rest = events.remaining_messages().await;
    assert!(!rest.iter().any(|message| message["method"] == REPORT), "{rest:?}");
    assert!(desk.gateway.terminate().await.success());
    let verified = Command::new(ringfence_binary())
        .args(["audit", "verify"])
        .arg(logs.join("audit.log"))
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    assert!(!desk.gateway.log().contains(REPORT), "{}", desk.gateway.log());
}

#[tokio::test]
async fn without_a_log_nothing_is_reported() {
    let project = Project::new("unaudited");
    let desk = Desk::open(project).await;
    let exchange = desk
        .client
        .call_tool_answering("write_file", json!({"path": "b.txt", "content": "x"}), |_| Ok(json!({})))
        .await;
    assert_eq!(exchange.notifications, Vec::<Value>::new());
    assert_eq!(desk.gateway.counter("dropped_notifications").await, 0);
}
