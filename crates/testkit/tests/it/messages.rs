//! Logs, notifications, raw lines and floods.

use serde_json::json;

use crate::stdio_server::{StdioServer, text_of};

#[tokio::test]
async fn a_log_comes_before_the_answer_unless_its_level_is_too_low() {
    let mut server = StdioServer::initialized().await;
    server.send_call("log", &json!({"level": "info", "text": "hello"})).await;
    let logged = server.read().await;
    assert_eq!(logged["method"], "notifications/message");
    assert_eq!(logged["params"]["data"], "hello");
    assert_eq!(text_of(&server.read().await["result"]), "logged");

    assert_eq!(server.request("logging/setLevel", json!({"level": "error"})).await["result"], json!({}));
    assert_eq!(server.call_for_text("log", json!({"level": "info", "text": "quiet"})).await, "logged");
}

#[tokio::test]
async fn an_unowned_log_comes_after_the_answer() {
    let mut server = StdioServer::initialized().await;
    server.call("log_unowned", json!({"ms": 1, "text": "later"})).await;
    assert_eq!(server.read().await["params"]["data"], "later");
}

#[tokio::test]
async fn resource_updates_are_sent_to_subscribers_only() {
    let mut server = StdioServer::initialized().await;
    let uri = json!({"uri": "test://watched-resource"});
    assert_eq!(server.call_for_text("notify_resource", uri.clone()).await, "not subscribed");
    server.request("resources/subscribe", uri.clone()).await;
    server.send_call("notify_resource", &uri).await;
    let update = server.read().await;
    assert_eq!(update["method"], "notifications/resources/updated");
    assert_eq!(update["params"], uri);
    assert_eq!(text_of(&server.read().await["result"]), "notified");
    server.request("resources/unsubscribe", uri.clone()).await;
    assert_eq!(server.call_for_text("notify_resource", uri).await, "not subscribed");
}

#[tokio::test]
async fn a_changed_list_is_announced() {
    let mut server = StdioServer::initialized().await;
    server.send_call("notify_list_changed", &json!({})).await;
    assert_eq!(server.read().await["method"], "notifications/tools/list_changed");
    server.read().await;
}

#[tokio::test]
async fn raw_and_long_lines_are_written_as_asked() {
    let mut server = StdioServer::initialized().await;
    server.send_call("raw_stdout", &json!({"line": "not json \u{1}"})).await;
    assert_eq!(server.read_line().await.unwrap(), "not json \u{1}");
    server.read().await;
    server.send_call("long_line", &json!({"bytes": 100_000})).await;
    let line = server.read_line().await.unwrap();
    assert_eq!(line.len(), 100_000);
    assert!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["method"].is_string());
    server.read().await;
}

#[tokio::test]
async fn an_unread_flood_of_standard_error_blocks_only_its_own_call() {
    let mut server = StdioServer::initialized().await;
    server.send_call("stderr_flood", &json!({"bytes": 1_000_003})).await;
    assert_eq!(server.call_for_text("echo", json!({"text": "still here"})).await, "still here");
    let mut stderr = String::new();
    while stderr.len() < 1_000_003 {
        stderr.push_str(&server.read_stderr_piece().await);
    }
    assert_eq!(stderr.len(), 1_000_003);
    assert_eq!(text_of(&server.read().await["result"]), "written");
}
