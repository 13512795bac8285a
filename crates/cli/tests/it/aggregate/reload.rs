//! Changes to the configuration file while sessions run.

use serde_json::{Value, json};
use testkit::wait_until;

use super::{Site, fixture, open, tools};

fn of(names: &[&str]) -> String {
    let servers: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), fixture(&[]))).collect();
    json!({ "servers": servers }).to_string()
}

#[tokio::test]
async fn new_sessions_see_the_new_file_and_old_ones_go_on_with_the_old() {
    let site = Site::with_text("reload", &of(&["old"]));
    let gateway = site.start().await;
    let before = open(&gateway).await;
    before.call_tool_for_text("old_state_set", json!({"key": "k", "value": "kept"})).await;
    let old_tools = tools(&before).await;

    site.write_configuration(&of(&["new", "newer"]));
    wait_until("new sessions see the new list", async || {
        let client = open(&gateway).await;
        let names = tools(&client).await;
        client.delete().await;
        names.iter().any(|name| name.starts_with("new_"))
            && names.iter().any(|name| name.starts_with("newer_"))
    })
    .await;
    let after = open(&gateway).await;
    assert!(tools(&after).await.iter().all(|name| !name.starts_with("old_")));
    assert_eq!(after.call_tool_for_text("new_echo", json!({"text": "new"})).await, "new");

    assert_eq!(tools(&before).await, old_tools);
    assert_eq!(before.call_tool_for_text("old_state_get", json!({"key": "k"})).await, "kept");
    let crossed = before.call_tool("new_echo", json!({"text": "?"})).await;
    assert_eq!(crossed["error"]["code"], -32602, "{crossed}");
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_logged() {
    let site = Site::with_text("reload-broken", &of(&["steady"]));
    let gateway = site.start().await;
    let before = open(&gateway).await;
    let names = tools(&before).await;
    site.write_configuration("servers:\n  steady:\n    comand: [typo]\n");
    let logged = gateway.wait_for_log("the configuration stays as it was").await;
    assert!(logged.contains("comand"), "{logged}");
    let after = open(&gateway).await;
    assert_eq!(tools(&after).await, names);
    assert_eq!(after.call_tool_for_text("steady_echo", json!({"text": "s"})).await, "s");

    site.write_configuration(&of(&["steady", "second"]));
    wait_until("a file without errors is taken again", async || {
        let client = open(&gateway).await;
        let names = tools(&client).await;
        client.delete().await;
        names.iter().any(|name| name.starts_with("second_"))
    })
    .await;
}

#[tokio::test]
async fn a_gateway_does_not_begin_with_a_broken_file() {
    let site = Site::with_text("begin-broken", "servers:\n  steady:\n    comand: [typo]\n");
    let failed = site.builder().try_start().await.expect_err("it refuses");
    assert_eq!(failed.status.code(), Some(1), "{}", failed.stderr);
    assert!(failed.stderr.contains("comand") && failed.stderr.contains(":3"), "{}", failed.stderr);
}

#[tokio::test]
async fn processes_of_a_retired_configuration_end_with_their_sessions() {
    let site = Site::with_text("retired", &of(&["old"]));
    let gateway = site.start().await;
    let before = open(&gateway).await;
    before.call_tool_for_text("old_echo", json!({"text": "runs"})).await;
    site.write_configuration(&of(&["new"]));
    wait_until("the new file counts", async || {
        let client = open(&gateway).await;
        let is_new = tools(&client).await.iter().any(|name| name.starts_with("new_"));
        client.delete().await;
        is_new
    })
    .await;
    before.delete().await;
    wait_until("nothing is left", async || gateway.descendants().is_empty()).await;
}
