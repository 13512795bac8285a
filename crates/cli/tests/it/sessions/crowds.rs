//! Many connections at once: idle ones keep no client out, and the operator is always heard.

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{Gateway, RawClient, Reply, open_descriptors, wait_until, within_deadline, workspace_dir};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Site, echoes};
use crate::authentication::write_private;

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn connect(site: &Site) -> TcpStream {
    TcpStream::connect(site.address().parse::<SocketAddr>().unwrap()).await.unwrap()
}

/// Connections that send nothing, each accepted by the gateway.
async fn idle_crowd(site: &Site, count: usize) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..count {
        crowd.push(connect(site).await);
    }
    crowd
}

async fn is_healthy(site: &Site) {
    assert_eq!(site.get("/health").await.status, 200);
}

/// `ringfence sessions list` shows this many sessions.
async fn operator_sees(site: &Site, sessions: usize) {
    let listed = site.ringfence(&["sessions", "list", "--json"]).await;
    let answer: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(answer["sessions"].as_array().unwrap().len(), sessions, "{answer}");
}

/// Waits for the gateway to close the connection.
async fn is_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset closes it, too.
    let _ = within_deadline("the connection is closed", stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

/// Sends a request on a connection that stays open. Returns false if it is closed.
async fn health_on(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4096];
    if stream.write_all(HEALTH).await.is_err() {
        return false;
    }
    let length = within_deadline("an answer", stream.read(&mut answer)).await.unwrap_or(0);
    answer[..length].starts_with(b"HTTP/1.1 200 ")
}

#[tokio::test]
async fn idle_connections_from_inside_a_fence_hold_no_places() {
    let site = Site::start("crowd-inside", &["--max-connections", "100"]).await;
    let client = site.gateway.open().await;
    echoes(&client).await;
    let descriptors = open_descriptors(site.gateway.pid());
    let held = client.call_tool_for_text("tcp_hold", json!({"address": site.address(), "count": 300})).await;
    assert_eq!(held, "300", "the control: all could connect");
    is_healthy(&site).await;
    operator_sees(&site, 1).await;
    echoes(&client).await;
    wait_until("they are closed", async || open_descriptors(site.gateway.pid()) <= descriptors + 8).await;
    assert_eq!(site.denials("fenced_peer").await, 300);
    assert_eq!(site.denials("too_many").await, 0);
}

#[tokio::test]
async fn idle_connections_from_outside_make_room_the_oldest_first() {
    let site = Site::start("crowd-outside", &["--unfenced", "--max-connections", "100"]).await;
    let client = site.gateway.open().await;
    let mut crowd = idle_crowd(&site, 300).await;
    is_healthy(&site).await;
    operator_sees(&site, 1).await;
    echoes(&client).await;
    is_closed(&mut crowd[0]).await;
    assert!(health_on(crowd.last_mut().unwrap()).await, "the newest has its place");
    assert_eq!(site.denials("too_many").await, 0);
}

#[tokio::test]
async fn used_connections_stay_longer_than_silent_ones() {
    let site = Site::start("crowd-silent", &["--unfenced", "--max-connections", "4"]).await;
    let mut used = connect(&site).await;
    assert!(health_on(&mut used).await);
    // None of these has sent a request, so they take the places of each other.
    let _crowd = idle_crowd(&site, 20).await;
    is_healthy(&site).await;
    assert!(health_on(&mut used).await);
}

/// A call that does not end.
async fn endless_call(client: &RawClient) -> Reply {
    client.post_tool_call(&client.next_id(), "sleep", json!({"ms": 3_600_000})).await
}

#[tokio::test]
async fn when_requests_take_all_places_clients_are_told_and_the_operator_is_served() {
    let site = Site::start("crowd-busy", &["--unfenced", "--max-connections", "4"]).await;
    let client = site.gateway.open().await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(endless_call(&client).await);
    }
    let refused = site.get("/health").await;
    assert_eq!(refused.status, 503, "{:?}", refused.body);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["code"], -32000);
    operator_sees(&site, 1).await;
    drop(calls.pop());
    wait_until("a place is free", async || site.get("/health").await.status == 200).await;
    assert!(site.denials("too_many").await >= 1);
    site.gateway.wait_for_log("a connection beyond the limit").await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_long_before_one_that_had_some() {
    let site = Site::start("crowd-deadline", &["--unfenced"]).await;
    let mut used = connect(&site).await;
    assert!(health_on(&mut used).await);
    let (mut silent, mut slow) = (connect(&site).await, connect(&site).await);
    slow.write_all(b"GET /health HTTP/1.1\r\nHost: ").await.unwrap();
    is_closed(&mut silent).await;
    is_closed(&mut slow).await;
    assert!(health_on(&mut used).await, "the control");
}

#[tokio::test]
async fn one_principal_has_at_most_half_of_all_requests() {
    const TOKENS: [&str; 2] = ["first-token-0123456789", "second-token-0123456789"];
    let directory = workspace_dir("crowd-principals");
    let (tokens, project) = (directory.join("tokens"), directory.join("project"));
    std::fs::create_dir(&project).unwrap();
    write_private(&tokens, &format!("first:{}\nsecond:{}\n", TOKENS[0], TOKENS[1]));
    let gateway = Gateway::unfenced()
        .flags(["--auth-token-file", tokens.to_str().unwrap(), "--max-connections", "8"])
        .flag("--allow-scope")
        .flag(directory.path())
        .env("XDG_CACHE_HOME", directory.join("caches"))
        .current_dir(&project)
        .start()
        .await;
    let mut clients = Vec::new();
    for (number, token) in TOKENS.iter().enumerate() {
        let workspace = directory.join(number.to_string());
        std::fs::create_dir(&workspace).unwrap();
        let mut client = gateway
            .client()
            .with_header("authorization", &format!("Bearer {token}"))
            .with_header("ringfence-workspace", workspace.to_str().unwrap());
        client.open(json!({}), testkit::NEWEST).await;
        clients.push(client);
    }
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(endless_call(&clients[0]).await);
    }
    let refused = clients[0].post_tool_call(&json!(99), "echo", json!({"text": "x"})).await;
    assert_eq!(refused.status, 429, "{:?}", refused.body);
    assert!(refused.header("retry-after").is_some());
    echoes(&clients[1]).await;
    drop(calls.pop());
    wait_until("it may call again", async || {
        clients[0].post_tool_call(&clients[0].next_id(), "echo", json!({"text": "x"})).await.status == 200
    })
    .await;
}
