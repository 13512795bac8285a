//! Sessions from the operator's point of view: limits, listings, ends and leftovers.

mod crowds;
mod ends;
mod fenced_peers;
mod limits;
mod operator;
mod other_users;
mod packages;
mod vanished;

use std::path::PathBuf;
use std::process::Output;

use serde_json::json;
use testkit::{Gateway, RawClient, RawRequest, WorkspaceDir, ringfence_binary, workspace_dir};
use tokio::process::Command;

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

    /// Ringfence's own directory.
    fn own(&self) -> PathBuf {
        self.directory.join("caches/ringfence")
    }

    /// Host and port of the gateway.
    fn address(&self) -> String {
        address_of(&self.gateway)
    }

    /// `ringfence` with the gateway's own directory, in its project.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ringfence_binary());
        command.args(arguments).env("XDG_CACHE_HOME", self.directory.join("caches"));
        command.current_dir(self.directory.join("project")).kill_on_drop(true);
        command
    }

    async fn ringfence(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// The value of `ringfence_denials_total` for a reason.
    async fn denials(&self, reason: &str) -> u64 {
        let metrics = String::from_utf8(self.get("/metrics").await.raw).unwrap();
        let start = format!(r#"ringfence_denials_total{{reason="{reason}"}} "#);
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |value| value.parse().unwrap())
    }

    fn get(&self, path: &str) -> RawRequest {
        self.gateway.client().get_stream(None).path(path)
    }
}

fn address_of(gateway: &Gateway) -> String {
    gateway.url().trim_start_matches("http://").split('/').next().unwrap().to_owned()
}

async fn echoes(client: &RawClient) {
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "here"})).await, "here");
}
