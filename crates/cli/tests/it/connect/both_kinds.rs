//! Local servers and servers behind the gateway, as the IDE sees them: one list, and all of MCP passes through.

use std::collections::HashSet;

use serde_json::{Value, json};
use testkit::{descendants, process_exists, text_of, wait_until};

use super::{Connected, FOREVER_MS, Site};

#[tokio::test(flavor = "multi_thread")]
async fn an_ide_sees_every_tool_once_and_calls_both_kinds() {
    let mut connected = Connected::start("connect-both").await;
    let ide = &mut connected.ide;
    let tools = ide.tools().await;
    for tool in ["local_echo", "remote_echo", "filesystem_read_file"] {
        assert_eq!(tools.iter().filter(|name| *name == tool).count(), 1, "{tool} in {tools:?}");
    }
    assert_eq!(tools.iter().collect::<HashSet<_>>().len(), tools.len(), "{tools:?}");
    ide.echoes("local").await;
    ide.echoes("remote").await;
    ide.call_for_text("filesystem_write_file", json!({"path": "made.txt", "content": "by the IDE"})).await;
    let made = std::fs::read_to_string(connected.site.project().join("made.txt")).unwrap();
    assert_eq!(made, "by the IDE");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_configuration_there_are_file_tools_here() {
    let site = Site::new("connect-built-in");
    let gateway = site.gateway().start().await;
    std::fs::write(site.project().join("here.txt"), "on this machine").unwrap();
    let mut ide = super::IdeBuilder::new(gateway.url(), site.project())
        .env("HOME", site.directory.join("home"))
        .env("XDG_CONFIG_HOME", site.directory.join("home"))
        .env("XDG_CACHE_HOME", site.directory.join("client-caches"))
        .open()
        .await;
    let text = ide.call_for_text("filesystem_read_file", json!({"path": "here.txt"})).await;
    assert!(text.contains("on this machine"), "{text}");
    ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_server_asks_the_user_and_gets_the_answer() {
    let mut connected = Connected::start("connect-ask").await;
    let ide = &mut connected.ide;
    for server in ["remote", "local"] {
        let call =
            ide.begin(&format!("{server}_ask"), json!({"kind": "elicitation", "tag": "which one?"})).await;
        let question = ide.hear(|message| message["method"] == "elicitation/create").await;
        assert_eq!(question["params"]["message"], "which one?", "{server}");
        let result = json!({"action": "accept", "content": {"answer": "this one"}});
        ide.process.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
        let answer = ide.answer_to(&call).await;
        assert!(text_of(&answer).contains("this one"), "{server}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_reaches_the_ide_from_both_kinds() {
    let mut connected = Connected::start("connect-progress").await;
    let ide = &mut connected.ide;
    for server in ["remote", "local"] {
        let name = format!("{server}_test_tool_with_progress");
        let params = json!({"name": name, "arguments": {}, "_meta": {"progressToken": server}});
        let call = ide.send_request("tools/call", params).await;
        for progress in [0, 50, 100] {
            let message = ide.hear(|message| message["method"] == "notifications/progress").await;
            let params = &message["params"];
            assert_eq!((&params["progressToken"], &params["progress"]), (&json!(server), &json!(progress)));
        }
        ide.answer_to(&call).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_ends_where_it_runs() {
    let mut connected = Connected::start("connect-cancel").await;
    for server in ["remote", "local"] {
        let ide = &mut connected.ide;
        let call = ide.begin(&format!("{server}_sleep"), json!({"ms": FOREVER_MS})).await;
        connected.site.log(server).wait_for_calls("sleep", 1).await;
        let params = json!({"requestId": call, "reason": "changed my mind"});
        ide.process
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
            .await;
        let answer = ide.answer_to(&call).await;
        assert_eq!(answer["error"]["data"]["reason"], "cancelled", "{answer}");
        wait_until("the server has heard it", async || {
            ide.call_for_text(&format!("{server}_cancelled_count"), json!({})).await == "1"
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_local_server_runs_before_it_is_called() {
    let mut connected = Connected::start("connect-lazy").await;
    assert!(connected.ide.tools().await.contains(&"local_echo".to_owned()));
    let connect = connected.ide.pid();
    let running = || {
        let is_local = |pid: &u32| {
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.contains("local.messages")
        };
        descendants(connect).into_iter().filter(is_local).collect::<Vec<u32>>()
    };
    wait_until("what was tried has ended", async || running().is_empty()).await;
    let calls = connected.site.log("local").with_method("tools/call");
    assert_eq!(calls, Vec::<Value>::new());
    let tried = connected.site.starts("local");

    let pid: u32 = connected.ide.call_for_text("local_pid", json!({})).await.parse().unwrap();
    assert!(process_exists(pid), "the control: it runs now");
    assert_eq!(running(), [pid]);
    assert_eq!(connected.site.starts("local"), tried + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_client_calls_its_workspace_is_only_a_label_for_the_gateway() {
    let connected = Connected::start("connect-label").await;
    let report = connected.report().await.unwrap();
    let remote = &report["servers"]["remote"];
    let project = connected.site.project().to_str().unwrap().to_owned();
    assert!(!remote.to_string().contains(&project), "{report}");
    let directory = connected.colleague().call_tool_for_text("remote_working_directory", json!({})).await;
    assert_ne!(directory, project);
    let directory = connected.colleague().call_tool_for_text("local_working_directory", json!({})).await;
    assert_eq!(directory, project, "the control: a server of the client's machine is there");
}
