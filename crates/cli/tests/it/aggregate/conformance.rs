//! The official conformance suite through an aggregate. The suite expects fixed names, so only conflicting names
//! get a prefix.

use serde_json::{Value, json};
use testkit::workspace_dir;

use super::{Site, fixture, official, official_python, open, tools_with};
use crate::bridge::conformance::{PARK_ONCE, Suite};

/// Runs a suite once these tools are listed, so that slow starts cannot fail it.
async fn run(suite: Suite, servers: Value, tools: &[&str]) {
    let place = Site::new("aggregate-conformance", &json!({"names": "conflict", "servers": servers}));
    let output = workspace_dir("aggregate-conformance-output");
    let gateway = place.builder().flags(PARK_ONCE).start().await;
    let first = open(&gateway).await;
    tools_with(&first, tools).await;
    first.delete().await;
    suite.run(gateway.url(), output.path()).await.assert_required_passed();
}

/// One tool of each server in [`three`].
const TOOLS: [&str; 3] = ["echo", "get_current_time", "list_allowed_directories"];

fn three() -> Value {
    json!({
        "fixture": fixture(&[]),
        "time": official_python("mcp-server-time", &[]),
        "filesystem": official("server-filesystem", &["{workingDirectory}"]),
    })
}

#[tokio::test]
async fn the_published_suite_passes_through_an_aggregate_of_one() {
    run(Suite::Published, json!({"fixture": fixture(&[])}), &TOOLS[..1]).await;
}

#[tokio::test]
async fn the_published_suite_passes_through_an_aggregate_of_three() {
    run(Suite::Published, three(), &TOOLS).await;
}

#[tokio::test]
async fn the_alpha_suite_passes_through_an_aggregate_of_one() {
    run(Suite::Alpha, json!({"fixture": fixture(&[])}), &TOOLS[..1]).await;
}

#[tokio::test]
async fn the_alpha_suite_passes_through_an_aggregate_of_three() {
    run(Suite::Alpha, three(), &TOOLS).await;
}
