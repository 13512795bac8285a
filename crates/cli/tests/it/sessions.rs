//! Sessions from the operator's point of view: limits, listings, ends and leftovers.

mod ends;
mod fenced_peers;
mod limits;
mod operator;
mod packages;

use serde_json::json;
use testkit::{Gateway, RawClient, RawRequest, WorkspaceDir, workspace_dir};

/// A gateway with its own cache directory, so that leftovers can be counted. Its working directory is `project`.
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

    /// Counts the session directories and their locks.
    fn session_files(&self) -> usize {
        let sessions = self.directory.join("caches/ringfence/sessions");
        std::fs::read_dir(sessions).map_or(0, Iterator::count)
    }

    fn token(&self) -> String {
        self.gateway.operator_token(&self.directory.join("caches"))
    }

    fn get(&self, path: &str) -> RawRequest {
        self.gateway.client().get_stream(None).path(path)
    }
}

async fn echoes(client: &RawClient) {
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "here"})).await, "here");
}
