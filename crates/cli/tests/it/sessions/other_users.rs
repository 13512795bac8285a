//! Without tokens a gateway serves only its own user. These tests need root, to act as other users.

use std::os::unix::fs::chown;
use std::process::Stdio;

use testkit::{Gateway, GatewayBuilder, WorkspaceDir, workspace_dir};
use tokio::process::Command;

use super::{Site, address_of};
use crate::authentication::write_private;

/// Users that no host has.
const STRANGER: u32 = 61_234;
const PROXY: u32 = 61_235;

const TOKEN: &str = "strangers-token-0123456789";

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not tested: only root can act as another user");
    }
    is_root
}

/// The answer to a request of another user's process.
async fn answer_to_user(user: u32, host: &str, gateway: &Gateway, headers: &str) -> String {
    let port = gateway.url().rsplit(':').next().unwrap().trim_end_matches("/mcp").to_owned();
    let request = format!(
        "DELETE /mcp HTTP/1.1\\r\\nHost: localhost\\r\\n{headers}Mcp-Session-Id: none\\r\\nConnection: close\\r\\n\\r\\n"
    );
    let script = format!("exec 8<>/dev/tcp/{host}/{port}; printf '{request}' >&8; cat <&8");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).uid(user).gid(user).current_dir("/").stdin(Stdio::null());
    String::from_utf8(command.output().await.unwrap().stdout).unwrap()
}

fn is_refused(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 403 ") && answer.contains("only the user who runs it")
}

/// The answer of a gateway to one whom it serves: there is no such session.
fn is_served(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 404 ") && answer.contains("-32001")
}

#[tokio::test]
async fn a_process_of_another_user_is_refused_at_every_kind_of_address() {
    if !is_root() {
        return;
    }
    for (host, connect) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::ffff:127.0.0.1", "127.0.0.1")] {
        let directory = workspace_dir("stranger");
        let builder = Gateway::unfenced().host(host).env("XDG_CACHE_HOME", directory.join("caches"));
        let gateway = builder.current_dir(directory.path()).start().await;
        let answer = answer_to_user(STRANGER, connect, &gateway, "").await;
        assert!(is_refused(&answer), "{host}: {answer}");
        let own = answer_to_user(0, connect, &gateway, "").await;
        assert!(is_served(&own), "the control, {host}: {own}");
    }
}

#[tokio::test]
async fn a_refused_user_is_counted_and_logged() {
    if !is_root() {
        return;
    }
    let site = Site::start("stranger-counted", &["--unfenced"]).await;
    for _ in 0..3 {
        assert!(is_refused(&answer_to_user(STRANGER, "127.0.0.1", &site.gateway, "").await));
    }
    assert_eq!((site.denials("foreign_uid").await, site.denials("fenced_peer").await), (3, 0));
    let line = site.gateway.wait_for_log("a connection of another user").await;
    assert!(line.contains(&STRANGER.to_string()), "{line}");
}

#[tokio::test]
async fn the_operator_can_allow_the_user_of_a_proxy() {
    if !is_root() {
        return;
    }
    let proxy = PROXY.to_string();
    let site = Site::start("proxy-user", &["--unfenced", "--behind-proxy", "--allow-uid", &proxy]).await;
    let answer = answer_to_user(PROXY, "127.0.0.1", &site.gateway, "X-Forwarded-For: 192.0.2.1\\r\\n").await;
    assert!(is_served(&answer), "{answer}");
    let answer = answer_to_user(STRANGER, "127.0.0.1", &site.gateway, "").await;
    assert!(is_refused(&answer), "{answer}");
}

#[tokio::test]
async fn with_tokens_every_user_may_connect_and_the_token_decides() {
    if !is_root() {
        return;
    }
    let directory = workspace_dir("stranger-token");
    let tokens = directory.join("tokens");
    write_private(&tokens, &format!("stranger:{TOKEN}\n"));
    let gateway = Gateway::unfenced()
        .flags(["--auth-token-file", tokens.to_str().unwrap()])
        .env("XDG_CACHE_HOME", directory.join("caches"))
        .current_dir(directory.path())
        .start()
        .await;
    let header = format!("Authorization: Bearer {TOKEN}\\r\\n");
    let answer = answer_to_user(STRANGER, "127.0.0.1", &gateway, &header).await;
    assert!(is_served(&answer), "{answer}");
    let answer = answer_to_user(STRANGER, "127.0.0.1", &gateway, "").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

/// A gateway of a plain user.
fn of_plain_user(directory: &WorkspaceDir) -> GatewayBuilder {
    for made in ["caches", "project"] {
        std::fs::create_dir_all(directory.join(made)).unwrap();
        chown(directory.join(made), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    Gateway::unfenced()
        .user(STRANGER)
        .env("XDG_CACHE_HOME", directory.join("caches"))
        .env("HOME", directory.join("project"))
        .current_dir(directory.join("project"))
}

#[tokio::test]
async fn root_is_no_exception_for_the_gateway_of_a_plain_user() {
    if !is_root() {
        return;
    }
    let directory = workspace_dir("plain-user");
    let gateway = of_plain_user(&directory).start().await;
    let answer = answer_to_user(0, "127.0.0.1", &gateway, "").await;
    assert!(is_refused(&answer), "{answer}");
    let own = answer_to_user(STRANGER, "127.0.0.1", &gateway, "").await;
    assert!(is_served(&own), "the control: {own}");
    let gateway = of_plain_user(&directory).flags(["--allow-uid", "0"]).start().await;
    let answer = answer_to_user(0, "127.0.0.1", &gateway, "").await;
    assert!(is_served(&answer), "{answer}");
    assert!(address_of(&gateway).starts_with("127.0.0.1:"));
}
