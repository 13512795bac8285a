//! Sessions that must not go on: their directory is another one, the rules are others, or they had ended.

use std::fs;

use serde_json::json;
use testkit::{Gateway, NEWEST, roots};

use super::{Site, open_in, works_in};

#[tokio::test]
async fn a_session_whose_directory_was_replaced_ends_with_the_reason() {
    let mut site = Site::new("replaced");
    let mut gateway = site.start_fixture().await;
    let inside = site.project.join("work");
    fs::create_dir(&inside).unwrap();
    let (client, control) = (open_in(&gateway, &inside).await, open_in(&gateway, &site.project.path).await);
    gateway.kill().await;
    fs::rename(&inside, site.project.join("aside")).unwrap();
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("secret"), "of another project").unwrap();
    let gateway = site.start_fixture().await;
    let refused = client.call_tool("working_directory", json!({})).await;
    assert_eq!(refused["error"]["data"]["reason"], "scope_changed", "{refused}");
    works_in(&control).await;
    let after = client.post_tool_call(&json!(1), "working_directory", json!({})).await;
    assert_eq!(after.status, 403);
    assert!(gateway.log().contains("is another directory than when the session began"));
}

#[tokio::test]
async fn a_restored_scope_is_judged_by_the_rules_of_today() {
    let mut site = Site::new("rules");
    let mut gateway = site.start_fixture().await;
    let (allowed, other) = (site.project.join("allowed"), site.project.join("other"));
    fs::create_dir(&allowed).unwrap();
    fs::create_dir(&other).unwrap();
    let (kept, refused) = (open_in(&gateway, &allowed).await, open_in(&gateway, &other).await);
    gateway.kill().await;
    let _gateway = site.start(Gateway::builder().flag("--allow-scope").flag(&allowed)).await;
    works_in(&kept).await;
    let refusal = refused.call_tool("working_directory", json!({})).await;
    assert_eq!(refusal["error"]["data"]["reason"], "scope_refused", "{refusal}");
}

#[tokio::test]
async fn a_session_that_was_deleted_stays_deleted() {
    let mut site = Site::new("deleted");
    let mut gateway = site.start_fixture().await;
    let (gone, here) =
        (open_in(&gateway, &site.project.path).await, open_in(&gateway, &site.project.path).await);
    assert_eq!(gone.delete().await.status, 204);
    gateway.kill().await;
    let _gateway = site.start_fixture().await;
    assert_eq!(gone.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
    works_in(&here).await;
}

#[tokio::test]
async fn the_reason_of_an_end_is_remembered_over_the_restart() {
    let mut site = Site::new("reason");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    let changed = client.notify("notifications/roots/list_changed", None).await;
    assert_eq!(changed.status, 403);
    gateway.kill().await;
    let _gateway = site.start_fixture().await;
    let refused = client.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"]["data"]["reason"], "roots_change_rejected");
}

#[tokio::test]
async fn a_session_that_nobody_used_for_long_is_not_restored() {
    let mut site = Site::new("idle");
    let builder = || Gateway::builder().flags(["--idle-timeout", "2"]);
    let mut gateway = site.start(builder()).await;
    let client = open_in(&gateway, &site.project.path).await;
    gateway.kill().await;
    let gateway = site.start(Gateway::builder()).await;
    works_in(&client).await;
    drop(gateway);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let gateway = site.start(builder()).await;
    assert_eq!(client.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
    assert_eq!(gateway.report().await["stored_sessions"], 0);
}

#[tokio::test]
async fn a_session_is_found_with_its_own_principal_only() {
    let mut site = Site::new("principals");
    let tokens = site.state.join("tokens");
    for name in ["alice", "bob"] {
        let mut command = std::process::Command::new(testkit::ringfence_binary());
        let made = command.args(["token", "create", name, "--file"]).arg(&tokens).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        fs::write(site.state.join(name), String::from_utf8(made.stdout).unwrap().trim()).unwrap();
    }
    let token =
        |site: &Site, name: &str| format!("Bearer {}", fs::read_to_string(site.state.join(name)).unwrap());
    let project = site.project.path.clone();
    let builder =
        || Gateway::builder().flag("--auth-token-file").flag(&tokens).flag("--allow-scope").flag(&project);
    let mut gateway = site.start(builder()).await;
    let mut alice = gateway.client().with_header("authorization", &token(&site, "alice"));
    alice.open(json!({"roots": {}}), NEWEST).await;
    let answered =
        alice.call_tool_answering("working_directory", json!({}), |_| Ok(roots(&[&project]))).await;
    assert!(answered.response["result"].is_object(), "{:?}", answered.response);
    gateway.kill().await;
    let gateway = site.start(builder()).await;
    let mut bob = gateway.client().with_header("authorization", &token(&site, "bob"));
    bob.set_session(alice.session_id(), Some(NEWEST));
    assert_eq!(bob.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
    works_in(&alice).await;
}
