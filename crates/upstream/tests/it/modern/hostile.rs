//! Servers that break the rules of the revision: each call gets an error that says so, and the next one works.

use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::{ModernServer, elicitation, input_required};
use crate::conversation::MAX_MESSAGE;
use crate::scripted_server::{Events, document};

#[tokio::test]
async fn garbage_is_answered_with_an_error() {
    let server = ModernServer::start(json!({}), |seen| async move {
        let as_json = |body: &'static str| ([("content-type", "application/json")], body).into_response();
        match seen.method() {
            "no/json" => Some(as_json("<html>")),
            "no/body" => Some(as_json("")),
            "another/id" => Some(as_json(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#)),
            "a/page" => Some(([("content-type", "text/html")], "<html>").into_response()),
            "no/kind" => Some(document(&seen.result(json!({ "resultType": 7 })))),
            "unknown/kind" => Some(document(&seen.result(json!({ "resultType": "task" })))),
            // Only three methods may be answered with a request for input.
            "asks/elsewhere" => Some(input_required(&seen, json!({ "a": elicitation("a?") }), None)),
            _ => None,
        }
    })
    .await;
    let mut client = server.greeted().await;
    let methods = ["no/json", "no/body", "another/id", "a/page", "no/kind", "unknown/kind", "asks/elsewhere"];
    for (id, method) in (1..).zip(methods) {
        client.request(id, method);
        assert_eq!(client.failure(id).await.0, "upstream_malformed", "{method}");
    }
    client.request(50, "fine");
    assert_eq!(client.message().await["id"], 50);
}

#[tokio::test]
async fn what_is_too_long_is_not_passed_on() {
    let server = ModernServer::start(json!({}), |seen| async move {
        let long = seen.result(json!({ "text": "x".repeat(MAX_MESSAGE) }));
        (seen.method() == "long").then(|| document(&long))
    })
    .await;
    let mut client = server.greeted().await;
    client.request(1, "long");
    assert_eq!(client.failure(1).await.0, "upstream_too_long");
}

#[tokio::test]
async fn a_request_on_a_stream_is_dropped() {
    let mut server = ModernServer::start(json!({ "tools": { "listChanged": true } }), |seen| async move {
        (seen.method() == "tools/call").then(|| {
            let (mut events, response) = Events::open();
            tokio::spawn(async move {
                events.message(None, &json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" })).await;
                events.message(None, &json!({ "jsonrpc": "2.0", "id": 0, "result": {} })).await;
                events.message(None, &seen.result(json!({}))).await;
            });
            response
        })
    })
    .await;
    let mut client = server.greeted().await;
    client.request(1, "tools/call");
    assert_eq!(client.message().await["id"], 1);
    let mut listen = server.next_listen().await;
    listen.acknowledge_all().await;
    listen.events.message(None, &json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" })).await;
    listen.events.raw("data: nonsense\n\n").await;
    listen.notify("notifications/tools/list_changed", json!({})).await;
    assert_eq!(client.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn questions_without_sense_or_measure_fail_the_call() {
    let server = ModernServer::start(json!({}), |seen| async move {
        let many: Value =
            (0..33).map(|n| (n.to_string(), elicitation("?"))).collect::<serde_json::Map<_, _>>().into();
        let requests = match seen.message["params"]["name"].as_str()? {
            "many" => many,
            "list" => json!([elicitation("?")]),
            "text" => json!({ "a": "elicitation/create" }),
            "nothing" => Value::Null,
            "state" => {
                let result = json!({ "resultType": "input_required", "requestState": { "a": 1 } });
                return Some(document(&seen.result(result)));
            }
            _ => return None,
        };
        Some(input_required(&seen, requests, None))
    })
    .await;
    let mut client = server.greeted().await;
    for (id, name) in (1..).zip(["many", "list", "text", "nothing", "state"]) {
        client.call_tool(id, name, json!({}));
        let answer = client.message().await;
        assert_eq!(answer["error"]["data"]["reason"], "upstream_input", "{name}: {answer}");
    }
    client.request(50, "fine");
    assert_eq!(client.message().await["id"], 50);
}

#[tokio::test]
async fn an_endless_list_of_tools_is_not_read_to_the_end() {
    let server = ModernServer::start(json!({}), |seen| async move {
        match seen.method() {
            "tools/list" => Some(document(&seen.result(json!({ "tools": [], "nextCursor": "more" })))),
            "tools/call" => Some(super::failure(&seen, 400, json!({ "code": -32020, "message": "headers" }))),
            _ => None,
        }
    })
    .await;
    let mut client = server.greeted().await;
    client.call_tool(1, "t", json!({}));
    assert_eq!(client.answer(1).await["error"]["code"], -32020);
    assert_eq!(
        (server.server.count("POST", "tools/list"), server.server.count("POST", "tools/call")),
        (64, 1)
    );
}
