//! What the log tells of shell commands: the command, without what looks like a secret.

use serde_json::{Value, json};
use testkit::{Gateway, wait_until};

use super::Site;

#[tokio::test]
async fn the_log_has_the_commands_that_ran_without_their_secrets() {
    let site = Site::new("audited-commands");
    let gateway = Gateway::built_in()
        .flag("--no-config")
        .flag("--audit-log")
        .flag(site.log())
        .env("XDG_CACHE_HOME", site.directory.join("caches"))
        .current_dir(site.directory.join("project"))
        .start()
        .await;
    let client = gateway.open().await;
    let command = "API_TOKEN=hunter2 sh -c 'echo $API_TOKEN > out' && cat out";
    let answer = client.call_tool("run_terminal_cmd", json!({"command": command})).await;
    assert!(answer.to_string().contains("hunter2"), "the command ran as it was written: {answer}");
    let logged = async || {
        let lines = site.lines();
        let entries = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.filter(|entry| entry["tool"] == "run_terminal_cmd").find(|entry| entry["command"].is_string())
    };
    wait_until("the call is logged", async || logged().await.is_some()).await;
    let entry = logged().await.unwrap();
    assert_eq!(entry["command"], "API_TOKEN=[redacted] sh -c 'echo $API_TOKEN > out' && cat out");
    assert!(!site.lines().concat().contains("hunter2"));
}
