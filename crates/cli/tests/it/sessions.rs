//! Sessions as an operator knows them: how many there may be, what is seen of them, how they end, and that
//! nothing is left.

mod ends;
mod fenced_peers;
mod limits;
mod operator;
mod packages;

use serde_json::json;
use testkit::{Gateway, RawClient, RawRequest, WorkspaceDir, workspace_dir};

const NEWEST: &str = "2025-11-25";

/// A gateway with files of its own, so that what it leaves can be counted. It works in `project`.
struct Site {
    gateway: Gateway,
    directory: WorkspaceDir,
}

impl Site {
    async fn start(name: &str, flags: &[&str]) -> Self {
        let directory = workspace_dir(name);
        std::fs::create_dir(directory.join("project")).unwrap();
        let gateway = Self::gateway(&directory, flags).await;
        Self { gateway, directory }
    }

    async fn gateway(directory: &WorkspaceDir, flags: &[&str]) -> Gateway {
        Gateway::builder()
            .flags(flags)
            .env("XDG_CACHE_HOME", directory.join("caches"))
            .current_dir(directory.join("project"))
            .start()
            .await
    }

    /// The directories of sessions that exist, locks included.
    fn session_files(&self) -> usize {
        let sessions = self.directory.join("caches/ringfence/sessions");
        std::fs::read_dir(sessions).map_or(0, Iterator::count)
    }

    /// What the gateway wrote for its operator.
    fn token(&self) -> String {
        let file = self.directory.join(format!("caches/ringfence/gateways/{}.json", self.gateway.pid()));
        let text = std::fs::read_to_string(file).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["token"].as_str().unwrap().to_owned()
    }

    fn get(&self, path: &str) -> RawRequest {
        self.gateway.client().get_stream(None).path(path)
    }
}

/// A session of a client without roots.
async fn open(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    client
}

async fn echoes(client: &RawClient) {
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "here"})).await, "here");
}
