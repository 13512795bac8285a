//! Timeouts of calls, how progress extends them, and how calls are cancelled at the server.

use serde_json::{Value, json};
use testkit::{EventStream, Gateway, MessageLog, NEWEST, RawClient, WorkspaceDir, wait_until, workspace_dir};

/// Far longer than any test, so such a call ends only by being cancelled or timing out.
const FOREVER_MS: u64 = 3_600_000;

/// Short enough to wait for, and long enough for an answer on a busy machine.
const SHORT: [&str; 2] = ["--timeout", "5"];

/// A gateway with fixtures that log the messages they read.
struct Logged {
    gateway: Gateway,
    log: MessageLog,
    _directory: WorkspaceDir,
}

impl Logged {
    async fn start(flags: &[&str]) -> Self {
        let directory = workspace_dir("timeouts");
        let log = MessageLog::new(directory.join("messages"));
        let fixture_flags = ["--message-log".as_ref(), log.path().as_os_str()];
        let gateway = Gateway::unfenced().flags(flags).fixture_flags(fixture_flags).start().await;
        Self { gateway, log, _directory: directory }
    }

    async fn client(&self) -> RawClient {
        let mut client = self.gateway.client();
        client.open(json!({"elicitation": {}}), NEWEST).await;
        client
    }

    /// The id under which the server received a `sleep` of `ms`.
    fn upstream_id(&self, ms: u64) -> Value {
        let calls = self.log.with_method("tools/call");
        let call = calls.iter().find(|call| call["params"]["arguments"]["ms"] == ms);
        call.unwrap_or_else(|| panic!("no sleep of {ms} ms in {calls:?}"))["id"].clone()
    }

    /// Waits for `count` cancellations at the server and returns them.
    async fn cancellations(&self, count: usize) -> Vec<Value> {
        wait_until("the server was told", async || {
            self.log.with_method("notifications/cancelled").len() >= count
        })
        .await;
        self.log.with_method("notifications/cancelled")
    }
}

async fn sleep_with_progress(client: &RawClient, id: &Value, ms: u64, every_ms: u64) -> EventStream {
    let arguments = json!({"ms": ms, "progress_every_ms": every_ms});
    let params = json!({"name": "sleep", "arguments": arguments, "_meta": {"progressToken": "t"}});
    client.post_request(id, "tools/call", Some(params)).await.into_events()
}

async fn start_sleep(client: &RawClient, id: &Value, ms: u64) -> EventStream {
    client.post_tool_call(id, "sleep", json!({"ms": ms})).await.into_events()
}

async fn last_message(events: &mut EventStream) -> Value {
    events.remaining_messages().await.pop().unwrap()
}

#[track_caller]
fn assert_timed_out(answer: &Value, id: &Value, flag: &str) {
    assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (id, &json!("timeout")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains(flag), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_progress_is_given_up_and_taken_back_from_the_server() {
    let logged = Logged::start(&SHORT).await;
    let client = logged.client().await;
    let id = json!("slow one");
    let mut events = start_sleep(&client, &id, FOREVER_MS).await;
    assert_timed_out(&last_message(&mut events).await, &id, "--timeout");
    let cancellations = logged.cancellations(1).await;
    assert_eq!(cancellations.len(), 1);
    assert_eq!(cancellations[0]["params"]["requestId"], logged.upstream_id(FOREVER_MS));
    let pid = client.call_tool_for_text("pid", json!({})).await;
    assert_eq!(client.call_tool_for_text("cancelled_count", json!({})).await, "1");
    assert_eq!(client.call_tool_for_text("pid", json!({})).await, pid, "the process goes on");
    assert_eq!(logged.gateway.counter("timeouts").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_after_its_call_was_given_up_is_dropped_and_counted() {
    let logged = Logged::start(&SHORT).await;
    let client = logged.client().await;
    let mut listening = client.get_stream(None).await.into_events();
    let mut events = start_sleep(&client, &json!(1), FOREVER_MS).await;
    assert_timed_out(&last_message(&mut events).await, &json!(1), "--timeout");
    let late = json!({"jsonrpc": "2.0", "id": logged.upstream_id(FOREVER_MS), "result": {"late": true}});
    let exchange =
        client.call_tool_answering("raw_stdout", json!({"line": late.to_string()}), |_| Ok(json!({}))).await;
    assert_eq!(exchange.response["result"]["content"][0]["text"], "written");
    assert_eq!(logged.gateway.counter("late_answers").await, 1);
    assert_eq!(logged.gateway.counter("stray_answers").await, 0);
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    let first = listening.next_message().await.unwrap();
    assert_eq!(first["method"], "notifications/tools/list_changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_extends_a_call_beyond_the_timeout() {
    let logged = Logged::start(&SHORT).await;
    let (client, control) = (logged.client().await, logged.client().await);
    let mut silent = start_sleep(&control, &json!(1), FOREVER_MS).await;
    let mut lively = sleep_with_progress(&client, &json!(1), 11_000, 100).await;
    assert_timed_out(&last_message(&mut silent).await, &json!(1), "--timeout");
    let answer = last_message(&mut lively).await;
    assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_does_not_extend_a_call_beyond_the_maximum() {
    let logged = Logged::start(&["--timeout", "5", "--max-timeout", "6"]).await;
    let client = logged.client().await;
    let mut events = sleep_with_progress(&client, &json!(1), FOREVER_MS, 50).await;
    assert_timed_out(&last_message(&mut events).await, &json!(1), "--max-timeout");
    let cancellations = logged.cancellations(1).await;
    assert_eq!(cancellations[0]["params"]["requestId"], logged.upstream_id(FOREVER_MS));
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "after"})).await, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeout_stands_still_while_the_client_is_asked() {
    let logged = Logged::start(&SHORT).await;
    let (client, clock) = (logged.client().await, logged.client().await);
    let id = json!("asking");
    let reply = client.post_tool_call(&id, "ask", json!({"kind": "elicitation", "tag": "x"})).await;
    let mut events = reply.into_events();
    let question = events.next_message().await.unwrap();
    for round in 0..2 {
        let mut other = start_sleep(&clock, &json!(round), FOREVER_MS).await;
        assert_timed_out(&last_message(&mut other).await, &json!(round), "--timeout");
    }
    client.respond(&question["id"], json!({"action": "decline"})).await;
    let answer = events.next_message().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], json!({"action": "decline"}).to_string(), "{answer}");
    let mut after = start_sleep(&client, &json!("after"), FOREVER_MS).await;
    assert_timed_out(&last_message(&mut after).await, &json!("after"), "--timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_a_batch_are_given_up_one_by_one() {
    let logged = Logged::start(&SHORT).await;
    let mut client = logged.gateway.client();
    client.open(json!({}), "2025-03-26").await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sleep", "arguments": {"ms": FOREVER_MS}}},
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
    ]);
    let reply = client.post(batch.to_string()).await;
    let answers = reply.json();
    let find = |id: u64| answers.as_array().unwrap().iter().find(|answer| answer["id"] == id).unwrap();
    assert_timed_out(find(1), &json!(1), "--timeout");
    assert_eq!(find(2)["result"], json!({}));
}

/// Opens two sessions, each with two calls in flight under the same ids, and cancels one call of one session.
async fn cancellation_hits_exactly_the_right_call(lifecycle: &str) {
    let logged = Logged::start(&[lifecycle]).await;
    let (a, b) = (logged.client().await, logged.client().await);
    let ids = [json!(10), json!("10")];
    let mut streams = Vec::new();
    for (client, number) in [(&a, 0), (&b, 2)] {
        for (id, offset) in ids.iter().zip(0..) {
            let ms = FOREVER_MS + number + offset;
            streams.push((client, id, ms, start_sleep(client, id, ms).await));
        }
    }
    let (_, id, ms, mut cancelled) = streams.remove(1);
    let params = json!({"requestId": id, "reason": "the user said so"});
    assert_eq!(a.notify("notifications/cancelled", Some(params)).await.status, 202);
    let answer = last_message(&mut cancelled).await;
    assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (id, &json!("cancelled")));
    let upstream_id = logged.upstream_id(ms);
    let told = logged.cancellations(1).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["params"], json!({"requestId": upstream_id, "reason": "the user said so"}));
    let at_a = a.call_tool("cancelled_count", json!({})).await;
    assert_eq!(at_a["result"]["structuredContent"], json!({"cancelled": [upstream_id]}));
    if lifecycle == "--session-isolation" {
        assert_eq!(b.call_tool_for_text("cancelled_count", json!({})).await, "0");
    }
    for (client, id, ms, mut events) in streams {
        let count = logged.log.with_method("notifications/cancelled").len();
        client.notify("notifications/cancelled", Some(json!({"requestId": id}))).await;
        let answer = last_message(&mut events).await;
        assert_eq!(answer["error"]["data"]["reason"], "cancelled", "it was still running: {answer}");
        let told = logged.cancellations(count + 1).await;
        assert_eq!(told[count]["params"]["requestId"], logged.upstream_id(ms));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_hits_exactly_the_right_call_of_an_isolated_server() {
    cancellation_hits_exactly_the_right_call("--session-isolation").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_hits_exactly_the_right_call_of_a_shared_server() {
    cancellation_hits_exactly_the_right_call("--shared").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_of_nothing_is_not_passed_on() {
    let logged = Logged::start(&[]).await;
    let (client, other) = (logged.client().await, logged.client().await);
    let mut events = start_sleep(&client, &json!(10), FOREVER_MS).await;
    for nothing in
        [json!({"requestId": 11}), json!({"requestId": "10"}), json!({"requestId": null}), json!({})]
    {
        assert_eq!(client.notify("notifications/cancelled", Some(nothing)).await.status, 202);
    }
    other.notify("notifications/cancelled", Some(json!({"requestId": 10}))).await;
    assert_eq!(other.call_tool_for_text("cancelled_count", json!({})).await, "0");
    assert_eq!(client.call_tool_for_text("cancelled_count", json!({})).await, "0");
    assert!(logged.log.with_method("notifications/cancelled").is_empty());
    client.notify("notifications/cancelled", Some(json!({"requestId": 10}))).await;
    assert_eq!(last_message(&mut events).await["error"]["data"]["reason"], "cancelled");
}
