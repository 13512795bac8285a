//! A single server and its data: refused beside its own code, and kept with `--storage`.

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, RawClient, WorkspaceDir, ringfence_binary, workspace_dir};
use tokio::process::Command;

use crate::fence::programs::fenced_run::npm_registry;

const MEMORY: [&str; 3] = ["npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"];

/// Two projects, and directories for the caches and the data of gateways.
struct Site {
    directory: WorkspaceDir,
    registry: String,
}

impl Site {
    async fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        for project in ["one", "two"] {
            std::fs::create_dir(directory.join(project)).unwrap();
        }
        Self { directory, registry: npm_registry().await }
    }

    async fn serve(&self, flags: &[&str]) -> Gateway {
        Gateway::builder()
            .command(MEMORY)
            .flags(flags)
            .env("XDG_CACHE_HOME", self.directory.join("caches"))
            .env("XDG_DATA_HOME", self.directory.join("data"))
            .env("NPM_CONFIG_REGISTRY", &self.registry)
            .current_dir(self.directory.join("one"))
            .start()
            .await
    }

    async fn open(&self, gateway: &Gateway, project: &str) -> RawClient {
        let project = self.directory.join(project).canonicalize().unwrap();
        let mut client = gateway.client().with_header("ringfence-workspace", project.to_str().unwrap());
        client.open(json!({}), NEWEST).await;
        client
    }
}

async fn remember(client: &RawClient) -> Value {
    let entity = json!({"name": "Ada", "entityType": "person", "observations": []});
    client.call_tool("create_entities", json!({"entities": [entity]})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_the_fence_refuses_has_a_remedy_and_the_remedy_keeps_it() {
    let site = Site::new("memory-alone").await;
    let gateway = site.serve(&[]).await;
    let refused = remember(&site.open(&gateway, "one").await).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let content = refused["result"]["content"].as_array().unwrap();
    let [raw, remedy] = &content[..] else { panic!("{refused}") };
    assert!(raw["text"].as_str().unwrap().contains("EROFS"), "the server's own words: {raw}");
    for part in ["[ringfence: the fence refused ", "memory.jsonl", "serve --storage", "storage: persistent"] {
        assert!(remedy["text"].as_str().unwrap().contains(part), "{part}: {remedy}");
    }
    // The control: another error of the same server is not blamed on the fence.
    let nobody = json!([{"entityName": "Eve", "contents": ["x"]}]);
    let session = site.open(&gateway, "one").await;
    let unknown = session.call_tool("add_observations", json!({"observations": nobody})).await;
    assert_eq!(unknown["result"]["isError"], true, "{unknown}");
    assert_eq!(unknown["result"]["content"].as_array().map(Vec::len), Some(1), "{unknown}");
    let log = gateway.wait_for_log("the fence refused ").await;
    let hint = log.lines().find(|line| line.contains("the fence refused ")).unwrap();
    for part in ["memory.jsonl", "serve --storage", "storage: persistent", "--write DIR"] {
        assert!(hint.contains(part), "{part}: {hint}");
    }
    drop(gateway);

    let gateway = site.serve(&["--storage"]).await;
    let remembered = remember(&site.open(&gateway, "one").await).await;
    assert!(remembered["result"]["isError"].is_null(), "{remembered}");
    drop(gateway);
    let gateway = site.serve(&["--storage"]).await;
    let graph = site.open(&gateway, "one").await.call_tool_for_text("read_graph", json!({})).await;
    assert!(graph.contains("Ada"), "{graph}");
    let other = site.open(&gateway, "two").await.call_tool_for_text("read_graph", json!({})).await;
    assert!(!other.contains("Ada"), "another workspace: {other}");
    assert!(!gateway.log().contains("the fence refused "), "{}", gateway.log());
}

#[tokio::test]
async fn a_storage_without_a_workspace_or_a_server_is_refused() {
    for (words, expected) in [
        (&["serve", "--no-config", "--storage"][..], "write ringfence serve --storage -- COMMAND"),
        (&["serve", "--storage", "--shared", "--", "true"], "--lifecycle workspace"),
    ] {
        let directory = workspace_dir("no-storage");
        let output = Command::new(ringfence_binary())
            .args(words)
            .current_dir(directory.path())
            .env("XDG_CACHE_HOME", directory.join("caches"))
            .output()
            .await
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("--storage") && stderr.contains(expected), "{stderr}");
    }
}
