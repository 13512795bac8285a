//! A server at a URL that speaks only revision 2026-07-28, beside one that is a process: clients of earlier
//! revisions see no difference.

use serde_json::{Value, json};
use testkit::{RemoteServer, wait_until};

use super::{Site, fixture, listed, open_with, reason, result, tools_with};

const NOTE: &str = "note://current";

/// Answers an elicitation with `blue`.
fn blue(question: &Value) -> Value {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    json!({"action": "accept", "content": {"answer": "blue"}})
}

#[tokio::test]
async fn a_server_of_the_newer_revision_is_one_among_others() {
    let remote = RemoteServer::start_modern(&[]).await;
    let servers = json!({"box": fixture(&[]), "newer": {"url": remote.url}});
    let site = Site::new("modern-url", &json!({"servers": servers}));
    let gateway = site.start().await;
    let client = open_with(gateway.client(), json!({"elicitation": {}})).await;
    tools_with(&client, &["box_echo", "newer_add", "newer_route"]).await;
    assert_eq!(reason(&client, "newer").await, None, "{}", gateway.log());
    let mut events = client.get_stream(None).await.into_events();

    assert_eq!(client.call_tool_for_text("newer_add", json!({"a": 19, "b": 23})).await, "42");
    assert_eq!(client.call_tool_for_text("box_echo", json!({"text": "here"})).await, "here");
    let routed = client.call_tool_for_text("newer_route", json!({"region": "north", "size": 3})).await;
    assert_eq!(routed, "north 3");
    let prompts = listed(&client, "prompts/list", "prompts", "name").await;
    assert!(prompts.contains(&"newer_hello".to_owned()), "{prompts:?}");
    let read = result(&client, "resources/read", json!({"uri": NOTE})).await;
    assert_eq!(read["contents"][0]["text"], "nothing yet");

    let asked = client
        .call_tool_answering("newer_ask", json!({"question": "which colour?"}), |ask| Ok(blue(ask)))
        .await;
    assert_eq!(asked.server_requests[0]["params"]["message"], "which colour?");
    assert_eq!(asked.response["result"]["content"][0]["text"], "blue");
    let twice = client.call_tool_answering("newer_twice", json!({}), |ask| Ok(blue(ask))).await;
    assert_eq!(twice.server_requests.len(), 3);
    assert_eq!(twice.response["result"]["content"][0]["text"], "blue, blue, blue");

    result(&client, "resources/subscribe", json!({"uri": NOTE})).await;
    client.call_tool_for_text("newer_note", json!({"text": "new"})).await;
    client.call_tool_for_text("newer_grow", json!({})).await;
    let mut awaited = vec!["notifications/resources/updated", "notifications/tools/list_changed"];
    while !awaited.is_empty() {
        let message = events.next_message().await.expect("the stream stays open");
        awaited.retain(|method| message["method"] != *method);
    }
    tools_with(&client, &["newer_grown"]).await;
    assert_eq!(client.call_tool_for_text("newer_grown", json!({})).await, "here now");

    let id = json!("hangs");
    let params = json!({"name": "newer_hang", "arguments": {}, "_meta": {"progressToken": 1}});
    let mut hanging = client.post_request(&id, "tools/call", Some(params)).await.into_events();
    let progress = hanging.next_message().await.expect("it begins");
    assert_eq!(progress["method"], "notifications/progress");
    client.notify("notifications/cancelled", Some(json!({"requestId": id}))).await;
    wait_until("the call is given up at the server", async || {
        client.call_tool_for_text("newer_cancelled", json!({})).await == "1"
    })
    .await;
}
