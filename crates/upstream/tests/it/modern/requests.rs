//! Which requests the server receives and in what form, and which are answered without it.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::wait_until;
use tokio::sync::{Notify, mpsc};

use super::{CAPABILITIES_KEY, CLIENT_KEY, LEVEL_KEY, MODERN, ModernServer, VERSION_KEY, failure};
use crate::conversation::Conversation;
use crate::scripted_server::{Events, document, status};

fn cancel(client: &Conversation, id: u64) {
    let params = json!({ "requestId": id });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
}

#[tokio::test]
async fn the_envelope_and_the_headers_go_with_every_request() {
    let server = ModernServer::plain(json!({})).await;
    let mut client = server.greeted().await;
    let meta = json!({ "progressToken": 7, "vendor/x": 1 });
    client.request_with(1, "tools/call", json!({ "name": "add", "arguments": { "a": 1 }, "_meta": meta }));
    client.request_with(2, "prompts/get", json!({ "name": "grüße" }));
    client.request_with(3, "resources/read", json!({ "uri": "note://a b" }));
    client.request_with(4, "tools/call", json!({ "name": "=?base64?YQ==?=" }));
    client.request(5, "tools/list");
    for id in 1..=5 {
        assert!(client.answer(id).await["result"].is_object());
    }
    let seen = server.server.seen();
    let requests: Vec<_> = seen.iter().filter(|seen| seen.message["id"].as_u64() > Some(0)).collect();
    let names: Vec<_> = requests.iter().map(|seen| seen.header("mcp-name")).collect();
    let expected = [
        Some("add"),
        Some("=?base64?Z3LDvMOfZQ==?="),
        Some("note://a b"),
        Some("=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        None,
    ];
    assert_eq!(names, expected);
    for seen in &requests {
        assert_eq!(seen.header("mcp-protocol-version"), Some(MODERN));
        assert_eq!(seen.header("mcp-method"), Some(seen.method()));
        let meta = &seen.message["params"]["_meta"];
        assert_eq!(meta[VERSION_KEY], MODERN);
        assert_eq!(meta[CAPABILITIES_KEY], json!({ "elicitation": {} }));
        assert_eq!(meta[CLIENT_KEY], json!({ "name": "test", "version": "1" }));
        assert_eq!(meta.get(LEVEL_KEY), None);
    }
    let params = &requests[0].message["params"];
    assert_eq!((&params["name"], &params["arguments"]), (&json!("add"), &json!({ "a": 1 })));
    assert_eq!((&params["_meta"]["progressToken"], &params["_meta"]["vendor/x"]), (&json!(7), &json!(1)));
}

#[tokio::test]
async fn a_stream_brings_progress_and_then_the_answer() {
    let server = ModernServer::start(json!({}), |seen| async move {
        (seen.method() == "tools/call").then(|| {
            let (mut events, response) = Events::open();
            tokio::spawn(async move {
                events.message(None, &json!({ "jsonrpc": "2.0", "method": "notifications/progress" })).await;
                events.message(None, &seen.result(json!({ "resultType": "complete", "n": 1 }))).await;
            });
            response
        })
    })
    .await;
    let mut client = server.greeted().await;
    client.request(1, "tools/call");
    assert_eq!(client.message().await["method"], "notifications/progress");
    assert_eq!(client.message().await["result"]["n"], 1);
}

#[tokio::test]
async fn ping_and_the_log_level_are_answered_here() {
    let server = ModernServer::plain(json!({ "logging": {} })).await;
    let mut client = server.greeted().await;
    client.request(1, "ping");
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    client.request_with(2, "logging/setLevel", json!({ "level": "warning" }));
    client.request(3, "tools/list");
    assert_eq!(client.answer(2).await["result"], json!({}));
    client.answer(3).await;
    client.request_with(4, "logging/setLevel", json!({ "level": "loud" }));
    assert_eq!(client.answer(4).await["error"]["code"], -32602);
    client.request_with(5, "logging/setLevel", json!({ "level": "debug" }));
    client.answer(5).await;
    client.request(6, "tools/list");
    client.answer(6).await;
    let heard = server.requests("tools/list");
    let levels: Vec<_> =
        heard.iter().map(|seen| seen.message["params"]["_meta"][LEVEL_KEY].clone()).collect();
    assert_eq!(levels, ["warning", "debug"]);
    assert_eq!(server.server.count("POST", "ping") + server.server.count("POST", "logging/setLevel"), 0);
}

fn annotated_tool(name: &str) -> Value {
    let properties = json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
        "deep": { "type": "object", "properties": { "size": { "type": "integer", "x-mcp-header": "Size" } } },
        "plain": { "type": "string" },
    });
    json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })
}

/// A server whose tool `route`, on the second page of its list, needs headers.
async fn routed_server() -> ModernServer {
    ModernServer::start(json!({ "tools": {} }), |seen| async move {
        match seen.method() {
            "tools/list" if seen.message["params"]["cursor"] == "2" => {
                Some(document(&seen.result(json!({ "tools": [annotated_tool("route")] }))))
            }
            "tools/list" => {
                let tools = json!([{ "name": "other", "inputSchema": {} }]);
                Some(document(&seen.result(json!({ "tools": tools, "nextCursor": "2" }))))
            }
            "tools/call" if seen.header("mcp-param-region").is_none() => {
                Some(failure(&seen, 400, json!({ "code": -32020, "message": "Mcp-Param-Region is missing" })))
            }
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn arguments_with_an_annotation_also_stand_in_headers() {
    let server = routed_server().await;
    let mut client = server.greeted().await;
    client.request_with(1, "tools/list", json!({ "cursor": "2" }));
    client.answer(1).await;
    let arguments = json!({ "region": "süd", "deep": { "size": 42 }, "plain": "x" });
    client.call_tool(2, "route", arguments);
    assert!(client.answer(2).await["result"].is_object());
    let calls = server.requests("tools/call");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("mcp-param-region"), Some("=?base64?c8O8ZA==?="));
    assert_eq!(calls[0].header("mcp-param-size"), Some("42"));
    assert_eq!(calls[0].header("mcp-param-plain"), None);
}

#[tokio::test]
async fn headers_that_nobody_knew_of_are_looked_up_once() {
    let server = routed_server().await;
    let mut client = server.greeted().await;
    client.call_tool(1, "route", json!({ "region": "north" }));
    assert!(client.answer(1).await["result"].is_object());
    assert_eq!(
        (server.server.count("POST", "tools/list"), server.server.count("POST", "tools/call")),
        (2, 2)
    );
    client.call_tool(2, "route", json!({ "region": "south" }));
    assert!(client.answer(2).await["result"].is_object());
    assert_eq!(
        (server.server.count("POST", "tools/list"), server.server.count("POST", "tools/call")),
        (2, 3)
    );
    // Errors that the list of tools does not explain are passed on unchanged.
    client.call_tool(3, "route", json!({}));
    assert_eq!(client.answer(3).await["error"]["code"], -32020);
    client.call_tool(4, "unknown", json!({ "region": "x" }));
    assert_eq!(client.answer(4).await["error"]["code"], -32020);
    assert_eq!(server.server.count("POST", "tools/call"), 6);
}

#[tokio::test]
async fn errors_of_the_server_are_passed_on_whatever_their_status() {
    let server = ModernServer::start(json!({}), |seen| async move {
        match seen.method() {
            "no/method" => Some(failure(&seen, 404, json!({ "code": -32601, "message": "no such method" }))),
            "bad/params" => Some(failure(&seen, 200, json!({ "code": -32602, "message": "bad" }))),
            "no/body" => Some(status(404)),
            _ => None,
        }
    })
    .await;
    let mut client = server.greeted().await;
    client.request(1, "no/method");
    assert_eq!(client.answer(1).await["error"]["code"], -32601);
    client.request(2, "bad/params");
    assert_eq!(client.answer(2).await["error"]["code"], -32602);
    client.request(3, "no/body");
    assert_eq!(client.failure(3).await.0, "upstream_refused");
    client.send(&json!({ "jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": [1] }));
    assert_eq!(client.answer(4).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let server = ModernServer::start(json!({}), |seen| async move {
        let mut busy = status(429);
        busy.headers_mut().insert("retry-after", "0".parse().unwrap());
        (seen.method() == "always/busy").then_some(busy)
    })
    .await;
    let mut client = server.greeted().await;
    client.request(1, "always/busy");
    assert_eq!(client.failure(1).await.0, "upstream_refused");
    assert_eq!(server.server.count("POST", "always/busy"), 3);
}

#[tokio::test]
async fn a_stream_that_breaks_is_not_taken_up() {
    let heard = Arc::new(Notify::new());
    let notified = Arc::clone(&heard);
    let server = ModernServer::start(json!({}), move |seen| {
        let heard = Arc::clone(&notified);
        async move {
            (seen.method() == "tools/call").then(|| {
                let (mut events, response) = Events::open();
                tokio::spawn(async move {
                    let note = json!({ "jsonrpc": "2.0", "method": "notifications/a" });
                    events.message(Some("e1"), &note).await;
                    events.break_off(&heard).await;
                });
                response
            })
        }
    })
    .await;
    let mut client = server.greeted().await;
    client.request(1, "tools/call");
    assert_eq!(client.message().await["method"], "notifications/a");
    heard.notify_one();
    assert_eq!(client.failure(1).await.0, "upstream_lost");
    assert!(server.server.seen().iter().all(|seen| seen.verb == "POST"));
}

/// A server whose tool calls never end, and the ids of the calls that were given up.
async fn with_endless_calls(capabilities: Value) -> (ModernServer, mpsc::UnboundedReceiver<Value>) {
    let (gone, noticed) = mpsc::unbounded_channel();
    let server = ModernServer::start(capabilities, move |seen| {
        let gone = gone.clone();
        async move {
            (seen.method() == "tools/call").then(|| {
                let (mut events, response) = Events::open();
                tokio::spawn(async move {
                    while events.raw(": alive\n\n").await {
                        tokio::task::yield_now().await;
                    }
                    let _ = gone.send(seen.message["id"].clone());
                });
                response
            })
        }
    })
    .await;
    (server, noticed)
}

#[tokio::test]
async fn a_cancelled_call_closes_its_request_and_stays_unanswered() {
    let (server, mut noticed) = with_endless_calls(json!({})).await;
    let mut client = server.greeted().await;
    for id in 1..=128 {
        client.request(id, "tools/call");
    }
    client.request(200, "tools/list");
    wait_until("all places are taken", async || server.server.count("POST", "tools/call") == 128).await;
    cancel(&client, 5);
    assert_eq!(testkit::within_deadline("the server notices", noticed.recv()).await, Some(json!(5)));
    assert_eq!(client.message().await["id"], 200, "its place is free");
    assert_eq!(server.server.count("POST", "notifications/cancelled"), 0);
}

#[tokio::test]
async fn the_end_of_the_connection_ends_its_requests_without_a_word() {
    let (mut server, mut noticed) = with_endless_calls(json!({ "tools": { "listChanged": true } })).await;
    let mut client = server.greeted().await;
    let mut listen = server.next_listen().await;
    listen.acknowledge_all().await;
    client.request(1, "tools/call");
    wait_until("it runs", async || server.server.count("POST", "tools/call") == 1).await;
    client.connection.close().await;
    assert_eq!(client.next().await, None);
    testkit::within_deadline("the call is given up", noticed.recv()).await;
    wait_until("the stream is given up", async || !listen.events.raw(": alive\n\n").await).await;
    assert!(server.server.seen().iter().all(|seen| seen.verb == "POST"));
}
