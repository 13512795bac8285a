//! Calls that were running when their gateway ended: named, never lost silently, never run twice.

use serde_json::{Value, json};
use testkit::{MessageLog, RawClient, wait_until};

use super::{Site, open_in, works_in};

const FOREVER_MS: u64 = 3_600_000;

/// Starts a call that does not end by itself. Returns the id of an event of its stream.
async fn begin(client: &RawClient, id: &Value) -> String {
    let mut events = client.post_tool_call(id, "sleep", json!({"ms": FOREVER_MS})).await.into_events();
    let first = events.next().await.unwrap();
    first.id.unwrap()
}

#[tokio::test]
async fn a_call_in_flight_has_an_unknown_outcome_on_its_resumed_stream() {
    let mut site = Site::new("in-flight");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let event = begin(&client, &json!("my call")).await;
    // It is written soon, not at once.
    let writes =
        async || std::fs::metadata(site.state.join("sessions/sessions.db-wal")).map_or(0, |log| log.len());
    let before = writes().await;
    wait_until("the call is written", async || writes().await != before || before > 0).await;
    gateway.terminate().await;
    let _gateway = site.start_fixture().await;
    let mut resumed = client.get_stream(Some(&event)).await.into_events();
    let answer = resumed.next_message().await.unwrap();
    assert_eq!(answer["id"], "my call");
    assert_eq!(answer["error"]["data"], json!({"reason": "gateway_restarted", "outcome": "unknown"}));
    assert_eq!(resumed.next_message().await, None, "nothing follows an answer");
    let back = works_in(&client).await;
    let lost = &back["result"]["_meta"]["io.ringfence/restored"]["lost"];
    assert_eq!(lost, &json!([{"id": "my call", "method": "tools/call", "tool": "sleep"}]));
}

#[tokio::test]
async fn an_answer_that_was_not_read_is_there_after_the_restart() {
    let mut site = Site::new("unread");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let mut events = client.post_tool_call(&json!(77), "sleep", json!({"ms": 1500})).await.into_events();
    let event = events.next().await.unwrap().id.unwrap();
    drop(events);
    wait_until("the call is over", async || {
        gateway.report().await["counters"]["calls"] == 2 && in_flight(&client).await == 0
    })
    .await;
    gateway.terminate().await;
    let _gateway = site.start_fixture().await;
    let mut resumed = client.get_stream(Some(&event)).await.into_events();
    let answer = resumed.next_message().await.unwrap();
    assert_eq!(answer["id"], 77);
    assert!(answer["result"]["content"].is_array(), "{answer}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_to_keep_counts_as_completed() {
    let mut site = Site::new("too-large");
    let mut gateway = site.start_fixture().await;
    let mut client = gateway.client();
    client.open(json!({}), testkit::NEWEST).await;
    let arguments = json!({"bytes": 300_000, "after_ms": 1500});
    let mut events = client.post_tool_call(&json!(78), "big", arguments).await.into_events();
    let event = events.next().await.unwrap().id.unwrap();
    drop(events);
    // The server answers in order.
    client.call_tool_for_text("echo", json!({"text": "after it"})).await;
    gateway.terminate().await;
    let _gateway = site.start_fixture().await;
    let mut resumed = client.get_stream(Some(&event)).await.into_events();
    let answer = resumed.next_message().await.unwrap();
    let data = &answer["error"]["data"];
    assert_eq!((&answer["id"], &data["outcome"]), (&json!(78), &json!("completed")), "{answer}");
    assert_eq!(
        (&data["reason"], &data["result"]),
        (&json!("gateway_restarted"), &json!("too_large_to_keep"))
    );
    assert!(data["bytes"].as_u64().unwrap() > 300_000, "{data}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.contains("completed") && words.contains("too large to keep"), "{words}");
    let back = client.call_tool("echo", json!({"text": "x"})).await;
    let lost = &back["result"]["_meta"]["io.ringfence/restored"]["lost"];
    assert_eq!((&lost[0]["id"], &lost[0]["answer_bytes"]), (&json!(78), &data["bytes"]), "{back}");
}

async fn in_flight(client: &RawClient) -> u64 {
    // A call that does not end by itself would still be answered by nothing but this.
    client.request("ping", None).await["result"].as_object().map_or(1, |_| 0)
}

#[tokio::test]
async fn no_call_is_sent_twice() {
    let mut site = Site::new("not-twice");
    let builder = || testkit::Gateway::builder().fixture_flags(["--message-log", "messages"]);
    let mut gateway = site.start(builder()).await;
    let client = open_in(&gateway, &site.project.path).await;
    let mut sent = Vec::new();
    for number in 0..3 {
        let text = format!("nonce {number}");
        client.call_tool_for_text("echo", json!({"text": text})).await;
        let _event = begin(&client, &json!(format!("sleep {number}"))).await;
        sent.push(text);
        gateway.kill().await;
        gateway = site.start(builder()).await;
    }
    works_in(&client).await;
    let log = MessageLog::new(site.project.join("messages"));
    let calls = log.with_method("tools/call");
    let count = |tool: &str| calls.iter().filter(|call| call["params"]["name"] == tool).count();
    assert_eq!((count("echo"), count("sleep")), (3, 3));
}
