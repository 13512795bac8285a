//! How the connection finds out a server's era, and what its client sees of that.

use axum::response::IntoResponse;
use serde_json::json;

use super::{
    CAPABILITIES_KEY, CLIENT_KEY, MODERN, ModernServer, VERSION_KEY, discovered, failure, unsupported,
};
use crate::conversation::Conversation;
use crate::scripted_server::{ScriptedServer, document, status};

#[tokio::test]
async fn the_answer_to_initialize_is_made_of_what_the_server_discloses() {
    let capabilities = json!({ "tools": {}, "vendor/x": { "n": 1 } });
    let server = ModernServer::plain(capabilities.clone()).await;
    let mut client = Conversation::open(&server.server.url);
    client.initialize();
    let expected = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "serverInfo": { "name": "scripted", "version": "2" },
        "instructions": "be nice",
    });
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": 0, "result": expected }));
    assert_eq!(client.connection.session_id(), None);

    let asked = server.requests("server/discover").remove(0);
    assert_eq!(asked.header("mcp-protocol-version"), Some(MODERN));
    assert_eq!(asked.header("mcp-method"), Some("server/discover"));
    let meta = &asked.message["params"]["_meta"];
    assert_eq!(meta[VERSION_KEY], MODERN);
    assert_eq!(meta[CAPABILITIES_KEY], json!({ "elicitation": {} }));
    assert_eq!(meta[CLIENT_KEY], json!({ "name": "test", "version": "1" }));
}

#[tokio::test]
async fn the_revision_of_our_user_is_kept_if_it_is_of_that_era() {
    for (asked, answered) in
        [("2025-03-26", "2025-03-26"), ("2099-01-01", "2025-11-25"), (MODERN, "2025-11-25")]
    {
        let server = ModernServer::plain(json!({})).await;
        let mut client = Conversation::open(&server.server.url);
        let params = json!({ "protocolVersion": asked, "capabilities": {} });
        client.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        assert_eq!(client.message().await["result"]["protocolVersion"], answered);
    }
}

#[tokio::test]
async fn every_way_in_which_such_servers_refuse_initialize_is_understood() {
    let refusals =
        [(400, -32022), (400, -32602), (400, -32020), (404, -32601), (200, -32601), (400, -32000), (405, 0)];
    for (http_status, code) in refusals {
        let server = ModernServer::start(json!({}), move |seen| async move {
            let refusal = match code {
                0 => status(http_status),
                _ => failure(&seen, http_status, json!({ "code": code, "message": "no" })),
            };
            (seen.method() == "initialize").then_some(refusal)
        })
        .await;
        let mut client = server.greeted().await;
        client.request(1, "tools/list");
        assert_eq!(client.answer(1).await["result"]["echo"], "tools/list", "{http_status} {code}");
    }
}

#[tokio::test]
async fn only_requests_are_posted_and_nothing_else_is_asked_of_the_server() {
    let server = ModernServer::plain(json!({ "tools": {} })).await;
    let mut client = server.greeted().await;
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    client.send(&json!({ "jsonrpc": "2.0", "id": "unasked", "result": {} }));
    client.request(1, "tools/list");
    assert!(client.answer(1).await["result"].is_object());
    client.initialize();
    assert_eq!(client.answer(0).await["error"]["code"], -32600);
    client.connection.close().await;
    let seen = server.server.seen();
    let methods: Vec<&str> = seen.iter().map(|seen| seen.method()).collect();
    assert_eq!(methods, ["initialize", "server/discover", "tools/list"]);
    assert!(seen.iter().all(|seen| seen.verb == "POST" && seen.header("mcp-session-id").is_none()));
}

#[tokio::test]
async fn a_server_that_answers_initialize_is_not_asked_further() {
    let server = ScriptedServer::start(|seen| async move {
        let found = discovered(&[MODERN], json!({}));
        (seen.method() == "server/discover").then(|| document(&seen.result(found)))
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/list");
    assert!(client.answer(1).await["result"].is_object());
    assert_eq!(server.count("POST", "server/discover"), 0);
    assert_eq!(server.count("POST", "notifications/initialized"), 1);
}

#[tokio::test]
async fn a_server_that_refuses_initialize_for_its_own_reasons_is_quoted() {
    let server = ScriptedServer::start(|seen| async move {
        let reason = if seen.method() == "initialize" { "full house" } else { "what?" };
        Some(failure(&seen, 400, json!({ "code": -32000, "message": reason })))
    })
    .await;
    let mut client = Conversation::open(&server.url);
    client.initialize();
    assert_eq!(client.message().await["error"]["message"], "full house");
    assert_eq!(server.count("POST", "server/discover"), 1);
    // The connection is still not initialized.
    client.request(1, "tools/list");
    assert_eq!(client.failure(1).await.0, "not_initialized");
}

#[tokio::test]
async fn what_says_nothing_of_the_era_is_not_probed() {
    for http_status in [401, 403, 429, 500, 503] {
        let server = ScriptedServer::start(move |_| async move { Some(status(http_status)) }).await;
        let mut client = Conversation::open(&server.url);
        client.initialize();
        assert!(client.next().await.is_some());
        assert_eq!(server.count("POST", "server/discover"), 0, "{http_status}");
    }
}

#[tokio::test]
async fn a_server_of_other_newer_revisions_is_named_as_such() {
    for is_result in [true, false] {
        let server = ScriptedServer::start(move |seen| async move {
            match seen.method() {
                "server/discover" if is_result => {
                    Some(document(&seen.result(discovered(&["2027-01-01"], json!({})))))
                }
                _ => Some(unsupported(&seen, &["2027-01-01"])),
            }
        })
        .await;
        let mut client = Conversation::open(&server.url);
        client.initialize();
        let (reason, message) = client.failure(0).await;
        assert_eq!(reason, "upstream_modern_only");
        assert!(message.contains("(2027-01-01)") && message.contains("translates 2026-07-28"), "{message}");
    }
}

#[tokio::test]
async fn an_answer_to_discover_that_is_none_leaves_the_refusal_as_it_is() {
    for body in ["{}", r#"{"supportedVersions":["2026-07-28"]}"#, "[]", "null", r#""2026-07-28""#] {
        let server = ScriptedServer::start(move |seen| async move {
            if seen.method() == "initialize" {
                return Some(failure(&seen, 404, json!({ "code": -32601, "message": "no such method" })));
            }
            let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{body}}}"#, seen.message["id"]);
            Some(([("content-type", "application/json")], text).into_response())
        })
        .await;
        let mut client = Conversation::open(&server.url);
        client.initialize();
        assert_eq!(client.message().await["error"]["message"], "no such method", "{body}");
    }
}

#[tokio::test]
async fn what_waits_for_the_greeting_is_sent_in_the_newer_words() {
    let server = ModernServer::plain(json!({})).await;
    let mut client = Conversation::open(&server.server.url);
    client.initialize();
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    client.request(1, "tools/list");
    client.request(2, "prompts/list");
    let params = json!({ "requestId": 2 });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    assert_eq!(client.message().await["id"], 0);
    assert_eq!(client.message().await["id"], 1);
    assert_eq!(server.requests("tools/list")[0].header("mcp-method"), Some("tools/list"));
    assert_eq!(server.server.count("POST", "prompts/list"), 0);
}
