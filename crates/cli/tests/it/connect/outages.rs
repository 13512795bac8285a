//! Each part breaks during a call: calls that depend on it fail or are answered later, all others continue, and
//! everything recovers by itself.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{RawClient, wait_until};

use super::{Connected, FOREVER_MS, Proxy, Site, error_of};

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// A call by another client of the session that runs until a part breaks.
struct EndlessCall {
    client: RawClient,
    id: Value,
    reply: testkit::Reply,
}

impl EndlessCall {
    async fn begin(connected: &Connected, tool: &str) -> Self {
        let (client, id) = (connected.colleague(), json!("endless"));
        let (server, own) = tool.split_once('_').unwrap();
        let before = connected.site.log(server).with_method("tools/call").len();
        let reply = client.post_tool_call(&id, tool, json!({"ms": FOREVER_MS})).await;
        wait_until(&format!("{own} runs"), async || {
            connected.site.log(server).with_method("tools/call").len() > before
        })
        .await;
        Self { client, id, reply }
    }

    async fn answer(self) -> Value {
        self.client
            .finish_exchange(&self.id, self.reply, |ask| panic!("unexpected request: {ask}"))
            .await
            .response
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_during_a_call_is_an_error_and_its_successor_is_found() {
    let mut connected = Connected::start("connect-gateway-killed").await;
    let before = connected.proxy.session_id();
    let call = connected.ide.begin("remote_sleep", json!({"ms": FOREVER_MS})).await;
    connected.site.log("remote").wait_for_calls("sleep", 1).await;
    connected.gateway.kill().await;
    connected.ide.echoes("local").await;
    let refused = connected.ide.call("remote_echo", json!({"text": "x"})).await;
    assert!(error_of(&refused).contains("could not be reached"), "{refused}");
    connected.ide.echoes("local").await;

    connected.replace_gateway().await;
    let answer = connected.ide.answer_to(&call).await;
    assert!(error_of(&answer).contains("whether the call took effect is unknown"), "{answer}");
    connected.ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
    connected.attached().await;
    assert_ne!(connected.proxy.session_id(), before, "it is a new session");
    let echo =
        connected.colleague().call_tool_for_text("local_echo", json!({"text": "attached again"})).await;
    assert_eq!(echo, "attached again");
    connected.ide.echoes("local").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attachment_comes_back_after_a_restart_without_any_call() {
    let mut connected = Connected::start("connect-restart-idle").await;
    connected.gateway.terminate().await;
    connected.replace_gateway().await;
    connected.attached().await;
    connected.ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_gateway_local_tools_work_and_it_is_found_later() {
    let site = Site::new("connect-no-gateway");
    let proxy = Proxy::start("http://127.0.0.1:1").await;
    let mut ide = site.ide(&proxy.url()).open().await;
    ide.echoes("local").await;
    let tools = ide.tools().await;
    assert!(tools.contains(&"filesystem_read_file".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"remote_echo".to_owned()), "{tools:?}");
    let away = ide.call("remote_echo", json!({"text": "x"})).await;
    assert!(error_of(&away).contains("gateway"), "{away}");

    let gateway = site.gateway().start().await;
    proxy.lead_to(gateway.url());
    ide.hear(|message| message["method"] == super::LIST_CHANGED).await;
    ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
    let connected = Connected { site, gateway, proxy, ide };
    connected.attached().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_network_is_survived_by_the_session_and_its_calls() {
    let mut connected = Connected::start("connect-cut").await;
    let before = connected.proxy.session_id();
    connected.ide.call_for_text("remote_state_set", json!({"key": "k", "value": "kept"})).await;
    let call = connected.ide.begin("remote_ask", json!({"kind": "elicitation", "tag": "q"})).await;
    connected.ide.hear(|message| message["method"] == "elicitation/create").await;
    connected.proxy.cut();
    connected.ide.echoes("local").await;
    connected.proxy.lead_to(connected.gateway.url());
    connected.attached().await;
    assert_eq!(connected.proxy.session_id(), before);
    let state = connected.ide.call_until_it_works("remote_state_get", &json!({"key": "k"})).await;
    assert_eq!(state, "kept");
    let params = json!({"requestId": call});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    connected.ide.process.send(&cancel).await;
    connected.ide.answer_to(&call).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_while_the_network_is_cut_is_answered_later() {
    let mut connected = Connected::start("connect-cut-answer").await;
    let arguments = json!({"ms": 600, "progress_every_ms": 200});
    let params = json!({"name": "remote_sleep", "arguments": arguments, "_meta": {"progressToken": "p"}});
    let call = connected.ide.send_request("tools/call", params).await;
    connected.ide.hear(|message| message["method"] == "notifications/progress").await;
    connected.proxy.cut();
    // This call starts later and takes longer, so the IDE's call has ended before it returns.
    connected.colleague().call_tool_for_text("remote_sleep", json!({"ms": 1000})).await;
    connected.proxy.lead_to(connected.gateway.url());
    let answer = connected.ide.answer_to(&call).await;
    assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_cut_during_a_call_fails_that_call_only() {
    let mut connected = Connected::start("connect-websocket-cut").await;
    let before = connected.proxy.session_id();
    let remote = connected.ide.begin("remote_ask", json!({"kind": "elicitation", "tag": "q"})).await;
    let question = connected.ide.hear(|message| message["method"] == "elicitation/create").await;
    let endless = EndlessCall::begin(&connected, "local_sleep").await;
    connected.proxy.cut_attachments();
    let answer = endless.answer().await;
    assert!(error_of(&answer).contains("client's machine is not connected"), "{answer}");

    let result = json!({"action": "decline"});
    connected.ide.process.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
    let answer = connected.ide.answer_to(&remote).await;
    assert!(answer.get("result").is_some(), "calls beside the WebSocket go on: {answer}");
    connected.attached().await;
    assert_eq!(connected.proxy.session_id(), before, "it is the same session");
    let echo = connected.colleague().call_tool_for_text("local_echo", json!({"text": "x"})).await;
    assert_eq!(echo, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_broke_unnoticed_is_replaced() {
    let connected = Connected::start("connect-unnoticed").await;
    let before = connected.proxy.attached();
    connected.proxy.cut_attachments_unnoticed();
    wait_until("the machine attaches again", async || connected.proxy.attached() > before).await;
    wait_until("its servers can be used again", async || {
        connected.colleague().call_tool("local_echo", json!({"text": "x"})).await.get("result").is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_killed_during_a_call_is_an_error_for_others() {
    let connected = Connected::start("connect-killed").await;
    let endless = EndlessCall::begin(&connected, "local_sleep").await;
    let colleague = connected.colleague();
    kill(connected.ide.pid());
    let answer = endless.answer().await;
    assert!(error_of(&answer).contains("client's machine is not connected"), "{answer}");
    let gone = colleague.call_tool("local_echo", json!({"text": "x"})).await;
    assert!(error_of(&gone).contains("not connected"), "{gone}");
    let report = connected.report().await.unwrap();
    assert_eq!((&report["attached"], &report["servers"]["local"]["enabled"]), (&json!(false), &json!(false)));
    assert!(report["servers"]["local"]["reason"].is_string(), "{report}");
    assert_eq!(colleague.call_tool_for_text("remote_echo", json!({"text": "x"})).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_server_killed_during_a_call_fails_it_and_runs_again() {
    let mut connected = Connected::start("connect-server-killed").await;
    let pid: u32 = connected.ide.call_for_text("local_pid", json!({})).await.parse().unwrap();
    let call = connected.ide.begin("local_sleep", json!({"ms": FOREVER_MS})).await;
    connected.site.log("local").wait_for_calls("sleep", 1).await;
    kill(pid);
    let answer = connected.ide.answer_to(&call).await;
    assert_eq!(answer["error"]["data"]["reason"], "upstream_exited", "{answer}");
    connected.ide.echoes("local").await;

    let colleague = connected.colleague();
    let pid: u32 = colleague.call_tool_for_text("local_pid", json!({})).await.parse().unwrap();
    let endless = EndlessCall::begin(&connected, "local_sleep").await;
    kill(pid);
    let answer = endless.answer().await;
    assert_eq!(answer["error"]["data"]["reason"], "upstream_exited", "{answer}");
    assert_eq!(colleague.call_tool_for_text("local_echo", json!({"text": "again"})).await, "again");
    connected.ide.echoes("local").await;
}
