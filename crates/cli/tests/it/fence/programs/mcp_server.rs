//! An official MCP server over stdio whose own allowed directory is wider than its fence: a write outside the
//! fence becomes a tool error, and the session continues.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{StdioClient, parts_dir};

use super::fenced_run::FencedRun;

async fn connect(run: &FencedRun, options: &[&str], allowed: &Path) -> StdioClient {
    let server = parts_dir().join("node_modules/.bin/mcp-server-filesystem");
    let mut client = StdioClient::start(&mut run.command(options, [&server, allowed]));
    let opened = client.initialize(json!({}), "2025-06-18").await;
    assert!(opened["result"]["capabilities"]["tools"].is_object(), "{opened}");
    client.notify("notifications/initialized").await;
    client
}

async fn write_file(client: &mut StdioClient, path: &Path, content: &str) -> Value {
    let call = json!({"name": "write_file", "arguments": {"path": path, "content": content}});
    client.request_amid_others("tools/call", call).await["result"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_outside_is_an_error_of_the_tool_and_the_session_goes_on() {
    for run in FencedRun::in_each_tier().await {
        // The server may use the whole directory; its fence allows writes to only one directory in it.
        let wide = run.ground.outside();
        let scope = wide.join("project");
        std::fs::create_dir(&scope).unwrap();
        run.ground.belongs_to_caller();
        let scoped = ["--net", "none", "--scope", scope.to_str().unwrap()];
        let open = [&scoped[..], &["--read-mode", "open"]].concat();
        let strict = [&scoped[..], &["--read-mode", "strict", "--read", wide.to_str().unwrap()]].concat();
        for options in [&open[..], &strict] {
            let mut client = connect(&run, options, &wide).await;

            let inside = write_file(&mut client, &scope.join("inside"), "first").await;
            assert_ne!(inside["isError"], true, "tier {}: {inside}", run.tier);
            assert_eq!(std::fs::read_to_string(scope.join("inside")).unwrap(), "first");

            let target = wide.join("written");
            let refused = write_file(&mut client, &target, "escaped").await;
            assert_eq!(refused["isError"], true, "tier {}: {refused}", run.tier);
            let reason = refused["content"][0]["text"].as_str().unwrap();
            let expected = if run.tier == "a" { "EACCES" } else { "EROFS" };
            assert!(reason.contains(expected), "tier {}: {refused}", run.tier);
            assert!(!target.exists());

            let again = write_file(&mut client, &scope.join("inside"), "second").await;
            assert_ne!(again["isError"], true, "tier {}: {again}", run.tier);
            assert_eq!(std::fs::read_to_string(scope.join("inside")).unwrap(), "second");

            client.close_stdin();
            assert_eq!(client.exit_status().await.code(), Some(0), "tier {}", run.tier);
        }
    }
}
