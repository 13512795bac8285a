//! Several servers behind one endpoint: `serve --config` and `stdio --config` with real servers.

mod asking;
mod broken_servers;
mod conformance;
mod edges;
mod failing_packages;
mod lazy;
mod modern_url;
mod names;
mod no_text_crosses;
mod official_clients;
mod real_servers;
mod reload;
mod separation;
mod session_abuse;
mod session_init;
mod ssh_agent;
mod stdio;
mod storage;

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, RawClient, WorkspaceDir, fixture_binary, node_binary, parts_dir,
    wait_until, workspace_dir,
};

/// A configuration file, a project to work in, and directories for the gateway's caches and data.
struct Site {
    directory: WorkspaceDir,
}

impl Site {
    fn new(name: &str, configuration: &Value) -> Self {
        Self::with_text(name, &configuration.to_string())
    }

    /// Takes the configuration as an operator would write it.
    fn with_text(name: &str, configuration: &str) -> Self {
        let directory = workspace_dir(name);
        std::fs::create_dir(directory.join("project")).unwrap();
        let site = Self { directory };
        site.write_configuration(configuration);
        site
    }

    /// Replaces the configuration file by renaming, as editors do.
    fn write_configuration(&self, text: &str) {
        let new = self.directory.join("new.yaml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.configuration()).unwrap();
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join("ringfence.yaml")
    }

    fn project(&self) -> PathBuf {
        self.directory.join("project").canonicalize().unwrap()
    }

    /// A directory next to the project.
    fn another_project(&self, name: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::create_dir(&path).unwrap();
        path.canonicalize().unwrap()
    }

    fn builder(&self) -> GatewayBuilder {
        Gateway::without_command()
            .flag("--config")
            .flag(self.configuration())
            .env("XDG_CACHE_HOME", self.directory.join("caches"))
            .env("XDG_DATA_HOME", self.directory.join("data"))
            .current_dir(self.directory.join("project"))
    }

    async fn start(&self) -> Gateway {
        self.builder().start().await
    }

    /// Starts without fences, so that fixtures can write their logs.
    async fn start_unfenced(&self) -> Gateway {
        self.builder().flag("--unfenced").start().await
    }

    /// The workers of all sessions, as `/sessions` reports them to the operator.
    async fn workers(&self, gateway: &Gateway) -> Vec<Value> {
        let authorization = format!("Bearer {}", gateway.operator_token(&self.directory.join("caches")));
        let reply =
            gateway.client().get_stream(None).path("/sessions").header("authorization", authorization).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        let sessions = reply.json()["sessions"].as_array().unwrap().clone();
        sessions.iter().flat_map(|session| session["workers"].as_array().unwrap().clone()).collect()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is made where it is used")]
fn one_server(name: &str, server: Value) -> Value {
    json!({ "servers": { name: server } })
}

fn fixture(flags: &[&str]) -> Value {
    let mut command = vec![json!(fixture_binary())];
    command.extend(flags.iter().map(|flag| json!(flag)));
    json!({ "command": command })
}

/// An official server, by the last part of its package name.
fn official(package: &str, arguments: &[&str]) -> Value {
    let script = parts_dir().join("node_modules/@modelcontextprotocol").join(package).join("dist/index.js");
    let mut command = vec![json!(node_binary()), json!(script)];
    command.extend(arguments.iter().map(|argument| json!(argument)));
    json!({ "command": command })
}

fn official_python(program: &str, arguments: &[&str]) -> Value {
    let mut command = vec![json!(parts_dir().join("venv/bin").join(program))];
    command.extend(arguments.iter().map(|argument| json!(argument)));
    json!({ "command": command })
}

/// Prelude of a script server: `serve(handlers)`, `send(message)`, and `NEVER` to leave a request unanswered.
const SCRIPT_BASE: &str = r"import { createInterface } from 'node:readline';
const send = (message) => console.log(JSON.stringify({ jsonrpc: '2.0', ...message }));
const NEVER = Symbol('never');
const serve = (handlers) => {
    const answers = {
        initialize: ({ protocolVersion }) => ({
            protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'script', version: '1' },
        }),
        ...handlers,
    };
    createInterface({ input: process.stdin }).on('line', (line) => {
        const { id, method, params } = JSON.parse(line);
        if (id === undefined || method === undefined) return;
        const result = answers[method]?.(params) ?? {};
        if (result !== NEVER) send({ id, result });
    });
};
";

/// A Node server that runs `source` after the prelude.
fn script(site: &Site, name: &str, source: &str) -> Value {
    let path = site.directory.join(format!("{name}.mjs"));
    std::fs::write(&path, format!("{SCRIPT_BASE}{source}")).unwrap();
    json!({ "command": [node_binary(), path] })
}

/// `server` with one more key.
fn with(mut server: Value, key: &str, value: Value) -> Value {
    server[key] = value;
    server
}

async fn open(gateway: &Gateway) -> RawClient {
    open_with(gateway.client(), json!({})).await
}

async fn open_with(mut client: RawClient, capabilities: Value) -> RawClient {
    client.open(capabilities, NEWEST).await;
    client
}

/// Opens a session in a directory that the client names.
async fn open_in(client: RawClient, directory: &std::path::Path) -> RawClient {
    open_with(client.with_header("ringfence-workspace", directory.to_str().unwrap()), json!({})).await
}

async fn result(client: &RawClient, method: &str, params: Value) -> Value {
    let response = client.request(method, Some(params)).await;
    assert!(response["result"].is_object(), "{method}: {response}");
    response["result"].clone()
}

/// Requests a list and returns one field of every item.
async fn listed(client: &RawClient, method: &str, list: &str, field: &str) -> Vec<String> {
    let found = result(client, method, json!({})).await;
    let items = found[list].as_array().unwrap_or_else(|| panic!("no {list} in {found}"));
    items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

async fn tools(client: &RawClient) -> Vec<String> {
    listed(client, "tools/list", "tools", "name").await
}

/// Waits until all of these tools are listed, because a list does not wait for servers that start slowly.
async fn tools_with(client: &RawClient, expected: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    wait_until(&format!("{expected:?} are listed"), async || {
        found = tools(client).await;
        expected.iter().all(|name| found.iter().any(|listed| listed == name))
    })
    .await;
    found
}

/// Why a server is unavailable in this session; `None` if it is available.
async fn reason(client: &RawClient, server: &str) -> Option<String> {
    let report = client.session_report().await;
    let found = &report["servers"][server];
    assert_eq!(found["enabled"] == false, found["reason"].is_string(), "{report}");
    found["reason"].as_str().map(str::to_owned)
}

#[track_caller]
fn assert_contains(all: &[String], expected: &[&str]) {
    for name in expected {
        assert!(all.iter().any(|found| found == name), "no {name} in {all:?}");
    }
}
