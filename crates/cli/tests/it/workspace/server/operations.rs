//! Long commands: operations to wait for, inspect and cancel.

use serde_json::{Value, json};
use testkit::{Gateway, wait_until};

use super::commands::sleepers;
use super::{Desk, Outcome};

/// Starts a command without waiting for it, and returns the id of its operation.
async fn start(desk: &Desk, command: &str) -> String {
    let arguments = json!({"command": command, "wait_seconds": 0});
    let started = desk.ok("run_terminal_cmd", arguments).await;
    assert_eq!(started.data["status"], "running", "{}", started.text);
    let id = started.data["operation_id"].as_str().unwrap().to_owned();
    assert!(started.text.contains(&format!("as {id}: await_operation waits for it")), "{}", started.text);
    id
}

/// A command that runs until a file appears in the workspace.
fn until_file(name: &str) -> String {
    format!("echo begun; until [ -e {name} ]; do sleep 0.02; done; echo ended")
}

async fn status(desk: &Desk, id: &str) -> Outcome {
    desk.ok("operation_status", json!({"operation_id": id})).await
}

#[tokio::test]
async fn a_long_command_gives_an_operation_that_can_be_awaited() {
    let desk = Desk::empty().await;
    let id = start(&desk, &until_file("go")).await;
    wait_until("its output is there", async || {
        status(&desk, &id).await.data["output"].as_str().is_some_and(|output| output.contains("begun"))
    })
    .await;
    let waited = desk.ok("await_operation", json!({"operation_id": id, "timeout": 0})).await;
    assert_eq!(waited.data["status"], "running");
    desk.project.write("go", "");
    let ended = desk.ok("await_operation", json!({"operation_id": id, "timeout": 45})).await;
    assert_eq!(ended.data["status"], "exited");
    assert_eq!(ended.data["exit_code"], 0);
    assert_eq!(ended.data["output"], "begun\nended\n");
    let again = desk.ok("await_operation", json!({"id": id})).await;
    assert_eq!(again.data["output"], "begun\nended\n");
}

#[tokio::test]
async fn operations_are_listed_with_the_newest_first() {
    let desk = Desk::empty().await;
    let none = desk.ok("operation_status", json!({})).await;
    assert_eq!(none.data["operations"], json!([]));
    desk.run("echo first").await;
    let id = start(&desk, &until_file("go")).await;
    let listed = desk.ok("operation_status", json!({})).await;
    assert_eq!(listed.column("operations", "status"), ["running", "exited"]);
    assert_eq!(listed.column("operations", "operation_id"), [id.as_str(), "op-1"]);
    assert_eq!(listed.data["operations"][1]["command"], "echo first");
    assert!(listed.data["operations"][0].get("output").is_none(), "{}", listed.data);
    assert!(listed.text.starts_with(&format!("{id}: running, ")), "{}", listed.text);
    for tool in ["operation_status", "await_operation", "cancel_operation"] {
        for unknown in ["op-99", "op-01", "nonsense"] {
            desk.refused(tool, json!({"operation_id": unknown}), "unknown_operation").await;
        }
    }
}

#[tokio::test]
async fn an_operation_is_cancelled_with_everything_it_started() {
    let desk = Desk::empty().await;
    let id = start(&desk, "sleep 10000 & setsid sleep 10000 & trap '' TERM; sleep 10000").await;
    wait_until("all of it runs", async || sleepers(&desk.gateway).len() == 3).await;
    let ended = desk.ok("cancel_operation", json!({"operation_id": id, "reason": "no more"})).await;
    assert_eq!(ended.data["status"], "cancelled");
    assert_eq!(sleepers(&desk.gateway), Vec::<u32>::new());
    let awaited = desk.call("await_operation", json!({"operation_id": id})).await;
    assert!(awaited.is_error());
    assert_eq!(awaited.data["status"], "cancelled");
    assert_eq!(desk.run("echo alive").await, "alive");
}

#[tokio::test]
async fn a_cancelled_call_ends_its_command() {
    let desk = Desk::empty().await;
    let arguments = json!({"command": "sleep 10000 & setsid sleep 10000 & sleep 10000", "wait_seconds": 45});
    let mut events = {
        let params = json!({
            "name": "run_terminal_cmd", "arguments": arguments, "_meta": {"progressToken": "token"},
        });
        desk.client.post_request(&json!("call"), "tools/call", Some(params)).await
    }
    .into_events();
    wait_until("the command runs", async || sleepers(&desk.gateway).len() == 3).await;
    let cancelled = json!({"requestId": "call", "reason": "enough"});
    desk.client.notify("notifications/cancelled", Some(cancelled)).await;
    wait_until("nothing of it is left", async || sleepers(&desk.gateway).is_empty()).await;
    let rest = events.remaining_messages().await;
    assert!(!rest.iter().any(|message| message["result"].is_object()), "{rest:?}");
    // The processes end before the status changes.
    wait_until("it is cancelled", async || status(&desk, "op-1").await.data["status"] == "cancelled").await;
    assert_eq!(desk.run("echo alive").await, "alive");
}

#[tokio::test]
async fn progress_carries_the_output_while_a_command_runs() {
    let desk = Desk::empty().await;
    let params = json!({
        "name": "run_terminal_cmd",
        "arguments": {"command": until_file("go"), "wait_seconds": 45},
        "_meta": {"progressToken": "token"},
    });
    let mut events = desk.client.post_request(&json!("call"), "tools/call", Some(params)).await.into_events();
    let progress = events.next_message().await.unwrap();
    assert_eq!(progress["method"], "notifications/progress", "{progress}");
    assert_eq!(progress["params"]["progressToken"], "token");
    assert_eq!(progress["params"]["message"], "begun\n");
    desk.project.write("go", "");
    let answer = loop {
        let message = events.next_message().await.unwrap();
        if message.get("result").is_some() {
            break message;
        }
    };
    assert_eq!(answer["result"]["structuredContent"]["output"], "begun\nended\n");
}

/// The gateway gives up on a call without progress sooner than this command ends.
#[tokio::test]
async fn a_client_can_wait_for_a_quiet_command_longer_than_the_gateway_waits_for_progress() {
    let project = testkit::Project::new("patient");
    let gateway = Gateway::built_in().flags(["--no-config", "--timeout", "20"]);
    let gateway = gateway.current_dir(&project.path).start().await;
    let client = gateway.open().await;
    let params = json!({
        "name": "run_terminal_cmd",
        "arguments": {"command": "sleep 25; echo done", "wait_seconds": 300},
        "_meta": {"progressToken": "token"},
    });
    let mut events = client.post_request(&json!("call"), "tools/call", Some(params)).await.into_events();
    let messages = events.remaining_messages().await;
    let answer = messages.iter().find(|message| message["id"] == "call").unwrap();
    assert!(answer["result"].to_string().contains("done"), "{messages:?}");
}

#[tokio::test]
async fn without_a_token_there_is_no_progress() {
    let desk = Desk::empty().await;
    let (call, go) = tokio::join!(
        desk.client.call_tool_answering(
            "run_terminal_cmd",
            json!({"command": until_file("go"), "wait_seconds": 45}),
            |_| Ok(json!({})),
        ),
        async {
            wait_until("the command has written", async || {
                let listed = desk.call("operation_status", json!({"operation_id": "op-1"})).await;
                listed.data["output"].as_str().is_some_and(|output| output.contains("begun"))
            })
            .await;
            desk.project.write("go", "");
        }
    );
    let () = go;
    assert_eq!(call.notifications, Vec::<Value>::new());
    assert_eq!(call.response["result"]["structuredContent"]["exit_code"], 0);
}

#[tokio::test]
async fn a_command_ends_when_its_time_is_over() {
    let desk = Desk::empty().await;
    let arguments =
        json!({"command": "echo begun; sleep 10000 & sleep 10000", "timeout": 5, "wait_seconds": 45});
    let ended = desk.call("run_terminal_cmd", arguments).await;
    assert!(ended.is_error());
    assert_eq!(ended.data["status"], "timed_out");
    assert_eq!(ended.data["output"], "begun\n");
    assert!(ended.text.contains("its time was over"), "{}", ended.text);
    assert_eq!(sleepers(&desk.gateway), Vec::<u32>::new());
    let arguments = json!({"command": "true", "timeout": 0});
    desk.refused("run_terminal_cmd", arguments, "bad_arguments").await;
}

#[tokio::test]
async fn a_background_command_returns_at_once_and_runs_on() {
    let desk = Desk::empty().await;
    let arguments =
        json!({"command": "python3 -m http.server 0 --bind 127.0.0.1 2>&1", "is_background": true});
    let started = desk.ok("run_terminal_cmd", arguments).await;
    assert_eq!(started.data["status"], "running");
    let id = started.data["operation_id"].clone();
    desk.run("echo meanwhile").await;
    let shown = desk.ok("operation_status", json!({"operation_id": id})).await;
    assert_eq!(shown.data["status"], "running");
    let ended = desk.ok("cancel_operation", json!({"operation_id": id})).await;
    assert_eq!(ended.data["status"], "cancelled");
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_is_told_and_can_be_ended() {
    let desk = Desk::empty().await;
    let ran =
        desk.ok("run_terminal_cmd", json!({"command": "sleep 10000 >/dev/null 2>&1 & echo left"})).await;
    assert_eq!(ran.data["exit_code"], 0);
    assert_eq!(ran.data["left_running"], 1);
    assert!(ran.text.contains("1 processes run on in the background"), "{}", ran.text);
    // The shell's child may not have executed `sleep` yet.
    wait_until("it sleeps", async || sleepers(&desk.gateway).len() == 1).await;
    let ended = desk.ok("cancel_operation", json!({"operation_id": ran.data["operation_id"]})).await;
    assert_eq!(ended.data["exit_code"], 0);
    assert_eq!(sleepers(&desk.gateway), Vec::<u32>::new());
}

#[tokio::test]
async fn too_many_commands_at_once_are_refused_until_one_ends() {
    let desk = Desk::empty().await;
    let mut running = Vec::new();
    for _ in 0..8 {
        running.push(start(&desk, "sleep 10000").await);
    }
    let refused =
        desk.refused("run_terminal_cmd", json!({"command": "echo ninth"}), "too_many_operations").await;
    assert!(refused.text.contains("op-1 (sleep 10000)"), "{}", refused.text);
    desk.ok("cancel_operation", json!({"operation_id": running[3]})).await;
    assert_eq!(desk.run("echo ninth").await, "ninth");
}

#[tokio::test]
async fn file_tools_answer_while_commands_run() {
    let desk = Desk::empty().await;
    let arguments = json!({"command": until_file("go"), "wait_seconds": 45});
    let (ran, ()) = tokio::join!(desk.ok("run_terminal_cmd", arguments), async {
        wait_until("the command runs", async || {
            desk.call("operation_status", json!({"operation_id": "op-1"})).await.data["status"] == "running"
        })
        .await;
        desk.ok("write_file", json!({"path": "go", "content": ""})).await;
    });
    assert_eq!(ran.data["exit_code"], 0);
}
