//! Sessions as an operator sees them: limits, listings, ends, and leftovers.

mod ends;
mod fenced_peers;
mod limits;
mod operator;
mod packages;

use serde_json::json;
use testkit::{Gateway, RawClient, RawRequest, WorkspaceDir, workspace_dir};

/// A gateway with files of its own, so that leftovers can be counted. It works in `project`.
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

    /// The operator's token.
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
