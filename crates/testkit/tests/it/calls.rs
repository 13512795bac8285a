//! Payloads, slow calls, cancellation, progress and process memory.

use serde_json::json;

use crate::stdio_server::{StdioServer, text_of};

#[tokio::test]
async fn echo_repeats_the_text_byte_for_byte() {
    let mut server = StdioServer::initialized().await;
    let raw_text = r#""tab\t \u00e9 é \/ \ud83d\ude00 😀 \u0000 end""#;
    server
        .write_line(&format!(
            r#"{{"jsonrpc":"2.0","id":12345678901234567890123,"method":"tools/call","params":{{"name":"echo","arguments":{{"text":{raw_text}}}}}}}"#
        ))
        .await;
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":12345678901234567890123,"result":{{"content":[{{"type":"text","text":{raw_text}}}]}}}}"#
    );
    assert_eq!(server.read_line().await.unwrap(), expected);
}

#[tokio::test]
async fn echo_takes_unusual_spellings_too() {
    let mut server = StdioServer::initialized().await;
    server
        .write_line(
            r#"{"method":"tools\/call","id":"a","params":{"arguments":{"text":"x"},"name":"ech\u006f"},"jsonrpc":"2.0"}"#,
        )
        .await;
    assert_eq!(text_of(&server.read().await["result"]), "x");
    assert_eq!(text_of(&server.request("tools/call", json!({"name": "echo"})).await["result"]), "");
}

#[tokio::test]
async fn many_calls_in_one_write_are_all_answered_in_order() {
    let mut server = StdioServer::initialized().await;
    let call = |id: u32| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": id.to_string()}}})
    };
    let lines: Vec<String> = (0..500).map(|id| call(id).to_string()).collect();
    server.write_line(&lines.join("\n")).await;
    for id in 0..500 {
        let response = server.read().await;
        assert_eq!((&response["id"], text_of(&response["result"])), (&json!(id), id.to_string()));
    }
}

#[tokio::test]
async fn big_is_exactly_as_big_as_asked() {
    let mut server = StdioServer::initialized().await;
    for bytes in [0, 1, 3_000_000, 3_000_000, 7] {
        assert_eq!(server.call_for_text("big", json!({"bytes": bytes})).await, "x".repeat(bytes));
    }
}

#[tokio::test]
async fn a_sleeping_call_does_not_hold_up_others() {
    let mut server = StdioServer::initialized().await;
    let sleeper = server.send_call("sleep", &json!({"ms": 200})).await;
    assert_eq!(server.call_for_text("echo", json!({"text": "quick"})).await, "quick");
    let response = server.read().await;
    assert_eq!((&response["id"], text_of(&response["result"]).as_str()), (&json!(sleeper), "slept"));
}

#[tokio::test]
async fn a_cancelled_call_stays_unanswered_and_is_counted() {
    let mut server = StdioServer::initialized().await;
    let sleeper = server.send_call("sleep", &json!({"ms": 600_000})).await;
    server.notify("notifications/cancelled", json!({"requestId": sleeper})).await;
    server.notify("notifications/cancelled", json!({"requestId": "none such"})).await;
    let counted = server.call("cancelled_count", json!({})).await;
    assert_eq!(text_of(&counted), "1");
    assert_eq!(counted["structuredContent"], json!({"cancelled": [sleeper]}));
}

#[tokio::test]
async fn sleep_reports_progress_with_the_token_as_it_came() {
    let mut server = StdioServer::initialized().await;
    let params = json!({"name": "sleep", "arguments": {"ms": 30, "progress_every_ms": 10},
        "_meta": {"progressToken": "t-1"}});
    let id = server.send_request("tools/call", params).await;
    for step in 1..=3 {
        let progress = server.read().await;
        assert_eq!(progress["method"], "notifications/progress");
        assert_eq!(progress["params"], json!({"progressToken": "t-1", "progress": step, "total": 3}));
    }
    assert_eq!(server.read().await["id"], id);
}

#[tokio::test]
async fn state_is_remembered_within_one_process_only() {
    let mut server = StdioServer::initialized().await;
    server.call("state_set", json!({"key": "a", "value": "1"})).await;
    assert_eq!(server.call_for_text("state_get", json!({"key": "a"})).await, "1");
    let mut other = StdioServer::initialized().await;
    assert_eq!(other.call_for_text("state_get", json!({"key": "a"})).await, "");
}
