//! Tasks of revision 2025-11-25 around the tool `sleep`.

use serde_json::{Value, json};

use crate::stdio_server::{StdioServer, text_of};

async fn start_task(server: &mut StdioServer, ms: u64) -> Value {
    let params = json!({"name": "sleep", "arguments": {"ms": ms}, "task": {"ttl": 60_000}});
    server.request("tools/call", params).await["result"]["task"].clone()
}

#[tokio::test]
async fn a_task_is_created_listed_and_delivers_its_result() {
    let mut server = StdioServer::initialized().await;
    let task = start_task(&mut server, 50).await;
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60_000)));
    let id = json!({"taskId": task["taskId"]});
    let result = server.request("tasks/result", id.clone()).await["result"].clone();
    assert_eq!(text_of(&result), "slept");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], id);
    assert_eq!(server.request("tasks/get", id).await["result"]["status"], "completed");
    let list = server.request("tasks/list", json!({})).await;
    assert_eq!(list["result"]["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_task_can_be_cancelled_once() {
    let mut server = StdioServer::initialized().await;
    let id = json!({"taskId": start_task(&mut server, 600_000).await["taskId"]});
    assert_eq!(server.request("tasks/cancel", id.clone()).await["result"]["status"], "cancelled");
    assert_eq!(server.request("tasks/cancel", id.clone()).await["error"]["code"], -32602);
    assert_eq!(server.request("tasks/result", id).await["error"]["code"], -32602);
}

#[tokio::test]
async fn other_tools_do_not_run_as_tasks() {
    let mut server = StdioServer::initialized().await;
    let params = json!({"name": "echo", "arguments": {"text": "x"}, "task": {}});
    assert_eq!(server.request("tools/call", params).await["error"]["code"], -32601);
}
