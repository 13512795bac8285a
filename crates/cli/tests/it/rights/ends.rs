//! How access ends: tokens and principals that expire, tokens that are revoked, rights that are taken away.

use std::process::Output;

use serde_json::json;
use testkit::{Gateway, RawClient, ringfence_binary, wait_until};
use tokio::process::Command;

use super::{ALICE, BOB, Site, configuration, initialize, with_token};

async fn ringfence(arguments: &[&str]) -> Output {
    Command::new(ringfence_binary()).args(arguments).output().await.unwrap()
}

/// Waits until Alice's session has ended; Bob's goes on.
async fn alice_is_gone(site: &Site, gateway: &Gateway, bob: &RawClient) {
    wait_until("only Bob's session is left", async || site.sessions(gateway).await == ["bob"]).await;
    assert_eq!(bob.call_tool_for_text("box_echo", json!({"text": "still here"})).await, "still here");
}

/// A gateway on which Alice and Bob each have a session in their own project.
async fn with_sessions(site: &Site) -> (Gateway, RawClient, RawClient) {
    let principals = json!({
        "alice": {"scopes": [site.project("alice"), site.project("shared")]},
        "bob": {"scopes": [site.project("bob")]},
    });
    let gateway = site.gateway(&principals).start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let bob = site.open(&gateway, BOB, "bob").await;
    for client in [&alice, &bob] {
        client.call_tool_for_text("box_echo", json!({"text": "x"})).await;
    }
    (gateway, alice, bob)
}

async fn assert_expired(gateway: &Gateway) {
    let reply = initialize(&with_token(gateway, ALICE)).await;
    assert_eq!(reply.status, 401, "{:?}", reply.body);
    assert!(reply.header("www-authenticate").unwrap().contains("invalid_token"));
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the token has expired"), "{message}");
}

#[tokio::test]
async fn an_expired_token_is_refused_and_its_sessions_end() {
    let site = Site::new("rights-expired-token");
    site.write_tokens(&format!("alice:{ALICE} expires=2999-12-31 # not yet\nbob:{BOB}\n"));
    let (gateway, alice, bob) = with_sessions(&site).await;
    let mut stream = alice.get_stream(None).send().await.unwrap().into_events();
    site.write_tokens(&format!("alice:{ALICE} expires=2020-01-01\nbob:{BOB}\n"));
    stream.remaining_messages().await;
    alice_is_gone(&site, &gateway, &bob).await;
    assert_expired(&gateway).await;
}

#[tokio::test]
async fn an_expired_principal_is_refused_and_its_sessions_end() {
    let site = Site::new("rights-expired-principal");
    let (gateway, _alice, bob) = with_sessions(&site).await;
    site.configure(&configuration(&json!({
        "alice": {"scopes": [site.project("alice")], "expires": "2020-01-01"},
        "bob": {"scopes": [site.project("bob")]},
    })));
    alice_is_gone(&site, &gateway, &bob).await;
    assert_expired(&gateway).await;
}

#[tokio::test]
async fn rights_are_taken_away_at_once_and_given_by_a_start_alone() {
    let site = Site::new("rights-reload");
    let (gateway, _alice, bob) = with_sessions(&site).await;
    let rights = |alice: &[&str], bob: &[&str]| {
        let scopes = |names: &[&str]| names.iter().map(|name| site.project(name)).collect::<Vec<_>>();
        configuration(&json!({"alice": {"scopes": scopes(alice)}, "bob": {"scopes": scopes(bob)}}))
    };
    site.configure(&rights(&["alice", "shared"], &["bob", "shared"]));
    let logged = gateway.wait_for_log("would give the principal `bob` more rights").await;
    assert!(logged.contains("scopes"), "{logged}");
    assert_eq!(site.ask(&gateway, BOB, "shared").await.status, 403);

    site.configure(&rights(&["shared"], &["bob"]));
    alice_is_gone(&site, &gateway, &bob).await;
    assert_eq!(site.ask(&gateway, ALICE, "alice").await.status, 403);
    assert_eq!(site.ask(&gateway, ALICE, "shared").await.status, 200, "what is left");
    drop(gateway);

    site.configure(&rights(&["shared"], &["bob", "shared"]));
    let gateway = site.builder().start().await;
    assert_eq!(site.ask(&gateway, BOB, "shared").await.status, 200, "the control: a start takes it");
}

#[tokio::test]
async fn a_revoked_token_ends_what_its_caller_has_open() {
    let site = Site::new("rights-revoked");
    let (gateway, _alice, bob) = with_sessions(&site).await;
    let tokens = site.tokens();
    let file = tokens.to_str().unwrap();
    let revoked = ringfence(&["token", "revoke", "alice", "--file", file]).await;
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(std::fs::read_to_string(&tokens).unwrap(), format!("bob:{BOB}\n"));
    alice_is_gone(&site, &gateway, &bob).await;
    assert_eq!(initialize(&with_token(&gateway, ALICE)).await.status, 401);

    let again = ringfence(&["token", "revoke", "alice", "--file", file]).await;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(2), "{said}");
    assert!(said.contains("no token has the name `alice`") && said.contains("hint: "), "{said}");
}

#[tokio::test]
async fn a_token_is_made_with_an_expiry_and_a_note_and_revoked_by_its_hash() {
    let site = Site::new("rights-token-command");
    let tokens = site.tokens();
    let file = tokens.to_str().unwrap();
    let create = ["token", "create", "ci", "--expires", "30d", "--note", "nightly build", "--file", file];
    let made = ringfence(&create).await;
    assert!(made.status.success(), "{made:?}");
    let token = String::from_utf8(made.stdout).unwrap();
    let text = std::fs::read_to_string(&tokens).unwrap();
    let line = text.lines().last().unwrap();
    assert!(line.starts_with("ci:sha256:") && line.ends_with(" # nightly build"), "{line}");
    assert!(line.contains(" expires=2") && !text.contains(token.trim_end()), "{line}");
    let gateway = site.gateway(&json!({})).start().await;
    assert_eq!(initialize(&with_token(&gateway, token.trim_end())).await.status, 200);

    let digits = &line["ci:sha256:".len()..][..12];
    let revoked = ringfence(&["token", "revoke", digits, "--file", file]).await;
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(std::fs::read_to_string(&tokens).unwrap(), format!("alice:{ALICE}\nbob:{BOB}\n"));
    wait_until("the token is refused", async || {
        initialize(&with_token(&gateway, token.trim_end())).await.status == 401
    })
    .await;
    for bad in ["soon", "0d", "2020-13-01"] {
        let refused = ringfence(&["token", "create", "dave", "--expires", bad, "--file", file]).await;
        assert_eq!(refused.status.code(), Some(2), "{bad}");
    }
}
