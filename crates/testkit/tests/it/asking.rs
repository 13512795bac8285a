//! Requests that the fixture sends to its client.

use serde_json::{Value, json};
use testkit::wait_until;

use crate::stdio_server::{StdioServer, text_of};

fn response(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

#[tokio::test]
async fn answers_in_any_order_reach_the_call_that_asked() {
    let mut server = StdioServer::initialized().await;
    let first_call = server.send_call("ask", &json!({"kind": "sampling", "tag": "one"})).await;
    let first = server.read().await;
    let second_call = server.send_call("ask", &json!({"kind": "elicitation", "tag": "two"})).await;
    let second = server.read().await;
    assert_eq!(first["params"]["messages"][0]["content"]["text"], "one");
    assert_eq!(second["params"]["message"], "two");

    server.send(&response(&second["id"], json!({"action": "decline"}))).await;
    let answered = server.read().await;
    assert_eq!(answered["id"], second_call);
    assert_eq!(text_of(&answered["result"]), r#"{"action":"decline"}"#);

    server.send(&json!({"jsonrpc": "2.0", "id": first["id"], "error": {"code": -1, "message": "no"}})).await;
    let answered = server.read().await;
    assert_eq!(answered["id"], first_call);
    assert_eq!(text_of(&answered["result"]), r#"{"code":-1,"message":"no"}"#);
}

#[tokio::test]
async fn roots_and_ping_are_asked_without_params() {
    let mut server = StdioServer::initialized().await;
    for (kind, method) in [("roots", "roots/list"), ("ping", "ping")] {
        server.send_call("ask", &json!({"kind": kind})).await;
        let asked = server.read().await;
        assert_eq!((&asked["method"], asked.get("params")), (&json!(method), None));
        server.send(&response(&asked["id"], json!({}))).await;
        assert_eq!(text_of(&server.read().await["result"]), "{}");
    }
}

#[tokio::test]
async fn a_call_that_waits_for_the_client_can_be_cancelled() {
    let mut server = StdioServer::initialized().await;
    let call = server.send_call("ask", &json!({"kind": "ping"})).await;
    server.read().await;
    server.notify("notifications/cancelled", json!({"requestId": call})).await;
    assert_eq!(server.call_for_text("cancelled_count", json!({})).await, "1");
}

#[tokio::test]
async fn an_unowned_question_comes_after_the_answer_and_its_result_is_kept() {
    let mut server = StdioServer::initialized().await;
    server.call("ask_unowned", json!({"kind": "ping", "ms": 1})).await;
    let asked = server.read().await;
    assert_eq!(asked["method"], "ping");
    assert_eq!(server.call_for_text("ask_unowned_result", json!({})).await, "pending");
    server.send(&response(&asked["id"], json!({"ok": 1}))).await;
    wait_until("the answer arrived", async || {
        server.call_for_text("ask_unowned_result", json!({})).await == r#"{"ok":1}"#
    })
    .await;
}
