//! The addresses that may be bound; a fenced server cannot reach the gateway at any of them.

use std::net::{IpAddr, UdpSocket};

use serde_json::json;
use testkit::{Gateway, NEWEST, RawClient};

use super::{ALICE, Site, WANTED, assert_unauthorized, initialize, with_token, write_private};

/// The address from which this host sends to the network. Finding it out sends nothing.
fn address_on_the_network() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").expect("these tests need a host with an address on a network");
    socket.local_addr().unwrap().ip()
}

fn port(gateway: &Gateway) -> u16 {
    gateway.url().trim_end_matches("/mcp").rsplit(':').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_address_of_the_network_needs_tokens_and_tls_or_a_proxy() {
    let site = Site::new("auth-binds");
    let own = address_on_the_network().to_string();
    for host in ["0.0.0.0", "::", &own] {
        for (flags, reason, hint) in [
            (vec![], "there is no authentication", "--auth-token-file"),
            (vec!["--behind-proxy"], "there is no authentication", "--auth-token-file"),
        ] {
            let failed = Gateway::unfenced().host(host).flags(flags).try_start().await.unwrap_err();
            assert_eq!(failed.status.code(), Some(2), "{host}: {}", failed.stderr);
            assert!(failed.stderr.contains(reason) && failed.stderr.contains(hint), "{}", failed.stderr);
        }
        let failed = site.gateway(Gateway::unfenced()).host(host).try_start().await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{host}: {}", failed.stderr);
        assert!(failed.stderr.contains("there is no TLS"), "{}", failed.stderr);
        assert!(failed.stderr.contains("--tls-cert") && failed.stderr.contains("--behind-proxy"));
    }
    let half = site.gateway(Gateway::unfenced()).flags(["--tls-cert", "cert.pem"]).try_start().await;
    assert!(half.unwrap_err().stderr.contains("--tls-key"));
}

#[tokio::test]
async fn behind_a_proxy_plain_http_is_served_on_the_network() {
    let site = Site::new("auth-proxy");
    let own = address_on_the_network();
    let mut gateway =
        site.gateway(Gateway::unfenced()).host(own.to_string()).flag("--behind-proxy").start().await;
    assert!(gateway.url().starts_with(&format!("http://{own}:")), "{}", gateway.url());
    assert_unauthorized(&initialize(&gateway.client()).await, WANTED, "no token");
    let alice = site.open(&gateway, "alice", ALICE).await;
    assert_eq!(alice.call_tool_for_text("echo", json!({"text": "here"})).await, "here");
    let listed = super::tls::sessions_list(&site).await;
    assert!(listed.contains(alice.session_id().map(|_| "alice").unwrap()), "{listed}");
    gateway.terminate().await;
}

#[tokio::test]
async fn behind_a_proxy_callers_are_told_apart_by_the_address_that_it_adds() {
    let site = Site::new("auth-forwarded");
    let audit = site.directory.join("audit.jsonl");
    let builder = site.gateway(Gateway::unfenced()).flag("--behind-proxy").flag("--audit-log").flag(&audit);
    let mut gateway = builder.start().await;
    let forwarded = gateway.client().with_header("x-forwarded-for", "203.0.113.7, 203.0.113.9");
    assert_eq!(initialize(&forwarded).await.status, 401);
    gateway.terminate().await;
    let audit = std::fs::read_to_string(audit).unwrap();
    assert!(audit.contains("203.0.113.9") && !audit.contains("203.0.113.7"), "{audit}");
}

/// Sends `initialize` with a valid token to the gateway from a server behind it, and returns the answer.
async fn from_inside(client: &RawClient, address: &str, token: &str) -> String {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "inside", "version": "1"}},
    })
    .to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = client.call_tool("tcp_exchange", json!({"address": address, "send": request})).await;
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_fenced_server_is_refused_at_every_address_of_this_host() {
    let site = Site::new("auth-fenced");
    let own = address_on_the_network();
    for (fence, expected) in [("--allow-root", "HTTP/1.1 403 "), ("--unfenced", "HTTP/1.1 200 ")] {
        let builder = site.gateway(Gateway::builder()).host("0.0.0.0").flags(["--behind-proxy", fence]);
        let gateway = builder.start().await;
        let alice = site.open(&gateway, "alice", ALICE).await;
        for address in [own.to_string(), "127.0.0.1".to_owned(), "0.0.0.0".to_owned()] {
            let answer = from_inside(&alice, &format!("{address}:{}", port(&gateway)), ALICE).await;
            assert!(answer.starts_with(expected), "{fence} at {address}: {answer}");
        }
        assert_eq!(initialize(&with_token(gateway.client(), ALICE)).await.status, 200, "others may");
    }
}

#[tokio::test]
async fn a_fenced_server_cannot_read_the_tokens_beside_what_it_may_read() {
    let site = Site::new("auth-hidden");
    let kept = site.directory.join("kept");
    std::fs::create_dir(&kept).unwrap();
    write_private(&kept.join("tokens"), &format!("alice:{ALICE}\n"));
    std::fs::write(kept.join("notes"), "notes of the operator").unwrap();
    let gateway = Gateway::builder()
        .flags(["--allow-root", "--auth-token-file"])
        .flag(kept.join("tokens"))
        .flag("--allow-scope")
        .flag(site.directory.path())
        .flag("--read")
        .flag(&kept)
        .env("XDG_CACHE_HOME", site.directory.join("caches"))
        .current_dir(site.directory.join("project"))
        .start()
        .await;
    let alice = site.open(&gateway, "alice", ALICE).await;
    let read =
        async |name: &str| alice.call_tool("read_file", json!({"path": kept.join(name)})).await.to_string();
    assert!(read("notes").await.contains("notes of the operator"), "the control");
    let tokens = read("tokens").await;
    assert!(!tokens.contains(ALICE), "{tokens}");
}
