//! Permanent failures: each call gets an error that says why, and a server that cannot be used at all is lost.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::json;

use crate::conversation::{Conversation, MAX_MESSAGE};
use crate::scripted_server::{Events, ScriptedServer, document, status};

#[tokio::test]
async fn a_call_without_permission_is_answered_with_the_status_and_the_servers_reason() {
    let server = ScriptedServer::start(|seen| async move {
        let mut response = status(if seen.method() == "tools/call" { 401 } else { 403 });
        let challenge = r#"Bearer error="invalid_token", error_description="It has expired""#;
        response.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
        matches!(seen.method(), "tools/call" | "tools/list").then_some(response)
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    for (id, method, status) in [(1, "tools/call", "401"), (2, "tools/list", "403")] {
        client.request(id, method);
        let (reason, message) = client.failure(id).await;
        assert_eq!(reason, "upstream_refused");
        assert!(message.contains(status) && message.contains("It has expired"), "{message}");
    }
    assert_eq!(server.count("POST", "tools/call"), 1);
}

#[tokio::test]
async fn a_server_that_does_not_let_us_in_is_lost() {
    let server = ScriptedServer::start(|_| async { Some(status(401)) }).await;
    let mut client = Conversation::open(&server.url);
    client.initialize();
    let reason = client.lost().await;
    assert!(reason.contains("401"), "{reason}");
}

#[tokio::test]
async fn an_error_under_our_id_is_passed_on_whatever_its_status() {
    let server = ScriptedServer::start(|seen| async move {
        let error = json!({ "code": -32602, "message": "no such tool" });
        let body = json!({ "jsonrpc": "2.0", "id": seen.message["id"], "error": error });
        (seen.method() == "tools/call").then(|| (StatusCode::BAD_REQUEST, body.to_string()).into_response())
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    assert_eq!(client.answer(1).await["error"]["code"], -32602);
}

#[tokio::test]
async fn other_refusals_are_answered_with_an_error() {
    let server = ScriptedServer::start(|seen| async move {
        let error =
            json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "not today" } });
        (seen.method() == "tools/call").then(|| (StatusCode::CONFLICT, error.to_string()).into_response())
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    let (reason, message) = client.failure(1).await;
    assert_eq!(reason, "upstream_refused");
    assert!(message.ends_with("409: not today"), "{message}");
}

#[tokio::test]
async fn a_server_of_the_newer_era_is_named_as_such() {
    for http_status in [400, 200] {
        let server = ScriptedServer::start(move |seen| async move {
            let data = json!({ "supported": ["2026-07-28"], "requested": "2025-11-25" });
            let error = json!({ "code": -32022, "message": "Unsupported protocol version", "data": data });
            let mut response =
                document(&json!({ "jsonrpc": "2.0", "id": seen.message["id"], "error": error }));
            *response.status_mut() = StatusCode::from_u16(http_status).unwrap();
            Some(response)
        })
        .await;
        let mut client = Conversation::open(&server.url);
        client.initialize();
        let (reason, message) = client.failure(0).await;
        assert_eq!(reason, "upstream_modern_only");
        assert!(message.contains("newer protocol revision (2026-07-28)"), "{message}");
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_not_passed_on() {
    let server = ScriptedServer::start(|seen| async move {
        let long = seen.result(json!({ "text": "x".repeat(MAX_MESSAGE) }));
        match seen.method() {
            "as/document" => Some(document(&long)),
            "as/event" => {
                let (mut events, response) = Events::open();
                tokio::spawn(async move {
                    events.message(Some("1"), &long).await;
                    events
                        .message(Some("2"), &json!({ "jsonrpc": "2.0", "method": "notifications/a" }))
                        .await;
                });
                Some(response)
            }
            _ => None,
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "as/document");
    assert_eq!(client.failure(1).await.0, "upstream_too_long");
    client.request(2, "as/event");
    assert_eq!(client.message().await["method"], "notifications/a");
    assert_eq!(client.failure(2).await.0, "upstream_too_long");
    client.request(3, "ping");
    assert!(client.answer(3).await["result"].is_object());
}

#[tokio::test]
async fn garbage_is_answered_with_an_error() {
    let server = ScriptedServer::start(|seen| async move {
        let as_json = |body: &'static str| ([("content-type", "application/json")], body).into_response();
        match seen.method() {
            "no/json" => Some(as_json("<html>")),
            "no/utf8" => Some(([("content-type", "application/json")], vec![0xff, 0xfe]).into_response()),
            "no/body" => Some(as_json("")),
            "another/id" => Some(as_json(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#)),
            "a/page" => Some(([("content-type", "text/html")], "<html>").into_response()),
            "nothing" => Some(status(202)),
            "no/message" => {
                let (mut events, response) = Events::open();
                tokio::spawn(async move {
                    _ = events.raw("id: 1\ndata: what?\n\n").await;
                });
                Some(response)
            }
            _ => None,
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    let methods = ["no/json", "no/utf8", "no/body", "another/id", "a/page", "nothing", "no/message"];
    for (id, method) in (1..).zip(methods) {
        client.request(id, method);
        assert_eq!(client.failure(id).await.0, "upstream_malformed", "{method}");
    }
    client.request(50, "ping");
    assert_eq!(client.message().await["id"], 50);
}

#[tokio::test]
async fn a_page_in_place_of_a_greeting_is_the_end() {
    let page = || ([("content-type", "text/html")], "<html>").into_response();
    let server = ScriptedServer::start(move |_| async move { Some(page()) }).await;
    let mut client = Conversation::open(&server.url);
    client.initialize();
    client.lost().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_lost() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut client = Conversation::open(&format!("http://{address}/mcp?key=secret"));
    client.initialize();
    let reason = client.lost().await;
    assert!(reason.contains("refused") && !reason.contains("secret"), "{reason}");
}

#[tokio::test]
async fn a_call_to_a_server_that_went_away_says_that_it_was_not_sent() {
    let server = ScriptedServer::plain().await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    assert!(client.answer(1).await["result"].is_object());
    drop(server);
    // Connections that were open may take one more request before they break.
    for id in 2.. {
        client.request(id, "ping");
        let answer = client.answer(id).await;
        if answer["error"]["data"]["sent"] == "no" {
            assert_eq!(answer["error"]["data"]["reason"], "upstream_unreachable");
            assert!(answer["error"]["message"].as_str().unwrap().ends_with("the call was not sent"));
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_used_is_lost_when_it_is_needed() {
    for (url, header) in [
        ("not a url", ("A", "b")),
        ("ftp://127.0.0.1/", ("A", "b")),
        ("http://127.0.0.1/", ("bad name", "b")),
        ("http://127.0.0.1/", ("Authorization", "secret\nvalue")),
    ] {
        let mut client = Conversation::open_with(url, &[header]);
        client.initialize();
        let reason = client.lost().await;
        assert!(!reason.contains("secret"), "{reason}");
    }
}
