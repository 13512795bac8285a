//! An official MCP server over stdio, told of a wider directory than its fence: what it writes outside comes
//! back as an error of its tool, and the session goes on.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{PipedProcess, parts_dir};

use super::fenced_run::FencedRun;

struct Client {
    process: PipedProcess,
    last_id: u64,
}

impl Client {
    async fn connect(run: &FencedRun, options: &[&str], allowed: &Path) -> Self {
        let server = parts_dir().join("node_modules/.bin/mcp-server-filesystem");
        let process = PipedProcess::start(&mut run.command(options, [&server, allowed]));
        let mut client = Self { process, last_id: 0 };
        let parameters = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let initialized = client.request("initialize", parameters).await;
        assert!(initialized["result"]["capabilities"]["tools"].is_object(), "{initialized}");
        client.process.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn request(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters});
        self.process.send(&request).await;
        loop {
            let message = self.process.read().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    async fn write_file(&mut self, path: &Path, content: &str) -> Value {
        let arguments = json!({"path": path, "content": content});
        let call = json!({"name": "write_file", "arguments": arguments});
        self.request("tools/call", call).await["result"].take()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_outside_is_an_error_of_the_tool_and_the_session_goes_on() {
    for run in FencedRun::in_each_tier().await {
        // The server is told of all that is outside; only one directory in there is its fence's.
        let wide = run.ground.outside();
        let scope = wide.join("project");
        std::fs::create_dir(&scope).unwrap();
        run.ground.belongs_to_caller();
        let open = ["--net", "none", "--scope", scope.to_str().unwrap()];
        let strict = [&open[..], &["--read-mode", "strict", "--read", wide.to_str().unwrap()]].concat();
        for options in [&open[..], &strict] {
            let mut client = Client::connect(&run, options, &wide).await;

            let inside = client.write_file(&scope.join("inside"), "first").await;
            assert_ne!(inside["isError"], true, "tier {}: {inside}", run.tier);
            assert_eq!(std::fs::read_to_string(scope.join("inside")).unwrap(), "first");

            let target = wide.join("written");
            let refused = client.write_file(&target, "escaped").await;
            assert_eq!(refused["isError"], true, "tier {}: {refused}", run.tier);
            let reason = refused["content"][0]["text"].as_str().unwrap();
            let expected = if run.tier == "a" { "EACCES" } else { "EROFS" };
            assert!(reason.contains(expected), "tier {}: {refused}", run.tier);
            assert!(!target.exists());

            let again = client.write_file(&scope.join("inside"), "second").await;
            assert_ne!(again["isError"], true, "tier {}: {again}", run.tier);
            assert_eq!(std::fs::read_to_string(scope.join("inside")).unwrap(), "second");

            client.process.close_stdin();
            assert_eq!(client.process.exit_status().await.code(), Some(0), "tier {}", run.tier);
        }
    }
}
