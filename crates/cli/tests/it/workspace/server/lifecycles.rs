//! Lifecycles of the built-in server: shared processes, stdio, and restarts after a kill.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{Gateway, Project, StdioClient, process_exists, ringfence_binary, wait_until};
use tokio::process::Command;

use super::commands::sleepers;
use super::{Desk, Outcome, Session, TOOLS};

/// Checks that hold in every lifecycle.
async fn assert_serves(session: &Session, project: &Project) {
    let answer = session.client.request("tools/list", None).await;
    assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(TOOLS.len()), "{answer}");
    session.ok("write_file", json!({"path": "a.txt", "content": "one\n"})).await;
    let edit = json!({"path": "a.txt", "old_string": "one", "new_string": "two"});
    session.ok("search_replace", edit).await;
    assert_eq!(session.ok("read_file", json!({"path": "a.txt"})).await.data["content"], "two\n");
    assert_eq!(project.text("a.txt"), "two\n");
    assert_eq!(session.run("cat a.txt && pwd -P").await, format!("two\n{}", project.path.display()));
    let info = session.ok("session_info", json!({})).await;
    assert_eq!(info.data["workspace"], json!([project.path]));
    assert!(info.data["confinement"].is_object(), "{}", info.data);
    let params = json!({"uri": project.uri("a.txt")});
    let read = session.client.request("resources/read", Some(params)).await;
    assert_eq!(read["result"]["contents"][0]["text"], "two\n", "{read}");
    session.refused("read_file", json!({"path": "/etc/passwd"}), "outside_workspace").await;
}

async fn in_lifecycle(lifecycle: &str) -> Desk {
    let desk = Desk::with_flags(Project::new(lifecycle), &["--lifecycle", lifecycle]).await;
    assert_serves(&desk, &desk.project).await;
    desk
}

#[tokio::test]
async fn sessions_have_servers_of_their_own_by_default() {
    let desk = in_lifecycle("session").await;
    let other = Session::open(&desk.gateway).await;
    assert_serves(&other, &desk.project).await;
    other.refused("operation_status", json!({"operation_id": "op-2"}), "unknown_operation").await;
}

#[tokio::test]
async fn sessions_on_one_workspace_can_share_a_server() {
    let desk = in_lifecycle("workspace").await;
    let started = json!({"command": "sleep 10000", "is_background": true});
    let id = desk.ok("run_terminal_cmd", started).await.data["operation_id"].clone();
    let other = Session::open(&desk.gateway).await;
    assert_eq!(other.ok("operation_status", json!({"operation_id": id})).await.data["status"], "running");
    let project = Project::new("elsewhere");
    let apart = Session::open_in(&desk.gateway, &project.path).await;
    assert_serves(&apart, &project).await;
    apart.refused("operation_status", json!({"operation_id": id}), "unknown_operation").await;
}

#[tokio::test]
async fn everybody_can_share_one_server() {
    let desk = in_lifecycle("shared").await;
    let started = json!({"command": "sleep 10000", "is_background": true});
    let id = desk.ok("run_terminal_cmd", started).await.data["operation_id"].clone();
    let other = Session::open(&desk.gateway).await;
    assert_eq!(other.ok("operation_status", json!({"operation_id": id})).await.data["status"], "running");
    other.ok("cancel_operation", json!({"operation_id": id})).await;
}

#[tokio::test]
async fn a_server_for_each_call_ends_with_all_that_the_call_started() {
    let desk = in_lifecycle("call").await;
    desk.ok("run_terminal_cmd", json!({"command": "sleep 10000", "is_background": true})).await;
    wait_until("the command ended with its call", async || sleepers(&desk.gateway).is_empty()).await;
    assert_eq!(desk.ok("operation_status", json!({})).await.data["operations"], json!([]));
}

#[tokio::test]
async fn a_session_may_name_itself_where_its_server_is_its_own() {
    for (lifecycle, is_own) in [("session", true), ("workspace", false), ("shared", false), ("call", true)] {
        let desk = Desk::with_flags(Project::new(lifecycle), &["--lifecycle", lifecycle]).await;
        let id = desk.client.session_id().unwrap();
        let info = desk.call("session_info", json!({"session": id})).await;
        assert_eq!(!info.is_error(), is_own, "{lifecycle}: {}", info.text);
        let info = desk.call("session_info", json!({})).await;
        assert!(!info.is_error(), "{lifecycle}: {}", info.text);
    }
}

/// The processes of the built-in server below the gateway.
fn servers(gateway: &Gateway) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"workspace")
    };
    gateway.descendants().into_iter().filter(is_server).collect()
}

/// Kills the processes of the built-in server and waits until they are gone.
pub(super) async fn kill_servers(gateway: &Gateway) {
    let killed = servers(gateway);
    assert!(!killed.is_empty(), "{:?}", gateway.descendants());
    for pid in &killed {
        // A process may already have ended with another one.
        let _ = kill_process(Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap(), Signal::KILL);
    }
    wait_until("they are gone", async || !killed.iter().any(|pid| process_exists(*pid))).await;
}

#[tokio::test]
async fn a_killed_server_is_replaced_and_the_session_goes_on() {
    let desk = Desk::empty().await;
    desk.ok("write_file", json!({"path": "a.txt", "content": "kept\n"})).await;
    let handle = desk.handle().await;
    let started = json!({"command": "sleep 10000", "is_background": true});
    desk.ok("run_terminal_cmd", started).await;
    kill_servers(&desk.gateway).await;
    wait_until("its commands ended with it", async || sleepers(&desk.gateway).is_empty()).await;
    wait_until("the session answers again", async || {
        desk.client.call_tool("read_file", json!({"path": "a.txt"})).await["result"].is_object()
    })
    .await;
    assert_eq!(desk.handle().await, handle);
    let commands = desk.ok("operation_status", json!({})).await;
    assert_eq!(commands.column("operations", "status"), ["lost"]);
    assert_serves(&desk, &desk.project).await;
}

#[tokio::test]
async fn a_call_under_way_fails_when_the_server_is_killed() {
    let desk = Desk::empty().await;
    desk.run("true").await;
    let arguments = json!({"command": "sleep 10000", "wait_seconds": 45});
    let (answer, ()) = tokio::join!(desk.client.call_tool("run_terminal_cmd", arguments), async {
        wait_until("the command runs", async || !sleepers(&desk.gateway).is_empty()).await;
        kill_servers(&desk.gateway).await;
    });
    assert!(answer["error"]["message"].is_string(), "{answer}");
    wait_until("the session answers again", async || {
        desk.client.call_tool("list_dir", json!({})).await["result"].is_object()
    })
    .await;
}

#[tokio::test]
async fn a_command_cannot_kill_or_stop_its_server() {
    let desk = Desk::empty().await;
    let attacks = [
        "kill -9 $PPID; kill -STOP $PPID; echo after",
        "for pid in $(ls /proc | grep -E '^[0-9]+$'); do [ $pid = $$ ] || kill -9 $pid; done; echo after",
        "kill -9 -1; echo after",
    ];
    for (number, attack) in (1..).zip(attacks) {
        // An attack may kill the helper that starts commands; the next command starts a new one.
        wait_until("the attack runs", async || {
            let ran = desk.call("run_terminal_cmd", json!({"command": attack})).await;
            ran.data["output"].as_str().is_some_and(|output| output.ends_with("after\n"))
        })
        .await;
        let listed = desk.ok("operation_status", json!({})).await;
        let ids = listed.column("operations", "operation_id");
        assert!(ids.len() >= number && ids.contains(&"op-1".to_owned()), "{}", listed.text);
        assert_eq!(listed.list("operations").last().unwrap()["command"], attacks[0], "it is another server");
    }
}

/// Starts `ringfence` with these arguments and opens its built-in server over stdio.
async fn open_on_stdio(arguments: &[&str], project: &Project) -> StdioClient {
    let mut command = Command::new(ringfence_binary());
    command.args(arguments).current_dir(&project.path);
    let (client, opened) = StdioClient::open(&mut command, json!({})).await;
    assert_eq!(opened["result"]["serverInfo"]["name"], "ringfence-workspace", "{opened}");
    client
}

async fn call_on_stdio(client: &mut StdioClient, tool: &str, arguments: Value) -> Outcome {
    Outcome::of(tool, &client.call(tool, arguments).await)
}

#[tokio::test]
async fn without_a_command_stdio_serves_it_too() {
    for arguments in [&["stdio", "--structured"][..], &["--mode", "stdio", "--structured"]] {
        let project = Project::new("stdio");
        project.write("a.txt", "one\n");
        let mut server = open_on_stdio(arguments, &project).await;
        let answer = server.request("tools/list", json!({})).await;
        assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(TOOLS.len()), "{answer}");
        assert_eq!(
            call_on_stdio(&mut server, "read_file", json!({"path": "a.txt"})).await.data["content"],
            "one\n"
        );
        let ran = call_on_stdio(
            &mut server,
            "run_terminal_cmd",
            json!({"command": "echo two > a.txt; cat /root/x"}),
        )
        .await;
        assert_eq!(ran.data["status"], "exited", "{}", ran.text);
        assert_eq!(project.text("a.txt"), "two\n");
        let refused = call_on_stdio(&mut server, "read_file", json!({"path": "/etc/passwd"})).await;
        assert_eq!(refused.code(), "outside_workspace");
        let info = call_on_stdio(&mut server, "session_info", json!({})).await;
        assert!(info.data["confinement"].is_object(), "{}", info.data);
        server.close_stdin();
        assert!(server.exit_status().await.success());
    }
}

#[tokio::test]
async fn rules_hold_on_stdio_too() {
    let project = Project::new("stdio-rules");
    let arguments = ["stdio", "--block-tool", "list_dir", "--read-only"];
    let mut server = open_on_stdio(&arguments, &project).await;
    let answer = server.request("tools/list", json!({})).await;
    let listed = answer["result"]["tools"].to_string();
    assert!(!listed.contains("\"list_dir\"") && !listed.contains("\"write_file\""), "{listed}");
    assert!(listed.contains("\"run_terminal_cmd\"") && listed.contains("\"read_file\""), "{listed}");
}
