//! Sessions that outlive their gateway: what clients notice when it is killed or ended and started again at the same
//! address, and what becomes of the store.

mod built_in;
mod calls;
mod clients;
mod context;
mod disk_record;
mod ends;
mod going_on;
mod kills;
mod many;
mod notifications;
mod passed_sockets;
mod power_loss;
mod readme;
mod retention;
mod store;
mod units;
mod upgrade_failures;
mod upgrades;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, Project, RawClient, WorkspaceDir, ringfence_binary, roots, text_of,
    workspace_dir,
};

/// Where one gateway after the other keeps its sessions, and the project that they work in.
struct Site {
    project: Project,
    state: WorkspaceDir,
    /// That of the first gateway, which clients go on using.
    port: u16,
}

impl Site {
    fn new(name: &str) -> Self {
        Self { project: Project::new(name), state: workspace_dir("state"), port: 0 }
    }

    /// A gateway with these options on the state of the one before.
    async fn start(&mut self, builder: GatewayBuilder) -> Gateway {
        let gateway = self.with_state(builder).start().await;
        self.port = gateway.port();
        gateway
    }

    fn with_state(&self, builder: GatewayBuilder) -> GatewayBuilder {
        let state = self.state.join("sessions");
        builder.port(self.port).flag("--state-dir").flag(state).current_dir(&self.project.path)
    }

    async fn start_fixture(&mut self) -> Gateway {
        self.start(Gateway::builder()).await
    }

    /// Copies the gateway to the place of a program, atomically, as a package manager does.
    fn install(&self) -> PathBuf {
        let program = self.state.join("bin/ringfence");
        let new = program.with_extension("new");
        std::fs::create_dir_all(self.state.join("bin")).unwrap();
        std::fs::copy(ringfence_binary(), &new).unwrap();
        std::fs::rename(&new, &program).unwrap();
        program
    }

    fn database(&self) -> std::path::PathBuf {
        self.state.join("sessions/sessions.db")
    }
}

/// A session of a client that named this directory by its roots.
async fn open_in(gateway: &Gateway, directory: &Path) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({"roots": {}}), NEWEST).await;
    assert_eq!(asked_where(&client, directory).await, directory.to_string_lossy());
    client
}

/// Where the server works. The client is asked for its roots, and names this directory.
async fn asked_where(client: &RawClient, directory: &Path) -> String {
    let exchange = client
        .call_tool_answering("working_directory", json!({}), |question| {
            assert_eq!(question["method"], "roots/list");
            Ok(roots(&[directory]))
        })
        .await;
    assert_eq!(exchange.server_requests.len(), 1);
    text_of(&exchange.response)
}

/// The same for a session whose scope is locked: the client is asked nothing.
async fn works_in(client: &RawClient) -> Value {
    let exchange = client
        .call_tool_answering("working_directory", json!({}), |question| {
            panic!("the client is asked {question}")
        })
        .await;
    exchange.response
}

/// `ringfence upgrade` for this gateway. Returns what became of it, and whether the command says that it worked.
async fn upgrade(gateway: &Gateway, flags: &[&str]) -> (Value, bool) {
    let mut command = tokio::process::Command::new(ringfence_binary());
    command.args(["upgrade", &gateway.pid().to_string(), "--json"]).args(flags).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (answer["gateways"][0].clone(), output.status.success())
}

async fn upgraded(gateway: &Gateway) {
    let (outcome, is_success) = upgrade(gateway, &[]).await;
    assert!(is_success && outcome["upgraded"] == true, "{outcome}:\n{}", gateway.log());
}
