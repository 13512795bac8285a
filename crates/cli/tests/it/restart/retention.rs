//! What is kept of sessions whose clients do not come back, and for how long: by size, and until the operator prunes it.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use testkit::{Gateway, GatewayBuilder, NEWEST, RawClient, ringfence_binary, wait_until};
use tokio::process::Command;

use super::{Site, open_in, works_in};

/// A gateway that the commands of this test find, and no others.
fn builder(site: &Site) -> GatewayBuilder {
    Gateway::builder().env("XDG_CACHE_HOME", site.state.join("caches"))
}

async fn ringfence(site: &Site, arguments: &[&str]) -> Output {
    let mut command = Command::new(ringfence_binary());
    command.args(arguments).env("XDG_CACHE_HOME", site.state.join("caches")).output().await.unwrap()
}

async fn pruned(site: &Site, arguments: &[&str]) -> Vec<Value> {
    let output = ringfence(site, &[&["sessions", "prune", "--json"], arguments].concat()).await;
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["dryRun"], arguments.contains(&"--dry-run"));
    found["pruned"].as_array().unwrap().clone()
}

async fn status(gateway: &Gateway, client: &RawClient) -> u16 {
    let mut again = gateway.client();
    again.set_session(client.session_id(), Some(NEWEST));
    again.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status.as_u16()
}

#[tokio::test]
async fn stored_sessions_are_pruned_at_a_running_gateway_and_open_ones_are_not() {
    let mut site = Site::new("prune");
    let mut gateway = site.start(builder(&site)).await;
    let (back, gone) =
        (open_in(&gateway, &site.project.path).await, open_in(&gateway, &site.project.path).await);
    gateway.kill().await;
    let mut gateway = site.start(builder(&site)).await;
    works_in(&back).await;
    assert_eq!(pruned(&site, &["--older-than", "1h"]).await, Vec::<Value>::new(), "none is that old");
    let found = pruned(&site, &["--all-stored", "--dry-run"]).await;
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["state"], &found[0]["principal"]), (&json!("stored"), &json!("anonymous")));
    assert_eq!(found[0]["scope"][0], json!(site.project.path.to_string_lossy()));
    assert_eq!(gateway.report().await["stored_sessions"], 1, "a trial forgets nothing");
    let output = ringfence(&site, &["sessions", "prune", "--all-stored"]).await;
    let words = String::from_utf8(output.stdout).unwrap();
    let handle = found[0]["session"].as_str().unwrap();
    assert!(words.contains(handle) && words.contains("1 stored session forgotten"), "{words}");
    assert_eq!(gateway.report().await["stored_sessions"], 0);
    assert_eq!(status(&gateway, &gone).await, 404);
    works_in(&back).await;
    gateway.kill().await;
    let gateway = site.start(builder(&site)).await;
    assert_eq!(status(&gateway, &gone).await, 404, "nor does it come back");
    works_in(&back).await;
}

#[tokio::test]
async fn a_state_directory_without_a_gateway_is_pruned_and_one_with_a_gateway_is_not() {
    let mut site = Site::new("prune-directory");
    let mut gateway = site.start(builder(&site)).await;
    let client = open_in(&gateway, &site.project.path).await;
    let state = site.state.join("sessions");
    let directory = state.to_str().unwrap();
    let all = ["--all-stored", "--state-dir", directory];
    let refused = ringfence(&site, &[&["sessions", "prune"], &all[..]].concat()).await;
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains(&format!("process {}", gateway.pid())) && words.contains("hint: "), "{words}");
    gateway.kill().await;
    assert_eq!(pruned(&site, &[&all[..], &["--dry-run"]].concat()).await.len(), 1);
    assert_eq!(pruned(&site, &all).await.len(), 1);
    assert_eq!(pruned(&site, &all).await.len(), 0);
    let gateway = site.start(builder(&site)).await;
    assert_eq!(status(&gateway, &client).await, 404);
}

#[tokio::test]
async fn what_cannot_be_pruned_is_refused_in_words() {
    let site = Site::new("prune-refusals");
    let nowhere = site.state.join("nowhere");
    let refusals: [(&[&str], i32, &str); 5] = [
        (&[], 2, "--older-than"),
        (&["--all-stored", "--older-than", "1d"], 2, "cannot be used with"),
        (&["--older-than", "soon"], 2, "such as 90s, 30m, 12h, 7d or 4w"),
        (&["--all-stored"], 1, "hint: "),
        (&["--all-stored", "--state-dir", nowhere.to_str().unwrap()], 1, "hint: "),
    ];
    for (arguments, code, words) in refusals {
        let output = ringfence(&site, &[&["sessions", "prune"], arguments].concat()).await;
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
    assert!(!nowhere.exists());
    let refused = builder(&site).flags(["--state-size", "4K"]).try_start().await.unwrap_err();
    assert!(refused.stderr.contains("at least 1M"), "{}", refused.stderr);
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

#[tokio::test]
async fn the_database_has_a_bound_and_the_least_recently_used_sessions_make_room() {
    const LARGE: usize = 100_000;
    let mut site = Site::new("bound");
    let small = |site: &Site| builder(site).flags(["--state-size", "2M"]);
    let mut gateway = site.start(builder(&site)).await;
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = gateway.client();
        client.open(json!({"experimental": {"ballast": {"x": "x".repeat(LARGE)}}}), NEWEST).await;
        clients.push(client);
    }
    gateway.terminate().await;
    assert!(size(&site.database()) > 40 * LARGE as u64, "the control: it is larger than the bound to come");
    let gateway = site.start(small(&site)).await;
    wait_until("it has shrunk", async || {
        let stored = gateway.report().await["stored_sessions"].as_u64().unwrap();
        stored < 40 && size(&site.database()) < 3 * 1024 * 1024
    })
    .await;
    assert!(gateway.log().contains("--state-size"), "{}", gateway.log());
    let stored = gateway.report().await["stored_sessions"].as_u64().unwrap();
    assert!(stored >= 10, "no more go than must: {stored} are left");
    assert_eq!(status(&gateway, &clients[0]).await, 404, "the first one was used the longest ago");
    assert_eq!(status(&gateway, &clients[39]).await, 200);
}
