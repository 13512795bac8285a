//! How clients reach a workspace: at a gateway that runs, at one that the command becomes, on stdio.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{NEWEST, RawClient, text_of};

use super::Desk;

async fn shell(client: &RawClient, command: &str) -> String {
    text_of(&client.call_tool("run_terminal_cmd", json!({ "command": command })).await)
}

#[tokio::test]
async fn the_gateway_that_runs_serves_a_new_workspace_at_once() {
    let desk = Desk::repository("running");
    let gateway = desk.gateway().start().await;
    let started = desk.succeeds(&["start", "task", "--mcp", "--json"]).json();
    let endpoint = started["endpoint"].as_str().unwrap();
    assert_eq!(endpoint, format!("{}/w/task", gateway.url()));
    let mut client = RawClient::new(endpoint.to_owned());
    client.open(json!({}), NEWEST).await;
    shell(&client, "echo agent > agent.txt").await;
    assert!(!desk.project.has("agent.txt"));
    // Reviewed and taken over while the client works.
    desk.succeeds(&["apply", "task"]);
    assert_eq!(desk.project.text("agent.txt"), "agent\n");
    let listed = desk.succeeds(&["list"]).stdout;
    assert!(listed.contains(&format!("used by {}", gateway.pid())), "{listed}");
    desk.fails(&["discard", "task", "--force"], "in use");
    // Another client finds the same by name.
    let resumed = desk.succeeds(&["resume", "task", "--mcp", "--json"]).json();
    assert_eq!(resumed["endpoint"], started["endpoint"]);
    let mut other = RawClient::new(endpoint.to_owned());
    other.open(json!({}), NEWEST).await;
    assert!(shell(&other, "cat agent.txt").await.starts_with("agent"));
    desk.succeeds(&["start", "other"]);
    let told = text_of(&client.call_tool("session_info", json!({})).await);
    assert!(told.contains("this is `task`") && told.contains("/mcp/w/NAME: other"), "{told}");
    // Every tool accepts the name of its own workspace, and of no other.
    for (named, is_refused) in [("task", false), ("other", true)] {
        let answer = client.call_tool("list_dir", json!({"path": ".", "session": named})).await;
        assert_eq!(answer["result"]["isError"] == true, is_refused, "{answer}");
    }
    let stopped = desk.succeeds(&["stop", "task", "--json"]).json();
    assert_eq!(stopped["stopped"].as_array().unwrap().len(), 2, "{stopped}");
    desk.succeeds(&["discard", "task", "--force"]);
}

#[tokio::test]
async fn without_a_gateway_the_command_becomes_one() {
    let desk = Desk::repository("becomes");
    let mut child = desk
        .command(&desk.project.path, &["start", "task", "--mcp", "--port", "0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut event = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!((event()["name"].clone(), event()["event"].clone()), (json!("task"), json!("listening")));
    let endpoint = desk.succeeds(&["resume", "task", "--mcp", "--json"]).json()["endpoint"].clone();
    let base = endpoint.as_str().unwrap().strip_suffix("/w/task").unwrap().to_owned();
    // Whatever a client's roots are, it works in the copy.
    let mut client = RawClient::new(base);
    client.open(json!({"roots": {}}), NEWEST).await;
    shell(&client, "echo agent > agent.txt").await;
    assert!(!desk.project.has("agent.txt"));
    assert!(desk.succeeds(&["diff", "task"]).stdout.contains("+agent"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn on_stdio_the_command_is_the_server() {
    let desk = Desk::repository("stdio");
    desk.succeeds(&["start", "task"]);
    let mut child = desk
        .command(&desk.project.path, &["resume", "task", "--mcp", "--transport", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |message: Value| -> Value {
        writeln!(input, "{message}").unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let client = json!({"name": "c", "version": "1"});
    ask(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": NEWEST, "capabilities": {"roots": {}}, "clientInfo": client}}));
    let call = |id: u64, command: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "run_terminal_cmd", "arguments": {"command": command}}})
    };
    let answer = ask(call(2, "echo agent > agent.txt; pwd"));
    assert!(answer.to_string().contains(desk.project.path.to_str().unwrap()), "{answer}");
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(!desk.project.has("agent.txt"));
    desk.succeeds(&["apply", "task"]);
    assert!(desk.project.has("agent.txt"));
}

#[tokio::test]
async fn a_client_gets_the_endpoint_in_its_configuration() {
    let desk = Desk::repository("registered");
    let gateway = desk.gateway().start().await;
    desk.succeeds(&["start", "task", "--mcp", "--register", "cursor", "--register", "codex"]);
    for file in [".cursor/mcp.json", ".codex/config.toml"] {
        let text = std::fs::read_to_string(desk.home.join(file)).unwrap();
        assert!(text.contains(&format!("{}/w/task", gateway.url())), "{file}: {text}");
    }
}

#[tokio::test]
async fn a_gateway_is_refused_for_a_workspace_that_is_not_there() {
    let desk = Desk::repository("refused");
    let Err(failed) = desk.gateway().flag("--session-workspace").flag("nothing").try_start().await else {
        panic!("it started")
    };
    assert!(failed.stderr.contains("no session workspace `nothing`"), "{failed:?}");
    desk.succeeds(&["start", "task"]);
    let shared = desk.gateway().flag("--session-workspace").flag("task").flag("--shared").try_start().await;
    let Err(failed) = shared else { panic!("it started") };
    assert!(failed.stderr.contains("session workspaces"), "{failed:?}");
}
