//! A server's storage persists for the same principal and workspace, and no other session sees it.

use serde_json::{Value, json};
use testkit::{Gateway, RawClient, wait_until};

use super::{Site, official, one_server, open_in, with};

fn memory(lifecycle: &str) -> Value {
    let memory = with(official("server-memory", &[]), "storage", json!("persistent"));
    let memory = with(memory, "env", json!({"MEMORY_FILE_PATH": "{storage}/memory.jsonl"}));
    one_server("memory", with(memory, "lifecycle", json!(lifecycle)))
}

async fn remember(client: &RawClient, name: &str) {
    let entity = json!({"name": name, "entityType": "person", "observations": []});
    client.call_tool_for_text("memory_create_entities", json!({"entities": [entity]})).await;
}

async fn remembered(client: &RawClient) -> String {
    client.call_tool_for_text("memory_read_graph", json!({})).await
}

async fn end(gateway: &Gateway, client: &RawClient) {
    client.delete().await;
    wait_until("the session is gone", async || gateway.open_sessions().await == 0).await;
}

#[tokio::test]
async fn a_memory_outlives_its_session_and_the_gateway_and_is_of_one_workspace() {
    let site = Site::new("memory", &memory("workspace"));
    let (one, two) = (site.another_project("one"), site.another_project("two"));
    let mut gateway = site.start().await;
    let client = open_in(gateway.client(), &one).await;
    remember(&client, "Ada").await;
    let stranger = open_in(gateway.client(), &two).await;
    assert!(!remembered(&stranger).await.contains("Ada"), "another workspace");
    remember(&stranger, "Bob").await;
    stranger.delete().await;
    end(&gateway, &client).await;

    let later = open_in(gateway.client(), &one).await;
    let graph = remembered(&later).await;
    assert!(graph.contains("Ada") && !graph.contains("Bob"), "{graph}");
    end(&gateway, &later).await;
    gateway.terminate().await;

    let gateway = site.start().await;
    let later = open_in(gateway.client(), &one).await;
    let graph = remembered(&later).await;
    assert!(graph.contains("Ada") && !graph.contains("Bob"), "{graph}");
    end(&gateway, &later).await;
    wait_until("nothing is left in the workspace", async || {
        std::fs::read_dir(&one).unwrap().next().is_none()
    })
    .await;
}

#[tokio::test]
async fn without_storage_there_is_no_place_for_it() {
    let server =
        with(official("server-memory", &[]), "env", json!({"MEMORY_FILE_PATH": "{storage}/m.jsonl"}));
    let site = Site::new("no-storage", &one_server("memory", server));
    let failed = site.builder().try_start().await.expect_err("it refuses");
    assert!(failed.stderr.contains("`memory` uses {storage} but has none"), "{}", failed.stderr);
}
