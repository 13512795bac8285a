//! Version negotiation, capabilities, and the requests that every server answers.

use serde_json::json;

use crate::stdio_server::StdioServer;

#[tokio::test]
async fn a_known_version_is_echoed_and_an_unknown_one_replaced() {
    for (requested, negotiated) in
        [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("2026-07-28", "2025-11-25")]
    {
        let mut server = StdioServer::start([] as [&str; 0]);
        assert_eq!(server.initialize(requested).await["protocolVersion"], negotiated);
    }
}

#[tokio::test]
async fn tasks_are_declared_only_where_they_exist() {
    let mut server = StdioServer::start([] as [&str; 0]);
    assert!(server.initialize("2025-06-18").await["capabilities"].get("tasks").is_none());
    assert!(server.initialize("2025-11-25").await["capabilities"].get("tasks").is_some());
}

#[tokio::test]
async fn ping_and_unknown_methods_are_answered() {
    let mut server = StdioServer::initialized().await;
    assert_eq!(server.request("ping", json!({})).await["result"], json!({}));
    assert_eq!(server.request("no/such", json!({})).await["error"]["code"], -32601);
    assert_eq!(server.request("tools/call", json!({"name": "none"})).await["error"]["code"], -32602);
}

#[tokio::test]
async fn every_listed_tool_has_an_object_schema_and_a_unique_name() {
    let mut server = StdioServer::initialized().await;
    let list = server.request("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let mut names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), tools.len());
    assert!(
        tools.iter().all(|tool| tool["inputSchema"]["type"] == "object" && tool["description"].is_string())
    );
}
