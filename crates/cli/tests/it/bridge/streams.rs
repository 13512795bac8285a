//! When an answer is JSON and when events, which stream carries a message, and how a client resumes a lost stream.

use std::collections::HashSet;

use serde_json::{Value, json};
use testkit::{
    EventStream, Gateway, MessageLog, NEWEST, RawClient, Reply, SseEvent, wait_until, workspace_dir,
};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// Revisions whose clients cannot read an event with empty data.
const WITHOUT_PRIMING: [&str; 3] = ["2024-11-05", "2025-03-26", "2025-06-18"];

/// Far longer than any test, so such a call ends only by being cancelled, or with its session.
const FOREVER_MS: u64 = 3_600_000;

/// Long enough that the gateway chooses events over JSON.
const SLOW_MS: u64 = 400;

async fn gateway_and_client(version: &str) -> (Gateway, RawClient) {
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open_version(version).await;
    (gateway, client)
}

/// Posts a call with a progress token.
async fn post_call_with_token(
    client: &RawClient,
    id: &Value,
    token: Value,
    tool: &str,
    arguments: Value,
) -> Reply {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}});
    client.post_request(id, "tools/call", Some(params)).await
}

/// Starts a call that runs until it is cancelled.
async fn start_endless_call(client: &RawClient, id: &Value) -> EventStream {
    client.post_tool_call(id, "sleep", json!({"ms": FOREVER_MS})).await.into_events()
}

async fn cancel(client: &RawClient, id: &Value) {
    let reply = client.notify("notifications/cancelled", Some(json!({"requestId": id}))).await;
    assert_eq!(reply.status, 202);
}

/// Makes the server send `text` as a log message during a batch, whose own answer cannot carry it. When this
/// returns, the message has been routed.
async fn log_in_batch(client: &RawClient, text: &str) {
    let call = json!([{
        "jsonrpc": "2.0",
        "id": client.next_id(),
        "method": "tools/call",
        "params": {"name": "log", "arguments": {"text": text}},
    }]);
    let reply = client.post(call.to_string()).await;
    assert_eq!(reply.json()[0]["result"]["content"][0]["text"], "logged");
}

async fn all_events(events: &mut EventStream) -> Vec<SseEvent> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event);
    }
    all
}

fn log_text(message: &Value) -> &str {
    message["params"]["data"].as_str().unwrap_or_else(|| panic!("no log message: {message}"))
}

fn progress_steps(messages: &[Value]) -> Vec<u64> {
    messages.iter().filter_map(|message| message["params"]["progress"].as_u64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quick_answer_with_nothing_before_it_is_plain_json() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    // On a busy machine even an echo may take too long for JSON.
    wait_until("a quick call is answered with JSON", async || {
        let reply = client.post_tool_call(&client.next_id(), "echo", json!({"text": "x"})).await;
        reply.header("content-type") == Some("application/json")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_turns_the_answer_into_a_stream_while_the_call_runs() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    for token in [json!("a token"), json!(0), json!(123_456_789_012_345_678_u64)] {
        let id = client.next_id();
        let arguments = json!({"ms": FOREVER_MS, "progress_every_ms": 10});
        let mut events =
            post_call_with_token(&client, &id, token.clone(), "sleep", arguments).await.into_events();
        for step in [1, 2] {
            let message = events.next_message().await.unwrap();
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(
                (&message["params"]["progressToken"], &message["params"]["progress"]),
                (&token, &json!(step))
            );
        }
        cancel(&client, &id).await;
        let messages = events.remaining_messages().await;
        assert_eq!(messages.last().unwrap()["error"]["data"]["reason"], "cancelled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_answer_come_in_their_order_and_then_the_stream_ends() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let id = client.next_id();
    let reply = post_call_with_token(&client, &id, json!("t"), "test_tool_with_progress", json!({})).await;
    let mut events = reply.into_events();
    let messages = events.remaining_messages().await;
    assert_eq!(events.failure(), None, "closed, not torn");
    assert_eq!(progress_steps(&messages), [0, 50, 100]);
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[3]["id"], id);
    assert_eq!(messages[3]["result"]["content"][0]["text"], "Tool with progress executed successfully");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_answer_comes_on_a_stream_primed_for_clients_that_can_read_it() {
    let gateway = Gateway::unfenced().flags(["--retry", "2.5"]).start().await;
    let client = gateway.open().await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "sleep", json!({"ms": SLOW_MS})).await.into_events();
    let priming = events.next().await.unwrap();
    assert_eq!((priming.data.as_deref(), priming.retry, priming.event), (Some(""), Some(2500), None));
    assert!(priming.id.is_some_and(|id| !id.is_empty()));
    let answer = events.next().await.unwrap();
    assert_eq!(answer.message().unwrap()["result"]["content"][0]["text"], "slept");
    assert_eq!(events.next().await, None);
    for version in WITHOUT_PRIMING {
        let client = gateway.open_version(version).await;
        let id = client.next_id();
        let mut events = client.post_tool_call(&id, "sleep", json!({"ms": SLOW_MS})).await.into_events();
        let first = events.next().await.unwrap();
        assert_eq!((first.event.as_deref(), first.retry), (Some("message"), None), "{version}");
        assert_eq!(first.message().unwrap()["id"], id, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_get_stream_is_primed_for_clients_that_can_read_it() {
    let (gateway, client) = gateway_and_client(NEWEST).await;
    let priming = client.listen().await.next().await.unwrap();
    assert_eq!((priming.data.as_deref(), priming.id.is_some(), priming.retry), (Some(""), true, Some(1000)));
    for version in WITHOUT_PRIMING {
        let client = gateway.open_version(version).await;
        let mut events = client.listen().await;
        client.call_tool_for_text("notify_list_changed", json!({})).await;
        assert_eq!(events.next().await.unwrap().message().unwrap()["method"], LIST_CHANGED, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_says_that_nobody_may_buffer_it() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let id = client.next_id();
    let post = client.post_tool_call(&id, "sleep", json!({"ms": SLOW_MS})).await;
    let get = client.get_stream(None).await;
    for reply in [post, get] {
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        assert_eq!(reply.header("cache-control"), Some("no-cache, no-transform"));
        assert_eq!(reply.header("x-accel-buffering"), Some("no"));
        assert_eq!(reply.session_id(), client.session_id());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_message_of_a_call_comes_on_its_stream_even_if_another_is_open() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let mut listening = client.listen().await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "log", json!({"text": "of the call"})).await.into_events();
    let messages = events.remaining_messages().await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(
        (&messages[0]["method"], log_text(&messages[0])),
        (&json!("notifications/message"), "of the call")
    );
    assert_eq!(messages[1]["result"]["content"][0]["text"], "logged");
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    assert_eq!(listening.next_message().await.unwrap()["method"], LIST_CHANGED, "nothing came before");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_no_call_comes_on_the_get_stream() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let mut listening = client.listen().await;
    let exchange = client.call_tool_answering("notify_list_changed", json!({}), |_| Ok(Value::Null)).await;
    assert!(exchange.notifications.is_empty(), "{:?}", exchange.notifications);
    assert_eq!(listening.next_message().await.unwrap()["method"], LIST_CHANGED);
    client.call_tool_for_text("log_unowned", json!({"text": "of nobody"})).await;
    assert_eq!(log_text(&listening.next_message().await.unwrap()), "of nobody");
    let watched = json!({"uri": "test://watched-resource"});
    client.request("resources/subscribe", Some(watched.clone())).await;
    client.call_tool_for_text("notify_resource", watched.clone()).await;
    let updated = listening.next_message().await.unwrap();
    assert_eq!(
        (&updated["method"], &updated["params"]),
        (&json!("notifications/resources/updated"), &watched)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_get_stream_messages_wait_and_are_delivered_once() {
    let (_gateway, client) = gateway_and_client("2025-03-26").await;
    log_in_batch(&client, "first").await;
    log_in_batch(&client, "second").await;
    let mut events = client.listen().await;
    for text in ["first", "second"] {
        assert_eq!(log_text(&events.next_message().await.unwrap()), text);
    }
    let mut again = client.listen().await;
    log_in_batch(&client, "third").await;
    assert_eq!(log_text(&again.next_message().await.unwrap()), "third", "nothing is delivered twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_goes_to_exactly_one_stream() {
    let (_gateway, client) = gateway_and_client("2025-03-26").await;
    let mut listening = client.listen().await;
    let calls = [json!("a"), json!("b")];
    let arguments = json!({"ms": FOREVER_MS, "progress_every_ms": 5});
    let mut streams = Vec::new();
    for id in &calls {
        streams.push(
            post_call_with_token(&client, id, id.clone(), "sleep", arguments.clone()).await.into_events(),
        );
    }
    for number in 0..20 {
        log_in_batch(&client, &format!("log {number}")).await;
        client.call_tool_for_text("notify_list_changed", json!({})).await;
    }
    let (mut logs, mut changes) = (Vec::new(), 0);
    for (id, events) in calls.iter().zip(&mut streams) {
        cancel(&client, id).await;
        let messages = events.remaining_messages().await;
        let steps = progress_steps(&messages);
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "none twice: {steps:?}");
        let progress = messages.iter().filter(|message| message["method"] == "notifications/progress");
        assert!(progress.clone().all(|message| message["params"]["progressToken"] == *id));
        let others = messages.iter().filter(|message| message["method"] != "notifications/progress");
        for message in others.clone().filter(|message| message.get("method").is_some()) {
            logs.push(log_text(message).to_owned());
        }
        let answers: Vec<&Value> = others.filter(|message| message.get("method").is_none()).collect();
        assert_eq!(answers.len(), 1);
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["data"]["reason"]), (id, &json!("cancelled")));
    }
    assert!(client.delete().await.status.is_success());
    for message in listening.remaining_messages().await {
        if message["method"] == LIST_CHANGED {
            changes += 1;
        } else {
            logs.push(log_text(&message).to_owned());
        }
    }
    logs.sort_by_key(|text| text["log ".len()..].parse::<u32>().unwrap());
    let expected: Vec<String> = (0..20).map(|number| format!("log {number}")).collect();
    assert_eq!((logs, changes), (expected, 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_stream_of_a_call_is_resumed_with_exactly_the_rest() {
    let gateway = Gateway::unfenced().start().await;
    for version in [NEWEST, "2025-06-18", "2025-03-26"] {
        let client = gateway.open_version(version).await;
        let id = client.next_id();
        let arguments = json!({"ms": 600, "progress_every_ms": 150});
        let mut events =
            post_call_with_token(&client, &id, json!("t"), "sleep", arguments).await.into_events();
        let first = events.next_message().await.unwrap();
        assert_eq!(first["params"]["progress"], 1);
        let last_event_id = events.last_event_id().unwrap().to_owned();
        drop(events);
        let mut resumed = client.get_stream(Some(&last_event_id)).await.into_events();
        let messages = resumed.remaining_messages().await;
        assert_eq!(progress_steps(&messages), [2, 3, 4], "{version}: {messages:?}");
        assert_eq!(messages.len(), 4, "{version}: {messages:?}");
        assert_eq!(messages[3]["id"], id, "{version}");
        assert_eq!(messages[3]["result"]["content"][0]["text"], "slept", "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resuming_twice_from_one_event_replays_the_same() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let id = client.next_id();
    let reply = post_call_with_token(&client, &id, json!("t"), "test_tool_with_progress", json!({})).await;
    let all = all_events(&mut reply.into_events()).await;
    assert_eq!(all.len(), 5, "priming, three of progress, the answer: {all:?}");
    let message_events = |events: &[SseEvent]| -> Vec<SseEvent> {
        events.iter().filter(|event| event.message().is_some()).cloned().collect()
    };
    for (position, event) in all.iter().enumerate() {
        for _ in 0..2 {
            let mut resumed = client.get_stream(event.id.as_deref()).await.into_events();
            assert_eq!(message_events(&all_events(&mut resumed).await), message_events(&all[position + 1..]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_does_not_cancel_its_call() {
    let directory = workspace_dir("streams");
    let log = MessageLog::new(directory.join("messages"));
    let gateway =
        Gateway::unfenced().fixture_flags(["--message-log".as_ref(), log.path().as_os_str()]).start().await;
    let client = gateway.open().await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "sleep", json!({"ms": 1000})).await.into_events();
    let priming = events.next().await.unwrap().id.unwrap();
    drop(events);
    let mut resumed = client.get_stream(Some(&priming)).await.into_events();
    let messages = resumed.remaining_messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!((&messages[0]["id"], &messages[0]["result"]["content"][0]["text"]), (&id, &json!("slept")));
    assert!(log.with_method("notifications/cancelled").is_empty());
    assert_eq!(client.call_tool_for_text("cancelled_count", json!({})).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumption_takes_over_a_connection_that_is_still_open() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let id = client.next_id();
    let mut stale = start_endless_call(&client, &id).await;
    let priming = stale.next().await.unwrap().id.unwrap();
    let mut resumed = client.get_stream(Some(&priming)).await.into_events();
    assert_eq!(stale.next().await, None, "the older connection is closed without an answer");
    drop(stale);
    cancel(&client, &id).await;
    assert_eq!(resumed.next_message().await.unwrap()["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_get_takes_over_from_the_first() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let mut first = client.listen().await;
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    assert_eq!(first.next_message().await.unwrap()["method"], LIST_CHANGED);
    let mut second = client.listen().await;
    assert_eq!(first.next_message().await, None);
    assert_eq!(first.failure(), None, "closed, not torn");
    drop(first);
    client.call_tool_for_text("log_unowned", json!({"text": "for the second"})).await;
    assert_eq!(log_text(&second.next_message().await.unwrap()), "for the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_get_stream_is_resumed_with_exactly_the_rest() {
    let (_gateway, client) = gateway_and_client("2025-03-26").await;
    let mut events = client.listen().await;
    let mut ids = Vec::new();
    for text in ["one", "two"] {
        log_in_batch(&client, text).await;
        assert_eq!(log_text(&events.next_message().await.unwrap()), text);
        ids.push(events.last_event_id().unwrap().to_owned());
    }
    drop(events);
    log_in_batch(&client, "three").await;
    for (id, expected) in [(&ids[1], &["three"][..]), (&ids[0], &["two", "three"])] {
        let mut resumed = client.get_stream(Some(id)).await.into_events();
        for text in expected {
            assert_eq!(log_text(&resumed.next_message().await.unwrap()), *text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_id_that_the_session_never_gave_is_refused() {
    let (gateway, client) = gateway_and_client(NEWEST).await;
    let other = gateway.open().await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "sleep", json!({"ms": SLOW_MS})).await.into_events();
    let known = events.next().await.unwrap().id.unwrap();
    for bad in ["", "garbage", "99-1", "1-x", "-", "18446744073709551616-0", "1-1-1"] {
        let reply = client.get_stream(Some(bad)).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (400, &json!(-32000)), "{bad:?}");
    }
    assert_eq!(other.get_stream(Some(&known)).await.status, 400, "the event of another session");
    let mut resumed = client.get_stream(Some(&known)).await.into_events();
    assert_eq!(resumed.remaining_messages().await.last().unwrap()["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_stream_closes_before_the_answer_which_is_delivered_on_resumption() {
    let gateway = Gateway::unfenced().flags(["--park-after", "0.3", "--retry", "0.05"]).start().await;
    let client = gateway.open().await;
    let mut listening = client.listen().await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "sleep", json!({"ms": 5000})).await.into_events();
    let parked = all_events(&mut events).await;
    assert_eq!((parked[0].data.as_deref(), parked[0].retry), (Some(""), Some(50)), "primed: {parked:?}");
    assert_eq!(parked.last().unwrap().retry, Some(50), "told when to come back: {parked:?}");
    assert!(parked.iter().all(|event| event.message().is_none()), "no answer yet: {parked:?}");
    assert_eq!(events.failure(), None, "closed, not torn");
    let mut last_event_id = events.last_event_id().unwrap().to_owned();
    let answer = loop {
        let mut resumed = client.get_stream(Some(&last_event_id)).await.into_events();
        let messages = resumed.remaining_messages().await;
        if let Some(answer) = messages.into_iter().next() {
            break answer;
        }
        resumed.last_event_id().unwrap().clone_into(&mut last_event_id);
    };
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &json!("slept")));
    client.call_tool_for_text("notify_list_changed", json!({})).await;
    let message = listening.next_message().await.expect("the stream of no call is not parked");
    assert_eq!(message["method"], LIST_CHANGED);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_clients_that_cannot_resume_are_not_parked() {
    let gateway = Gateway::unfenced().flags(["--park-after", "0.2"]).start().await;
    for version in WITHOUT_PRIMING {
        let client = gateway.open_version(version).await;
        let id = client.next_id();
        let mut events = client.post_tool_call(&id, "sleep", json!({"ms": 800})).await.into_events();
        let messages = events.remaining_messages().await;
        assert_eq!(messages.len(), 1, "{version}: {messages:?}");
        assert_eq!(messages[0]["id"], id, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_while_a_stream_is_parked_wait_for_its_reader() {
    let gateway = Gateway::unfenced().flags(["--park-after", "0.2"]).start().await;
    let client = gateway.open().await;
    let id = client.next_id();
    let arguments = json!({"ms": 4000, "progress_every_ms": 400});
    let mut events = post_call_with_token(&client, &id, json!("t"), "sleep", arguments).await.into_events();
    let mut messages = events.remaining_messages().await;
    assert!(messages.iter().all(|message| message.get("id").is_none()), "{messages:?}");
    while messages.last().is_none_or(|message| message.get("id").is_none()) {
        let last_event_id = events.last_event_id().unwrap().to_owned();
        events = client.get_stream(Some(&last_event_id)).await.into_events();
        messages.extend(events.remaining_messages().await);
    }
    assert_eq!(progress_steps(&messages), (1..=10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_loses_notifications_and_never_the_answer() {
    const BATCHES: usize = 32;
    const LINES: usize = 1000;
    let gateway = Gateway::unfenced().start().await;
    let client = gateway.open_version("2025-03-26").await;
    let id = client.next_id();
    let mut events = client.post_tool_call(&id, "ask", json!({"kind": "ping"})).await.into_events();
    let question = events.next_message().await.unwrap();
    assert_eq!(question["method"], "ping");
    // More than the sockets can buffer.
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x".repeat(2000)}});
    let lines = vec![notification.to_string(); LINES].join("\n");
    for number in 0..BATCHES {
        let flood = json!([{
            "jsonrpc": "2.0",
            "id": format!("flood {number}"),
            "method": "tools/call",
            "params": {"name": "raw_stdout", "arguments": {"line": lines}},
        }]);
        let reply = client.post(flood.to_string()).await;
        assert_eq!(reply.json()[0]["result"]["content"][0]["text"], "written");
    }
    assert_eq!(client.respond(&question["id"], json!({})).await.status, 202);
    let messages = events.remaining_messages().await;
    let (answer, notifications) = messages.split_last().unwrap();
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&id, &json!("{}")));
    let dropped = usize::try_from(gateway.counter("dropped_notifications").await).unwrap();
    assert!(dropped > 0, "the buffer is bounded");
    assert_eq!(notifications.len() + dropped, BATCHES * LINES, "delivered or counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_ids_are_unique_across_the_streams_of_a_session() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let mut listening = client.listen().await;
    let mut events = Vec::new();
    for number in 0..3 {
        let id = client.next_id();
        let reply =
            post_call_with_token(&client, &id, json!(number), "test_tool_with_progress", json!({})).await;
        events.extend(all_events(&mut reply.into_events()).await);
        client.call_tool_for_text("notify_list_changed", json!({})).await;
    }
    assert!(client.delete().await.status.is_success());
    events.extend(all_events(&mut listening).await);
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_deref().unwrap()).collect();
    assert_eq!(ids.len(), 3 * 5 + 4, "{ids:?}");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_ends_its_streams_and_answers_its_calls() {
    let (_gateway, client) = gateway_and_client(NEWEST).await;
    let mut listening = client.listen().await;
    let id = client.next_id();
    let mut running = start_endless_call(&client, &id).await;
    assert!(client.delete().await.status.is_success());
    let answer = running.next_message().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (&id, &json!("session_ended")));
    assert_eq!((running.next_message().await, listening.next_message().await), (None, None));
    assert_eq!((running.failure(), listening.failure()), (None, None), "closed, not torn");
}

/// Takes about 15 seconds, after which the gateway sends a comment on a quiet stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_is_kept_alive_by_comments() {
    let (_gateway, client) = gateway_and_client("2025-06-18").await;
    let mut running = start_endless_call(&client, &client.next_id()).await;
    let mut listening = client.listen().await;
    for events in [&mut running, &mut listening] {
        let event = events.next().await.unwrap();
        assert!(event.comment.is_some(), "{event:?}");
        assert_eq!((event.data, event.id), (None, None));
    }
}
