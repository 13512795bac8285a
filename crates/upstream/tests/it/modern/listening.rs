//! Messages that the server sends unasked: the stream that is opened for them, and subscriptions.

use serde_json::{Value, json};
use testkit::wait_until;

use super::{Listen, ModernServer, failure};
use crate::conversation::Conversation;
use crate::scripted_server::status;

const TOOLS: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

fn everything() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
    })
}

fn only_subscriptions() -> Value {
    json!({ "resources": { "subscribe": true } })
}

fn change(client: &Conversation, id: u64, method: &str, uri: &str) {
    client.request_with(id, &format!("resources/{method}"), json!({ "uri": uri }));
}

/// A server, its client, and their first listening stream, already acknowledged.
async fn listened_to(capabilities: Value) -> (ModernServer, Conversation, Listen) {
    let mut server = ModernServer::plain(capabilities).await;
    let client = server.greeted().await;
    let mut listen = server.next_listen().await;
    listen.acknowledge_all().await;
    (server, client, listen)
}

async fn assert_given_up(mut listen: Listen) {
    wait_until("the stream is given up", async || !listen.events.raw(": alive\n\n").await).await;
}

#[tokio::test]
async fn what_the_server_offers_is_asked_for_and_passed_on() {
    let mut server = ModernServer::plain(everything()).await;
    let mut client = server.greeted().await;
    let mut listen = server.next_listen().await;
    let expected =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
    assert_eq!(*listen.filter(), expected);
    assert_eq!(listen.seen.header("mcp-method"), Some("subscriptions/listen"));
    assert_eq!(listen.seen.header("mcp-protocol-version"), Some(super::MODERN));
    assert_eq!(listen.seen.message["params"]["_meta"][super::VERSION_KEY], super::MODERN);
    listen.acknowledge_all().await;
    listen.notify(TOOLS, json!({})).await;
    assert_eq!(client.message().await["method"], TOOLS, "the acknowledgement is not passed on");
}

#[tokio::test]
async fn a_server_that_offers_nothing_is_not_listened_to() {
    let server = ModernServer::plain(json!({ "tools": {}, "resources": {} })).await;
    let mut client = server.greeted().await;
    change(&client, 1, "subscribe", "a:1");
    assert_eq!(client.answer(1).await["error"]["code"], -32601);
    assert_eq!(server.server.count("POST", "subscriptions/listen"), 0);
}

#[tokio::test]
async fn after_a_break_everything_may_have_changed() {
    let (mut server, mut client, _listen) = listened_to(everything()).await;
    change(&client, 1, "subscribe", "a:1");
    let mut with_subscription = server.next_listen().await;
    with_subscription.acknowledge_all().await;
    assert_eq!(client.answer(1).await["result"], json!({}));
    drop(with_subscription);

    let mut again = server.next_listen().await;
    assert_eq!(again.filter()["resourceSubscriptions"], json!(["a:1"]));
    let honoured = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] });
    again.acknowledge(honoured).await;
    assert_eq!(client.message().await["method"], TOOLS);
    let update = client.message().await;
    assert_eq!((&update["method"], &update["params"]["uri"]), (&json!(UPDATED), &json!("a:1")));
    again.notify("notifications/b", json!({})).await;
    assert_eq!(client.message().await["method"], "notifications/b", "only what is honoured is told");
}

#[tokio::test]
async fn a_polite_end_is_no_end_either() {
    for is_result in [true, false] {
        let (mut server, mut client, mut listen) =
            listened_to(json!({ "tools": { "listChanged": true } })).await;
        if is_result {
            let result = listen.seen.result(json!({ "resultType": "complete" }));
            listen.events.message(None, &result).await;
        } else {
            let id = listen.seen.message["id"].clone();
            listen.notify("notifications/cancelled", json!({ "requestId": id })).await;
        }
        let mut again = server.next_listen().await;
        assert_ne!(again.seen.message["id"], listen.seen.message["id"]);
        again.acknowledge_all().await;
        assert_eq!(client.message().await["method"], TOOLS);
    }
}

#[tokio::test]
async fn a_subscription_is_answered_when_the_new_stream_is_acknowledged_and_the_old_one_is_given_up_after_that()
 {
    let (mut server, mut client, mut first) = listened_to(everything()).await;
    change(&client, 1, "subscribe", "a:1");
    let mut second = server.next_listen().await;
    assert_eq!(second.filter()["resourceSubscriptions"], json!(["a:1"]));
    assert_eq!(second.filter()["toolsListChanged"], true);
    // The old stream is read until the new one is acknowledged.
    first.notify(TOOLS, json!({})).await;
    assert_eq!(client.message().await["method"], TOOLS);
    second.acknowledge_all().await;
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    assert_given_up(first).await;
    second.notify(UPDATED, json!({ "uri": "a:1" })).await;
    assert_eq!(client.message().await["params"]["uri"], "a:1");

    change(&client, 2, "unsubscribe", "a:1");
    let mut third = server.next_listen().await;
    assert_eq!(third.filter().get("resourceSubscriptions"), None);
    third.acknowledge_all().await;
    assert_eq!(client.message().await["id"], 2);
    assert_given_up(second).await;
    assert_eq!(server.server.count("POST", "resources/subscribe"), 0);
}

#[tokio::test]
async fn a_stream_stands_only_while_there_is_something_to_hear() {
    let mut server = ModernServer::plain(only_subscriptions()).await;
    let mut client = server.greeted().await;
    change(&client, 1, "unsubscribe", "never:1");
    assert_eq!(client.answer(1).await["result"], json!({}));
    change(&client, 2, "subscribe", "a:1");
    let mut listen = server.next_listen().await;
    listen.acknowledge_all().await;
    assert_eq!(client.answer(2).await["result"], json!({}));
    change(&client, 3, "subscribe", "a:1");
    assert_eq!(client.answer(3).await["result"], json!({}), "it is subscribed to already");
    change(&client, 4, "unsubscribe", "a:1");
    assert_eq!(client.answer(4).await["result"], json!({}));
    assert_given_up(listen).await;
    assert_eq!(server.server.count("POST", "subscriptions/listen"), 1);
}

#[tokio::test]
async fn a_subscription_that_is_not_honoured_is_an_error() {
    let (mut server, mut client, _first) = listened_to(everything()).await;
    change(&client, 1, "subscribe", "a:1");
    let mut second = server.next_listen().await;
    let honoured =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
    second.acknowledge(honoured).await;
    let (reason, message) = client.failure(1).await;
    assert_eq!(reason, "upstream_not_subscribed");
    assert!(message.contains("does not report its changes"), "{message}");
    // The open stream is already the one that is wanted now.
    second.notify(TOOLS, json!({})).await;
    assert_eq!(client.message().await["method"], TOOLS);
    assert_eq!(server.server.count("POST", "subscriptions/listen"), 2);
}

#[tokio::test]
async fn a_server_that_refuses_to_be_listened_to_is_left_alone() {
    for http_status in [404, 400, 200] {
        let server = ModernServer::start(everything(), move |seen| async move {
            let refusal = failure(&seen, http_status, json!({ "code": -32601, "message": "no" }));
            (seen.method() == "subscriptions/listen").then_some(refusal)
        })
        .await;
        let mut client = server.greeted().await;
        wait_until("it is asked", async || server.server.count("POST", "subscriptions/listen") == 1).await;
        change(&client, 1, "subscribe", "a:1");
        assert_eq!(client.failure(1).await.0, "upstream_not_subscribed");
        client.request(2, "tools/list");
        assert!(client.answer(2).await["result"].is_object());
    }
}

#[tokio::test]
async fn a_server_that_cannot_just_now_is_asked_again() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let refusals = Arc::new(AtomicUsize::new(0));
    let mut server = ModernServer::start(json!({ "tools": { "listChanged": true } }), move |seen| {
        let refusals = Arc::clone(&refusals);
        async move {
            let refuses =
                seen.method() == "subscriptions/listen" && refusals.fetch_add(1, Ordering::SeqCst) < 2;
            refuses.then(|| status(502))
        }
    })
    .await;
    let mut client = server.greeted().await;
    let mut listen = server.next_listen().await;
    listen.acknowledge_all().await;
    assert_eq!(client.message().await["method"], TOOLS, "something may have changed meanwhile");
    assert_eq!(server.server.count("POST", "subscriptions/listen"), 3);
}

#[tokio::test]
async fn an_acknowledgement_of_nothing_ends_it() {
    let mut server = ModernServer::plain(everything()).await;
    let mut client = server.greeted().await;
    let mut listen = server.next_listen().await;
    listen.acknowledge(json!({})).await;
    assert_given_up(listen).await;
    client.request(1, "tools/list");
    assert_eq!(client.message().await["id"], 1);
    assert_eq!(server.server.count("POST", "subscriptions/listen"), 1);
}

#[tokio::test]
async fn there_is_a_bound_on_subscriptions() {
    let mut server = ModernServer::plain(only_subscriptions()).await;
    let mut client = server.greeted().await;
    let answering = tokio::spawn(async move {
        let mut standing = Vec::new();
        while let Some(mut listen) = server.listens.recv().await {
            listen.acknowledge_all().await;
            standing.push(listen);
        }
    });
    for id in 1..=1025 {
        change(&client, id, "subscribe", &format!("a:{id}"));
    }
    for _ in 1..=1025 {
        let answer = client.message().await;
        assert_eq!(answer["error"].is_object(), answer["id"] == 1025, "{answer}");
    }
    answering.abort();
}

#[tokio::test]
async fn a_cancelled_subscription_is_not_wanted_any_more() {
    let (mut server, mut client, _first) = listened_to(everything()).await;
    change(&client, 1, "subscribe", "a:1");
    let asked = server.next_listen().await;
    assert_eq!(asked.filter()["resourceSubscriptions"], json!(["a:1"]));
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
    );
    change(&client, 2, "subscribe", "b:2");
    drop(asked);
    let mut again = server.next_listen().await;
    // The stream with the cancelled subscription may be requested once more.
    while again.filter()["resourceSubscriptions"] != json!(["b:2"]) {
        again = server.next_listen().await;
    }
    again.acknowledge_all().await;
    assert_eq!(client.answer(2).await["result"], json!({}));
}

#[tokio::test]
async fn a_promise_of_more_than_was_asked_for_counts_for_nothing() {
    let mut server = ModernServer::plain(json!({ "tools": { "listChanged": true } })).await;
    let mut client = server.greeted().await;
    let more =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:1"] });
    server.next_listen().await.acknowledge(more.clone()).await;
    let mut again = server.next_listen().await;
    again.acknowledge(more).await;
    assert_eq!(client.message().await["method"], TOOLS);
    again.notify("notifications/b", json!({})).await;
    assert_eq!(client.message().await["method"], "notifications/b", "and nothing else was told");
}
