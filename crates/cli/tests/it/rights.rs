//! Rights of principals: where they may work, what they get there, and how their access ends.

mod ends;
mod scopes;
mod servers;
mod users;

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, RawClient, Reply, WorkspaceDir, fixture_binary, wait_until,
    workspace_dir,
};

use crate::authentication::write_private;

const ALICE: &str = "alices-token-0123456789";
const BOB: &str = "bobs-token-0123456789ab";

/// Tokens for Alice and Bob, a project for each, and one more, `shared`.
struct Site {
    directory: WorkspaceDir,
}

impl Site {
    fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        for project in ["alice", "bob", "shared", "project"] {
            std::fs::create_dir(directory.join(project)).unwrap();
        }
        let site = Self { directory };
        site.write_tokens(&format!("alice:{ALICE}\nbob:{BOB}\n"));
        site
    }

    fn tokens(&self) -> PathBuf {
        self.directory.join("tokens")
    }

    fn write_tokens(&self, text: &str) {
        write_private(&self.tokens(), text);
    }

    fn project(&self, name: &str) -> PathBuf {
        self.directory.join(name).canonicalize().unwrap()
    }

    /// Writes the configuration, by renaming as editors do.
    fn configure(&self, configuration: &Value) {
        let new = self.directory.join("new.yaml");
        std::fs::write(&new, configuration.to_string()).unwrap();
        std::fs::rename(new, self.directory.join("ringfence.yaml")).unwrap();
    }

    /// A gateway that wants tokens, with one server, `box`, and these rights.
    fn gateway(&self, principals: &Value) -> GatewayBuilder {
        self.configure(&configuration(principals));
        self.builder()
    }

    fn builder(&self) -> GatewayBuilder {
        Gateway::without_command()
            .flag("--config")
            .flag(self.directory.join("ringfence.yaml"))
            .flag("--auth-token-file")
            .flag(self.tokens())
            .env("XDG_CACHE_HOME", self.directory.join("caches"))
            .env("XDG_DATA_HOME", self.directory.join("data"))
            .current_dir(self.directory.join("project"))
    }

    /// A client of a principal that names one of the projects.
    fn client(&self, gateway: &Gateway, token: &str, project: &str) -> RawClient {
        let project = self.directory.join(project);
        with_token(gateway, token).with_header("ringfence-workspace", project.to_str().unwrap())
    }

    async fn open(&self, gateway: &Gateway, token: &str, project: &str) -> RawClient {
        let mut client = self.client(gateway, token, project);
        client.open(json!({}), NEWEST).await;
        client
    }

    /// The reply to a principal that wants a session in one of the projects.
    async fn ask(&self, gateway: &Gateway, token: &str, project: &str) -> Reply {
        initialize(&self.client(gateway, token, project)).await
    }

    /// The principals of the open sessions, as the operator sees them.
    async fn sessions(&self, gateway: &Gateway) -> Vec<String> {
        let operator = with_token(gateway, &gateway.operator_token(&self.directory.join("caches")));
        let reply = operator.get_stream(None).path("/sessions").await;
        let sessions = reply.json()["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|session| session["principal"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends a session, and waits until nothing of it is left.
    async fn close(&self, gateway: &Gateway, client: &RawClient) {
        assert_eq!(client.delete().await.status, 204);
        wait_until("no session is open", async || self.sessions(gateway).await.is_empty()).await;
    }
}

fn configuration(principals: &Value) -> Value {
    json!({"servers": {"box": fixture()}, "principals": principals})
}

fn fixture() -> Value {
    json!({"command": [fixture_binary()]})
}

fn with_token(gateway: &Gateway, token: &str) -> RawClient {
    gateway.client().with_header("authorization", &format!("Bearer {token}"))
}

async fn initialize(client: &RawClient) -> Reply {
    client.post_initialize(&json!(1), json!({}), NEWEST).await
}

async fn tools(client: &RawClient) -> Vec<String> {
    let found = client.request("tools/list", Some(json!({}))).await;
    let tools = found["result"]["tools"].as_array().unwrap_or_else(|| panic!("{found}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}
