//! Upgrades that are refused or fail: the gateway goes on as it is, and says why.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use testkit::{Gateway, text_of};

use super::{Site, open_in, upgrade, upgraded, works_in};

/// Puts a program at a place, atomically.
fn put(program: &Path, text: &str, mode: u32) {
    let new = program.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, PermissionsExt::from_mode(mode)).unwrap();
    std::fs::rename(new, program).unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_start_is_refused() {
    let mut site = Site::new("broken");
    let program = site.install();
    let gateway = site.start(Gateway::builder().binary(&program)).await;
    let client = open_in(&gateway, &site.project.path).await;
    let worker = gateway.descendants();
    let broken = [
        ("#!/bin/sh\necho no such library >&2; exit 1\n", 0o755, "no such library"),
        ("#!/bin/sh\nexit 0\n", 0o755, "did not say that it can start"),
        ("#!/bin/sh\necho '{\"version\":\"0.0.1\",\"store_schema\":0}'\n", 0o755, "cannot read the sessions"),
        ("not even executable", 0o644, "cannot be started"),
    ];
    for (text, mode, said) in broken {
        put(&program, text, mode);
        let (outcome, is_success) = upgrade(&gateway, &[]).await;
        assert!(!is_success && outcome["reason"].as_str().unwrap().contains(said), "{outcome}");
        assert!(outcome["reason"].as_str().unwrap().contains(program.to_str().unwrap()), "{outcome}");
        works_in(&client).await;
    }
    std::fs::remove_file(&program).unwrap();
    assert!(!upgrade(&gateway, &[]).await.1);
    assert_eq!(gateway.descendants(), worker, "nothing was stopped for it");
    site.install();
    upgraded(&gateway).await;
    works_in(&client).await;
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_refused() {
    let mut site = Site::new("configuration");
    let file = site.state.join("servers.yaml");
    std::fs::write(&file, json!({"servers": {"files": {"command": ["ringfence", "workspace"]}}}).to_string())
        .unwrap();
    let gateway = site.start(Gateway::without_command().flag("--config").flag(&file)).await;
    let client = gateway.open().await;
    std::fs::write(&file, "servers: [").unwrap();
    let (outcome, is_success) = upgrade(&gateway, &[]).await;
    assert!(!is_success && outcome["reason"].as_str().unwrap().contains("servers.yaml"), "{outcome}");
    client.call_tool_for_text("files_list_dir", json!({"path": "."})).await;
}

#[tokio::test]
async fn a_program_that_goes_away_before_it_takes_over_leaves_the_old_one() {
    let mut site = Site::new("gone");
    let program = site.install();
    let gateway = site.start(Gateway::builder().binary(&program)).await;
    let client = open_in(&gateway, &site.project.path).await;
    let id = json!("long");
    let reply = client.post_tool_call(&id, "sleep", json!({"ms": 2000})).await;
    assert!(reply.body.is_sse(), "it is running");
    let answered = client.finish_exchange(&id, reply, |question| panic!("{question}"));
    let removal = async {
        gateway.wait_for_log("upgrading at the next quiet moment").await;
        let (second, is_success) = upgrade(&gateway, &[]).await;
        assert!(!is_success && second["reason"].as_str().unwrap().contains("under way"), "{second}");
        std::fs::remove_file(&program).unwrap();
    };
    let ((outcome, is_success), _, ()) = tokio::join!(upgrade(&gateway, &[]), answered, removal);
    let reason = outcome["reason"].as_str().unwrap();
    assert!(!is_success && reason.contains("could not be executed"), "{outcome}");
    assert_eq!(text_of(&works_in(&client).await), site.project.path.to_string_lossy());
    site.install();
    upgraded(&gateway).await;
    assert_eq!(text_of(&works_in(&client).await), site.project.path.to_string_lossy());
}

#[tokio::test]
async fn the_operators_own_socket_alone_takes_upgrades() {
    let mut site = Site::new("socket-alone");
    let caches = site.state.join("caches");
    let gateway = site.start(Gateway::builder().env("XDG_CACHE_HOME", &caches)).await;
    let token = format!("Bearer {}", gateway.operator_token(&caches));
    let ask = async |path: &str| {
        gateway.client().get_stream(None).path(path).header("authorization", &token).await.status
    };
    assert_eq!(ask("/sessions").await, 200, "the control");
    assert_eq!(ask("/upgrade").await, 404);
}
