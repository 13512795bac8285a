//! Concurrent sessions: each sees only its own files, and a principal's key is only in that principal's processes.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, wait_until};

use super::{Site, fixture, official, open_in, reason, with};
use crate::authentication::write_private;

pub(super) const ALICE: &str = "alices-token-0123456789";
pub(super) const BOB: &str = "bobs-token-0123456789ab";
const CAROL: &str = "carols-token-0123456789";

pub(super) const ALICES_KEY: &str = "key-of-alice-7f3a9c";
pub(super) const BOBS_KEY: &str = "key-of-bob-51d0e2";

pub(super) fn with_token(gateway: &Gateway, token: &str) -> RawClient {
    gateway.client().with_header("authorization", &format!("Bearer {token}"))
}

#[tokio::test]
async fn two_sessions_with_the_same_file_names_see_their_own_files() {
    let filesystem = official("server-filesystem", &["{workingDirectory}"]);
    let site = Site::new("two-roots", &json!({"servers": {"filesystem": filesystem, "box": fixture(&[])}}));
    let roots = ["one", "two"].map(|name| site.another_project(name));
    let gateway = site.start().await;
    let mut clients = Vec::new();
    for root in &roots {
        std::fs::write(root.join("notes"), root.file_name().unwrap().as_encoded_bytes()).unwrap();
        clients.push(open_in(gateway.client(), root).await);
    }
    for (client, root) in clients.iter().zip(&roots) {
        let own = root.file_name().unwrap().to_str().unwrap();
        let path = root.join("notes");
        assert_eq!(client.call_tool_for_text("box_read_file", json!({"path": "notes"})).await, own);
        let read = client.call_tool_for_text("filesystem_read_text_file", json!({"path": path})).await;
        assert_eq!(read, own);
        client.call_tool_for_text("box_write_file", json!({"path": "written", "text": own})).await;
        assert_eq!(std::fs::read_to_string(root.join("written")).unwrap(), own);
    }
    for (client, other) in [(&clients[0], &roots[1]), (&clients[1], &roots[0])] {
        for (tool, arguments) in [
            ("filesystem_read_text_file", json!({"path": other.join("notes")})),
            ("box_read_file", json!({"path": other.join("notes")})),
            ("box_write_file", json!({"path": other.join("forged"), "text": "x"})),
        ] {
            let answer = client.call_tool(tool, arguments).await;
            assert!(answer["result"]["isError"] == true || answer["error"].is_object(), "{tool}: {answer}");
        }
        assert!(!other.join("forged").exists());
    }
}

/// The gateway's descendants whose environment contains `text`.
fn processes_with(gateway: &Gateway, text: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(text)
    };
    gateway.descendants().into_iter().filter(holds).collect()
}

/// Starts a gateway with keys for Alice and Bob, but none for Carol.
async fn with_keys(name: &str) -> (Site, Gateway) {
    let site = Site::new(name, &json!({}));
    let tokens = site.directory.join("tokens");
    write_private(&tokens, &format!("alice:{ALICE}\nbob:{BOB}\ncarol:{CAROL}\n"));
    let key = site.directory.join("alices-key");
    write_private(&key, &format!("{ALICES_KEY}\n"));
    let keyed = with(fixture(&[]), "env", json!({"API_KEY": "${API_KEY}"}));
    let configuration = json!({
        "servers": {"keyed": keyed, "plain": fixture(&[])},
        "principals": {
            "alice": {"secrets": {"API_KEY": {"file": key}}},
            "bob": {"secrets": {"API_KEY": {"env": "KEY_FOR_BOB"}}},
        },
    });
    site.write_configuration(&configuration.to_string());
    let builder = site.builder().flag("--auth-token-file").flag(tokens).env("KEY_FOR_BOB", BOBS_KEY);
    let builder = builder.flag("--allow-scope").flag(site.directory.path());
    let gateway = builder.env_remove("API_KEY").start().await;
    (site, gateway)
}

pub(super) async fn environment(client: &RawClient, server: &str) -> String {
    client.call_tool_for_text(&format!("{server}_environment"), json!({})).await
}

#[tokio::test]
async fn a_principals_key_is_in_the_environment_of_its_own_processes_alone() {
    let (site, gateway) = with_keys("keys").await;
    let projects = ["alice", "bob", "carol"].map(|name| site.another_project(name));
    let alice = open_in(with_token(&gateway, ALICE), &projects[0]).await;
    let bob = open_in(with_token(&gateway, BOB), &projects[1]).await;
    let carol = open_in(with_token(&gateway, CAROL), &projects[2]).await;
    for (client, own, foreign) in [(&alice, ALICES_KEY, BOBS_KEY), (&bob, BOBS_KEY, ALICES_KEY)] {
        let keyed = environment(client, "keyed").await;
        assert!(keyed.contains(own) && !keyed.contains(foreign), "{keyed}");
        let plain = environment(client, "plain").await;
        assert!(!plain.contains(own) && !plain.contains(foreign), "{plain}");
    }
    let plain = environment(&carol, "plain").await;
    assert!(!plain.contains(ALICES_KEY) && !plain.contains(BOBS_KEY), "{plain}");
    assert_eq!(reason(&carol, "keyed").await.as_deref(), Some("Missing API_KEY"));

    let of_alice = processes_with(&gateway, ALICES_KEY);
    let of_bob = processes_with(&gateway, BOBS_KEY);
    assert!(!of_alice.is_empty() && !of_bob.is_empty(), "the control: {of_alice:?} {of_bob:?}");
    assert!(of_alice.iter().all(|pid| !of_bob.contains(pid)), "{of_alice:?} {of_bob:?}");
    alice.delete().await;
    wait_until("no process holds the key", async || processes_with(&gateway, ALICES_KEY).is_empty()).await;
    assert!(!processes_with(&gateway, BOBS_KEY).is_empty());

    for secret in [ALICES_KEY, BOBS_KEY] {
        assert!(!gateway.log().contains(secret), "keys are not logged");
        let seen = bob.session_report().await.to_string();
        assert!(!seen.contains(secret), "{seen}");
    }
}

/// Starts a gateway with one server, which gets one key in sessions of the shop's directory and another elsewhere.
pub(super) async fn start_with_shops_key(site: &Site, shop: &Path, keyed: &Value) -> Gateway {
    let configuration = json!({
        "servers": {"keyed": keyed},
        "secrets": {"API_KEY": {"env": "KEY_FOR_ALL"}},
        "workspaces": {shop.to_str().unwrap(): {"secrets": {"API_KEY": {"env": "KEY_FOR_SHOP"}}}},
    });
    site.write_configuration(&configuration.to_string());
    site.builder().env("KEY_FOR_ALL", "everybodys").env("KEY_FOR_SHOP", "the-shops").start().await
}

#[tokio::test]
async fn the_key_of_a_workspace_goes_before_that_of_its_principal() {
    let site = Site::new("workspace-key", &json!({}));
    let (shop, other) = (site.another_project("shop"), site.another_project("other"));
    let keyed = with(fixture(&[]), "env", json!({"API_KEY": "${API_KEY}"}));
    let gateway = start_with_shops_key(&site, &shop, &keyed).await;
    std::fs::create_dir(shop.join("api")).unwrap();
    for (directory, own, foreign) in [
        (shop.clone(), "the-shops", "everybodys"),
        (shop.join("api"), "the-shops", "everybodys"),
        (other, "everybodys", "the-shops"),
    ] {
        let client = open_in(gateway.client(), &directory).await;
        let found = environment(&client, "keyed").await;
        assert!(found.contains(own) && !found.contains(foreign), "{}: {found}", directory.display());
        client.delete().await;
    }
}

#[tokio::test]
async fn variables_of_a_file_are_read_for_each_session_and_shown_to_nobody() {
    let site = Site::new("variables-file", &json!({}));
    let file = site.directory.join("keys.env");
    write_private(&file, "# keys\nexport FIRST='one-7f3a9c'\nSECOND=two-51d0e2\n");
    let keyed = with(fixture(&[]), "env", json!({"SECOND": "said-here"}));
    let keyed = with(keyed, "envFile", json!("keys.env"));
    site.write_configuration(&json!({"servers": {"keyed": keyed, "plain": fixture(&[])}}).to_string());
    let gateway = site.start().await;
    let client = open_in(gateway.client(), &site.project()).await;
    let found = environment(&client, "keyed").await;
    assert!(found.contains("one-7f3a9c") && found.contains("said-here"), "{found}");
    assert!(!found.contains("two-51d0e2"), "`env` counts before the file: {found}");
    assert!(!environment(&client, "plain").await.contains("one-7f3a9c"));
    let shown = client.session_report().await.to_string();
    assert!(!shown.contains("one-7f3a9c") && !gateway.log().contains("one-7f3a9c"), "{shown}");

    write_private(&file, "FIRST=changed-b2\n");
    let later = open_in(gateway.client(), &site.project()).await;
    assert!(environment(&later, "keyed").await.contains("changed-b2"));

    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
    let linked = open_in(gateway.client(), &site.project()).await;
    let missing = format!("Missing {}", file.display());
    assert_eq!(reason(&linked, "keyed").await.as_deref(), Some(missing.as_str()));

    std::fs::remove_file(&file).unwrap();
    let without = open_in(gateway.client(), &site.project()).await;
    assert_eq!(reason(&without, "keyed").await.as_deref(), Some(missing.as_str()));
    assert!(environment(&without, "plain").await.contains("PATH"), "the others still work");
}

#[tokio::test]
async fn a_workspace_with_a_file_of_variables_is_refused() {
    let site = Site::new("variables-in-workspace", &json!({}));
    let (project, other) = (site.project(), site.another_project("other"));
    let file = project.join("keys.env");
    std::fs::write(&file, "FIRST=one-7f3a9c\n").unwrap();
    let keyed = with(fixture(&[]), "envFile", json!(file));
    site.write_configuration(&json!({"servers": {"keyed": keyed, "plain": fixture(&[])}}).to_string());
    let gateway = site.start().await;
    let inside = gateway.client().with_header("ringfence-workspace", project.to_str().unwrap());
    let reply = inside.post_initialize(&json!(1), json!({}), NEWEST).await;
    assert_eq!(reply.status, 403, "{:?}", reply.body);
    assert_eq!(reply.json()["error"]["data"]["reason"], "scope_refused");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("keys.env"), "{}", reply.json());
    let outside = open_in(gateway.client(), &other).await;
    assert!(environment(&outside, "keyed").await.contains("one-7f3a9c"), "the control");
}

#[tokio::test]
async fn no_server_reads_the_files_that_hold_secrets() {
    let site = Site::new("secret-files", &json!({}));
    let (project, secrets) = (site.project(), site.another_project("secrets"));
    let [key, variables, plain] = ["key", "variables.env", "plain.txt"].map(|name| secrets.join(name));
    for file in [&key, &variables, &plain] {
        std::fs::write(file, "A=secret-7f3a9c\n").unwrap();
    }
    let configuration = json!({
        "servers": {"box": with(fixture(&[]), "fence", json!({"read": [secrets]})), "keyed": with(fixture(&[]), "envFile", json!(variables))},
        "secrets": {"API_KEY": {"file": key}},
    });
    site.write_configuration(&configuration.to_string());
    let gateway = site.start().await;
    let client = open_in(gateway.client(), &project).await;
    let read = async |file: &Path| client.call_tool("box_read_file", json!({"path": file})).await.to_string();
    assert!(read(&plain).await.contains("secret-7f3a9c"), "the control");
    for file in [&key, &variables] {
        let answer = read(file).await;
        assert!(!answer.contains("secret-7f3a9c"), "{answer}");
    }
}

#[tokio::test]
async fn one_principals_session_does_not_exist_for_another() {
    let (site, gateway) = with_keys("foreign-session").await;
    let projects = ["alice", "bob"].map(|name| site.another_project(name));
    let alice = open_in(with_token(&gateway, ALICE), &projects[0]).await;
    let bob = open_in(with_token(&gateway, BOB), &projects[1]).await;
    let id = alice.session_id().unwrap();
    let path = format!("/session/{id}");
    for (method, path) in
        [("GET", path.clone()), ("DELETE", path.clone()), ("POST", format!("{path}/destroy"))]
    {
        let reply = bob.post("").method(method).path(&path).await;
        assert_eq!(reply.status, 404, "{method} {path}");
    }
    let mut thief = bob.clone();
    thief.set_session(Some(id), Some(super::NEWEST));
    assert_eq!(thief.post_tool_call(&json!(1), "plain_pid", json!({})).await.status, 404);
    let reply = alice.get_stream(None).path(&path).await;
    assert_eq!(reply.status, 200, "the control");
    assert_eq!(alice.post("").method("DELETE").path(&path).await.status, 204);
    assert_eq!(alice.get_stream(None).path(&path).await.status, 404, "it is gone");
}
