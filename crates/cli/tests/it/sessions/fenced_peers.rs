//! A program inside a fence must not use the gateway, where it could open a session with a wider scope than its own.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{NEWEST, fixture_binary, ringfence_binary};

use super::Site;

fn initialize(address: &str, headers: &str) -> String {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "inside", "version": "1"}},
    })
    .to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Connection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn get(address: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
}

/// Sends a request to the gateway from a server behind it, and returns the answer.
async fn from_inside(site: &Site, request: &str) -> String {
    let client = site.gateway.open().await;
    let address = address(site);
    let answer = client.call_tool("tcp_exchange", json!({"address": address, "send": request})).await;
    assert_eq!(client.delete().await.status, 204);
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn address(site: &Site) -> String {
    let url = site.gateway.url();
    url.trim_start_matches("http://").split('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_fenced_server_is_refused_on_every_route() {
    for tier in ["a", "b"] {
        let site = Site::start("fenced-peer", &["--tier", tier, "--allow-root"]).await;
        let address = address(&site);
        let other = site.directory.join("other");
        std::fs::create_dir(&other).unwrap();
        let wider = format!("Ringfence-Workspace: {}\r\n", other.display());
        for request in [
            initialize(&address, ""),
            initialize(&address, &wider),
            get(&address, "/health"),
            get(&address, "/sessions"),
            get(&address, "/metrics"),
        ] {
            let answer = from_inside(&site, &request).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "tier {tier}, {request}: {answer}");
            assert!(answer.contains("inside a fence"), "tier {tier}: {answer}");
        }
        assert_eq!(site.gateway.counter("sessions_opened").await, 5, "only those of this test");
        site.gateway.wait_for_log("from inside a fence").await;
        let metrics = site.get("/metrics").await;
        let text = String::from_utf8(metrics.raw).unwrap();
        assert!(text.contains(r#"ringfence_denials_total{reason="fenced_peer"} 5"#), "{text}");
    }
}

#[tokio::test]
async fn the_same_server_without_a_fence_is_let_in() {
    let site = Site::start("open-peer", &["--unfenced"]).await;
    let answer = from_inside(&site, &initialize(&address(&site), "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the control: {answer}");
    assert!(answer.to_lowercase().contains("mcp-session-id"), "{answer}");
}

#[tokio::test]
async fn the_proxy_of_a_fence_is_no_way_round() {
    let site = Site::start("proxy-peer", &["--net", "http", "--allow-host", "127.0.0.1"]).await;
    let address = address(&site);
    let client = site.gateway.open().await;
    let environment = client.call_tool_for_text("environment", json!({})).await;
    let variables: Value = serde_json::from_str(&environment).unwrap();
    let proxy = variables["http_proxy"].as_str().or(variables["HTTP_PROXY"].as_str()).unwrap();
    let proxy = proxy.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let request =
        format!("GET http://{address}/health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = client.call_tool("tcp_exchange", json!({"address": proxy, "send": request})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(!text.contains("200 OK") && !text.ends_with("OK"), "{answer}");
}

#[tokio::test]
async fn the_gateways_own_port_is_not_mirrored_into_fences() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let serve = |mirrored: &str| {
        let mut command = tokio::process::Command::new(ringfence_binary());
        command.args(["serve", "--net", "localhost", "--host-port", mirrored, "--port", &port, "--"]);
        command.arg(fixture_binary()).stdin(Stdio::null()).kill_on_drop(true).output()
    };
    let refused = serve(&port).await.unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("is the port of this gateway"), "{stderr}");
}
