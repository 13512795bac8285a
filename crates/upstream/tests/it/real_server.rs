//! Tests against a real server, made with the official TypeScript SDK.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::RemoteServer;
use upstream::http::Incoming;

use crate::conversation::{Conversation, tool_text};

const NOTE: &str = "note://current";

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_in_streams_and_in_documents() {
    for environment in [&[][..], &[("JSON_ONLY", "1")]] {
        let server = RemoteServer::start(environment).await;
        let mut client = Conversation::greeted(&server.url).await;
        assert!(client.connection.session_id().is_some());
        client.add_fifty_times().await;
        client.connection.close().await;
    }
}

#[tokio::test]
async fn progress_and_logs_come_before_the_answer() {
    let server = RemoteServer::start(&[]).await;
    let mut client = Conversation::greeted(&server.url).await;
    client.call_tool(1, "slow", json!({ "steps": 3, "pause_ms": 1 }));
    for step in 1..=3 {
        let progress = client.message().await;
        assert_eq!(
            (&progress["method"], &progress["params"]["progress"]),
            (&json!("notifications/progress"), &json!(step))
        );
    }
    assert_eq!(tool_text(&client.message().await), "3 steps");
    client.call_tool(2, "log", json!({ "text": "hello" }));
    assert_eq!(client.message().await["params"]["data"], "hello");
    assert_eq!(tool_text(&client.message().await), "logged");
}

#[tokio::test]
async fn a_question_of_a_tool_is_answered() {
    let server = RemoteServer::start(&[]).await;
    let mut client = Conversation::greeted(&server.url).await;
    client.call_tool(1, "ask", json!({ "question": "which colour?" }));
    let question = client.message().await;
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("which colour?"))
    );
    let result = json!({ "action": "accept", "content": { "answer": "blue" } });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    assert_eq!(tool_text(&client.answer(1).await), "blue");
}

#[tokio::test]
async fn a_stream_that_the_server_closes_early_is_taken_up() {
    let server = RemoteServer::start(&[]).await;
    let mut client = Conversation::greeted(&server.url).await;
    client.call_tool(1, "part", json!({ "steps": 5, "pause_ms": 10 }));
    for step in 1..=5 {
        assert_eq!(client.message().await["params"]["progress"], step);
    }
    assert_eq!(tool_text(&client.message().await), "5 steps");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_loses_nothing() {
    let server = RemoteServer::start(&[]).await;
    let mut client = Conversation::greeted(&server.url).await;
    for id in 1..=20 {
        client.call_tool(id, "cut", json!({}));
        let ping = client.message().await;
        assert_eq!(ping["method"], "ping");
        client.send(&json!({ "jsonrpc": "2.0", "id": ping["id"], "result": {} }));
        assert_eq!(tool_text(&client.message().await), "nobody reads this on the first stream");
    }
}

#[tokio::test]
async fn updates_of_a_resource_arrive_unasked() {
    let server = RemoteServer::start(&[]).await;
    let mut client = Conversation::greeted(&server.url).await;
    client.send(
        &json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": { "uri": NOTE } }),
    );
    assert!(client.answer(1).await["result"].is_object());
    client.call_tool(2, "note", json!({ "text": "new" }));
    let mut heard = BTreeSet::new();
    for _ in 0..2 {
        let message = client.message().await;
        heard.insert(message["method"].as_str().unwrap_or("answer").to_owned());
    }
    assert!(heard.contains("notifications/resources/updated") && heard.contains("answer"), "{heard:?}");
    client.send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": { "uri": NOTE } }));
    assert_eq!(client.answer(3).await["result"]["contents"][0]["text"], "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_is_renewed() {
    let server = RemoteServer::start(&[("FORGET", "1")]).await;
    let mut client = Conversation::greeted(&server.url).await;
    client.call_tool(1, "add", json!({ "a": 1, "b": 1 }));
    client.answer(1).await;
    let before = client.connection.session_id();
    server.forget().await;
    for id in 2..=30 {
        client.call_tool(id, "add", json!({ "a": id, "b": 0 }));
    }
    assert_eq!(client.next().await, Some(Incoming::Renewed));
    let mut open: BTreeSet<u64> = (2..=30).collect();
    while !open.is_empty() {
        let answer = client.message().await;
        assert!(open.remove(&answer["id"].as_u64().unwrap()), "{answer}");
        assert_eq!(tool_text(&answer), answer["id"].to_string());
    }
    assert_ne!(client.connection.session_id(), before);
    client.call_tool(31, "whoami", json!({}));
    let whoami: Value = serde_json::from_str(tool_text(&client.answer(31).await)).unwrap();
    assert_eq!(whoami["session"].as_str(), client.connection.session_id().as_deref());
    assert_eq!(whoami["sessions"], 1);
}

#[tokio::test]
async fn a_token_opens_the_door_and_its_absence_does_not() {
    let server = RemoteServer::start(&[("TOKEN", "open-sesame")]).await;
    let mut client = Conversation::open_with(&server.url, &[("Authorization", "Bearer open-sesame")]);
    client.greet().await;
    client.call_tool(1, "add", json!({ "a": 1, "b": 1 }));
    assert_eq!(tool_text(&client.answer(1).await), "2");

    let mut stranger = Conversation::open_with(&server.url, &[("Authorization", "Bearer guess")]);
    stranger.initialize();
    let reason = stranger.lost().await;
    assert!(
        reason.contains("401") && reason.contains("not the right one") && !reason.contains("guess"),
        "{reason}"
    );
}

#[tokio::test]
async fn the_end_of_the_connection_ends_the_session_at_the_server() {
    let server = RemoteServer::start(&[]).await;
    let mut first = Conversation::greeted(&server.url).await;
    first.call_tool(1, "whoami", json!({}));
    first.answer(1).await;
    first.connection.close().await;
    let mut second = Conversation::greeted(&server.url).await;
    second.call_tool(1, "whoami", json!({}));
    let whoami: Value = serde_json::from_str(tool_text(&second.answer(1).await)).unwrap();
    assert_eq!(whoami["sessions"], 1);
}
