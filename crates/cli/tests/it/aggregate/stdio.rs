//! `stdio --config`: the same for one client on stdin and stdout.

use serde_json::{Value, json};
use testkit::{PipedProcess, ringfence_binary};
use tokio::process::Command;

use super::{NEWEST, Site, fixture, official};

async fn request(process: &mut PipedProcess, id: u64, method: &str, params: Value) -> Value {
    process.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    loop {
        let message = process.read().await;
        if message["id"] == id && message.get("method").is_none() {
            return message["result"].clone();
        }
    }
}

#[tokio::test]
async fn one_client_on_stdin_has_all_servers() {
    let site = Site::new(
        "stdio",
        &json!({"servers": {
            "box": fixture(&[]),
            "everything": official("server-everything", &[]),
            "absent": {"command": ["/no/such/program"]},
        }}),
    );
    let mut command = Command::new(ringfence_binary());
    command.args(["stdio", "--config"]).arg(site.configuration()).current_dir(site.project());
    command.env("XDG_CACHE_HOME", site.directory.join("caches"));
    let mut process = PipedProcess::start(&mut command);
    let params =
        json!({"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let opened = request(&mut process, 1, "initialize", params).await;
    assert_eq!(opened["serverInfo"]["name"], "ringfence", "{opened}");
    process.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let listed = request(&mut process, 2, "tools/list", json!({})).await;
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"box_echo") && names.contains(&"everything_echo"), "{names:?}");
    let call = json!({"name": "everything_echo", "arguments": {"message": "hi"}});
    let answer = request(&mut process, 3, "tools/call", call).await;
    assert_eq!(answer["content"][0]["text"], "Echo: hi");
    let call = json!({"name": "box_echo", "arguments": {"text": "ho"}});
    let answer = request(&mut process, 4, "tools/call", call).await;
    assert_eq!(answer["content"][0]["text"], "ho");
    process.close_stdin();
    assert!(process.exit_status().await.success());
}
