//! Gateways that require a token.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use testkit::{Gateway, NEWEST, RawClient, ringfence_binary, wait_until};
use tokio::process::Command;

use super::machine::Machine;
use super::{Connected, Ide, Proxy, Site, error_of};
use crate::authentication::{set_mode, write_private};

pub(super) const ALICE: &str = "alices-token-0123456789";
pub(super) const BOB: &str = "bobs-token-0123456789ab";
const NOBODY: &str = "nobodys-token-0123456789";

/// Writes the gateway's token file, which knows Alice and Bob, and token files for clients, one with an unknown token.
pub(super) fn write_tokens(site: &Site) {
    write_private(&site.directory.join("tokens"), &format!("alice:{ALICE}\nbob:{BOB}\n"));
    for (name, token) in [("alice", ALICE), ("bob", BOB), ("nobody", NOBODY)] {
        write_private(&site.directory.join(format!("{name}.token")), &format!("{token}\n"));
    }
}

async fn start(site: &Site) -> Gateway {
    write_tokens(site);
    site.gateway().flag("--auth-token-file").flag(site.directory.join("tokens")).start().await
}

pub(super) fn with_token(client: RawClient, token: &str) -> RawClient {
    client.with_header("authorization", &format!("Bearer {token}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_comes_from_a_file_or_from_the_environment() {
    let site = Site::new("connect-token");
    let gateway = start(&site).await;
    let from_file = site.ide(gateway.url()).flag("--token-file").flag(site.directory.join("alice.token"));
    let from_environment = site.ide(gateway.url()).env("RINGFENCE_TOKEN", ALICE);
    for ide in [from_file, from_environment] {
        let mut ide = ide.open().await;
        ide.echoes("remote").await;
        ide.echoes("local").await;
    }
}

#[tokio::test]
async fn a_token_file_that_cannot_be_trusted_is_refused_with_a_hint() {
    let site = Site::new("connect-token-file");
    write_tokens(&site);
    let file = site.directory.join("alice.token");
    let refused = async |file: &Path| {
        let mut connect = Command::new(ringfence_binary());
        connect.args(["connect", "http://127.0.0.1:9", "--token-file"]).arg(file).stdin(Stdio::null());
        let output = connect.output().await.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!told.contains(ALICE), "{told}");
        assert!(
            output.status.success() || (output.status.code() == Some(2) && told.contains("hint: ")),
            "{told}"
        );
        (!output.status.success()).then_some(told)
    };
    assert_eq!(refused(&file).await, None, "the control");
    for mode in [0o640, 0o604, 0o620, 0o601, 0o644] {
        set_mode(&file, mode);
        let told = refused(&file).await.unwrap();
        assert!(told.contains(&format!("mode {mode:03o}")) && told.contains("hint: chmod 600"), "{told}");
    }
    set_mode(&file, 0o600);
    let link = site.directory.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(refused(&link).await.unwrap().contains("symbolic link"));
    assert!(refused(&site.directory.join("home")).await.unwrap().contains("not a regular file"));
    assert!(refused(&site.directory.join("none")).await.unwrap().contains("No such file"));
    write_private(&file, "\n");
    assert!(refused(&file).await.unwrap().contains("does not hold one token"));
    write_private(&file, ALICE);
    std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    assert!(refused(&file).await.unwrap().contains("belongs to another user"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_local_server_can_read_the_token() {
    let site = Site::new("connect-token-hidden");
    let gateway = start(&site).await;
    let private = site.directory.join("private");
    std::fs::create_dir(&private).unwrap();
    let (token, other) = (private.join("token"), private.join("other"));
    for file in [&token, &other] {
        write_private(file, ALICE);
    }
    let ide = site.ide(gateway.url()).flag("--read").flag(&private);
    let mut ide = ide.flag("--token-file").flag(&token).open().await;
    ide.echoes("remote").await;
    let read = async |ide: &mut Ide, name| {
        let command = format!("cat {}/{name}", private.display());
        ide.call("filesystem_run_terminal_cmd", json!({"command": command})).await.to_string()
    };
    let shown = read(&mut ide, "other").await;
    assert!(shown.contains(ALICE), "the control: {shown}");
    let hidden = read(&mut ide, "token").await;
    assert!(!hidden.contains(ALICE), "{hidden}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_told_and_local_tools_work() {
    let site = Site::new("connect-wrong-token");
    let gateway = start(&site).await;
    let nobody = site.ide(gateway.url()).flag("--token-file").flag(site.directory.join("nobody.token"));
    for ide in [nobody, site.ide(gateway.url())] {
        let mut ide = ide.open().await;
        ide.echoes("local").await;
        wait_until("the refusal is told", async || {
            let refused = ide.call("remote_echo", json!({"text": "x"})).await;
            assert!(!refused.to_string().contains(NOBODY), "{refused}");
            let message = error_of(&refused);
            assert!(message.contains("gateway"), "{message}");
            message.contains("401")
        })
        .await;
        ide.echoes("local").await;
    }
    let log = site.connect_log();
    assert!(log.contains("401"), "{log}");
    assert!(!log.contains(NOBODY), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_becomes_valid_is_tried_again() {
    let site = Site::new("connect-late-token");
    let gateway = start(&site).await;
    let mut ide = site.ide(gateway.url()).env("RINGFENCE_TOKEN", NOBODY).open().await;
    let refused = ide.call("remote_echo", json!({"text": "x"})).await;
    assert!(error_of(&refused).contains("gateway"), "{refused}");
    write_private(&site.directory.join("tokens"), &format!("alice:{ALICE}\nnobody:{NOBODY}\n"));
    ide.call_until_it_works("remote_echo", &json!({"text": "x"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_another_principal_cannot_be_attached_to() {
    let site = Site::new("connect-principals");
    let gateway = start(&site).await;
    let mut alice = with_token(gateway.client(), ALICE);
    alice.open(json!({}), NEWEST).await;
    let id = alice.session_id().unwrap().to_owned();
    let attach = async |id: &str, token| Machine::attach(gateway.url(), id, token, "a machine").await.err();
    assert_eq!(attach(&id, Some(BOB)).await, Some(404));
    assert_eq!(
        attach("00000000-0000-4000-8000-000000000000", Some(BOB)).await,
        Some(404),
        "as if it did not exist"
    );
    assert_eq!(attach("../mcp", Some(ALICE)).await, Some(404));
    assert_eq!(attach(&id, Some(NOBODY)).await, Some(401));
    assert_eq!(attach(&id, None).await, Some(401));
    let away = alice.call_tool("local_where", json!({})).await;
    assert!(error_of(&away).contains("not connected"), "{away}");

    let machine = Machine::attach(gateway.url(), &id, Some(ALICE), "a machine").await;
    let _machine = machine.unwrap_or_else(|status| panic!("the control: {status}"));
    wait_until("her own machine answers", async || {
        alice.call_tool("local_where", json!({})).await["result"]["content"][0]["text"] == "a machine"
    })
    .await;
    let mut thief = with_token(gateway.client(), BOB);
    thief.set_session(Some(&id), Some(NEWEST));
    assert_eq!(thief.post_tool_call(&json!(1), "local_where", json!({})).await.status, 404);
    let path = format!("/session/{id}");
    assert_eq!(thief.get_stream(None).path(&path).await.status, 404);
    assert_eq!(alice.get_stream(None).path(&path).await.status, 200, "the control");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_principal_attaches_no_other_sees() {
    let site = Site::new("connect-principals-see");
    let gateway = start(&site).await;
    let proxy = Proxy::start(gateway.url()).await;
    let ide = site.ide(&proxy.url()).env("RINGFENCE_TOKEN", ALICE).open().await;
    let connected = Connected { site, gateway, proxy, ide };
    let alice = async || {
        let id = connected.proxy.session_id()?;
        let mut alice = with_token(connected.gateway.client(), ALICE);
        alice.set_session(Some(&id), Some(NEWEST));
        Some(alice)
    };
    wait_until("Alice's machine is attached", async || match alice().await {
        Some(alice) => alice.call_tool("local_echo", json!({"text": "x"})).await.get("result").is_some(),
        None => false,
    })
    .await;
    let mut bob = with_token(connected.gateway.client(), BOB);
    bob.open(json!({}), NEWEST).await;
    let shown = bob.request("tools/list", Some(json!({}))).await.to_string();
    assert!(shown.contains("remote_echo") && !shown.contains("local_echo"), "{shown}");
    let refused = bob.call_tool("local_echo", json!({"text": "x"})).await;
    assert!(error_of(&refused).contains("not connected"), "{refused}");
}
