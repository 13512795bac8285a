//! Tests against a real server that speaks only the newer revision, made with the official TypeScript SDK.

use std::collections::BTreeSet;

use serde_json::json;
use testkit::{RemoteServer, wait_until};

use crate::conversation::{Conversation, tool_text};

const NOTE: &str = "note://current";

async fn start() -> (RemoteServer, Conversation) {
    let server = RemoteServer::start_modern(&[]).await;
    let client = Conversation::greeted(&server.url).await;
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_prompts_and_resources_work() {
    let server = RemoteServer::start_modern(&[]).await;
    let mut client = Conversation::open(&server.url);
    client.initialize();
    let greeting = client.message().await;
    assert_eq!(greeting["result"]["serverInfo"]["name"], "http-server-ts2");
    assert_eq!(greeting["result"]["instructions"], "Every request on its own.");
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    client.add_fifty_times().await;
    client.request_with(60, "prompts/get", json!({ "name": "hello", "arguments": { "name": "you" } }));
    assert_eq!(client.answer(60).await["result"]["messages"][0]["content"]["text"], "Hello you");
    client.request_with(61, "resources/read", json!({ "uri": NOTE }));
    assert_eq!(client.answer(61).await["result"]["contents"][0]["text"], "nothing yet");
    client.request_with(62, "resources/read", json!({ "uri": "note://other" }));
    assert_eq!(client.answer(62).await["error"]["code"], -32602);
    client.request(63, "ping");
    assert_eq!(client.answer(63).await["result"], json!({}));
    client.request_with(64, "no/such", json!({}));
    assert_eq!(client.answer(64).await["error"]["code"], -32601);
}

#[tokio::test]
async fn progress_comes_before_the_answer_and_logs_only_when_wanted() {
    let (_server, mut client) = start().await;
    client.call_tool(1, "slow", json!({ "steps": 3, "pause_ms": 1 }));
    for step in 1..=3 {
        assert_eq!(client.message().await["params"]["progress"], step);
    }
    assert_eq!(tool_text(&client.message().await), "3 steps");
    client.call_tool(2, "log", json!({ "text": "unheard" }));
    assert_eq!(tool_text(&client.message().await), "logged");
    client.request_with(3, "logging/setLevel", json!({ "level": "info" }));
    client.answer(3).await;
    client.call_tool(4, "log", json!({ "text": "hello" }));
    assert_eq!(client.message().await["params"]["data"], "hello");
    assert_eq!(tool_text(&client.message().await), "logged");
    client.call_tool(5, "log", json!({ "text": "too quiet", "level": "debug" }));
    assert_eq!(tool_text(&client.message().await), "logged");
}

async fn answer_next(client: &mut Conversation, answer: &str) -> String {
    let question = client.message().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({ "action": "accept", "content": { "answer": answer } });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    question["params"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn questions_of_tools_are_answered() {
    let (_server, mut client) = start().await;
    client.call_tool(1, "ask", json!({ "question": "which colour?" }));
    assert_eq!(answer_next(&mut client, "blue").await, "which colour?");
    assert_eq!(tool_text(&client.answer(1).await), "blue");
    client.call_tool(2, "twice", json!({}));
    for question in ["first?", "second?", "third?"] {
        assert_eq!(answer_next(&mut client, &question.replace('?', "!")).await, question);
    }
    assert_eq!(tool_text(&client.answer(2).await), "first!, second!, third!");
}

#[tokio::test]
async fn arguments_stand_in_headers_even_before_the_list_was_seen() {
    let (_server, mut client) = start().await;
    client.call_tool(1, "route", json!({ "region": "süd", "size": 3 }));
    assert_eq!(tool_text(&client.answer(1).await), "=?base64?c8O8ZA==?= 3");
    client.call_tool(2, "route", json!({ "region": "north", "size": 4 }));
    assert_eq!(tool_text(&client.answer(2).await), "north 4");
}

#[tokio::test]
async fn updates_of_a_resource_arrive_unasked_until_they_are_no_longer_wanted() {
    let (_server, mut client) = start().await;
    client.request_with(1, "resources/subscribe", json!({ "uri": NOTE }));
    assert_eq!(client.answer(1).await["result"], json!({}));
    client.call_tool(2, "note", json!({ "text": "new" }));
    let mut heard = BTreeSet::new();
    for _ in 0..2 {
        let message = client.message().await;
        heard.insert(message["method"].as_str().unwrap_or("answer").to_owned());
    }
    assert!(heard.contains("notifications/resources/updated") && heard.contains("answer"), "{heard:?}");
    client.request_with(3, "resources/unsubscribe", json!({ "uri": NOTE }));
    assert_eq!(client.message().await["id"], 3);
    client.call_tool(4, "note", json!({ "text": "newer" }));
    assert_eq!(client.message().await["id"], 4);
    client.request(5, "tools/list");
    assert_eq!(client.message().await["id"], 5);
}

#[tokio::test]
async fn a_list_that_changes_is_news() {
    let (_server, mut client) = start().await;
    // The answer to the subscription shows that the stream is open.
    client.request_with(1, "resources/subscribe", json!({ "uri": NOTE }));
    client.answer(1).await;
    client.call_tool(2, "grow", json!({}));
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        let message = client.message().await;
        heard.insert(message["method"].as_str().unwrap_or("answer").to_owned());
    }
    assert!(heard.contains("notifications/tools/list_changed"), "{heard:?}");
    client.call_tool(3, "grown", json!({}));
    assert_eq!(tool_text(&client.answer(3).await), "here now");
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_server() {
    let (_server, mut client) = start().await;
    client.call_tool(1, "hang", json!({}));
    assert_eq!(client.message().await["method"], "notifications/progress");
    let params = json!({ "requestId": 1 });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    let mut id = 10;
    wait_until("the server notices", async || {
        id += 1;
        client.call_tool(id, "cancelled", json!({}));
        tool_text(&client.answer(id).await) == "1"
    })
    .await;
}

#[tokio::test]
async fn a_token_opens_the_door_and_its_absence_does_not() {
    let server = RemoteServer::start_modern(&[("TOKEN", "open-sesame")]).await;
    let mut client = Conversation::open_with(&server.url, &[("Authorization", "Bearer open-sesame")]);
    client.greet().await;
    client.call_tool(1, "add", json!({ "a": 1, "b": 1 }));
    assert_eq!(tool_text(&client.answer(1).await), "2");
    let mut stranger = Conversation::open_with(&server.url, &[("Authorization", "Bearer guess")]);
    stranger.initialize();
    assert!(stranger.lost().await.contains("401"));
}
