//! `stdio --config`: an aggregate for one client on stdin and stdout.

use serde_json::json;
use testkit::{StdioClient, ringfence_binary};
use tokio::process::Command;

use super::{Site, fixture, official};

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
    let (mut client, opened) = StdioClient::open(&mut command, json!({})).await;
    assert_eq!(opened["result"]["serverInfo"]["name"], "ringfence", "{opened}");
    let answer = client.request_amid_others("tools/list", json!({})).await;
    let listed = &answer["result"];
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"box_echo") && names.contains(&"everything_echo"), "{names:?}");
    let call = json!({"name": "everything_echo", "arguments": {"message": "hi"}});
    let answer = client.request_amid_others("tools/call", call).await;
    assert_eq!(answer["result"]["content"][0]["text"], "Echo: hi");
    let call = json!({"name": "box_echo", "arguments": {"text": "ho"}});
    let answer = client.request_amid_others("tools/call", call).await;
    assert_eq!(answer["result"]["content"][0]["text"], "ho");
    client.close_stdin();
    assert!(client.exit_status().await.success());
}
