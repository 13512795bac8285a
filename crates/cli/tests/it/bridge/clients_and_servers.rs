//! Whole sessions between real clients and real servers through ringfence, with the official SDKs as clients and
//! every server in its fence.

#![allow(deprecated, reason = "sampling is deprecated in the newest revision, and part of those served here")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;

use rmcp::model::{
    CallToolRequestParams, ClientConfig, ClientRequest, CreateMessageRequestParams, CreateMessageResult,
    Implementation, JsonObject, ProgressNotificationParam, Request, ServerResult,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ErrorData, RoleClient, ServiceExt};
use serde_json::{Value, json};
use testkit::{
    Gateway, fixture_binary, node_binary, parts_dir, process_exists, python_binary, run_part, wait_until,
    within_deadline, workspace_dir,
};

#[derive(Clone, Copy, Debug)]
enum Client {
    TypeScript1,
    /// Runs every session twice: in its default mode and in `auto`.
    TypeScript2,
    /// Runs every session twice: in `legacy` mode and in `auto`, its default.
    Python,
}

impl Client {
    fn program(self) -> (std::path::PathBuf, &'static str) {
        match self {
            Self::TypeScript1 => (node_binary(), "client-ts1.mjs"),
            Self::TypeScript2 => (node_binary(), "client-ts2.mjs"),
            Self::Python => (python_binary(), "client_python.py"),
        }
    }

    /// The prefixes of the client's check names, one for each of its sessions.
    fn modes(self) -> &'static [&'static str] {
        match self {
            Self::TypeScript1 => &[""],
            Self::TypeScript2 => &["default:", "auto:"],
            Self::Python => &["legacy:", "auto:"],
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Server {
    Everything,
    Filesystem,
    Time,
    Fixture,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Filesystem => "filesystem",
            Self::Time => "time",
            Self::Fixture => "fixture",
        }
    }

    fn command(self, directory: &Path) -> Vec<OsString> {
        let script = |package: &str| {
            let script = parts_dir().join("node_modules/@modelcontextprotocol").join(package);
            vec![node_binary().into_os_string(), script.join("dist/index.js").into_os_string()]
        };
        match self {
            Self::Everything => script("server-everything"),
            Self::Filesystem => {
                let mut command = script("server-filesystem");
                command.push(directory.into());
                command
            }
            Self::Time => vec![parts_dir().join("venv/bin/mcp-server-time").into_os_string()],
            Self::Fixture => vec![fixture_binary().into_os_string()],
        }
    }

    /// Whether the clients declare roots for this server.
    fn uses_roots(self) -> bool {
        matches!(self, Self::Filesystem | Self::Fixture)
    }

    /// Checks that every client must have run, so that a skipped one is noticed.
    fn checks(self) -> &'static [&'static str] {
        match self {
            Self::Everything => &[
                "connect",
                "tools-list",
                "echo",
                "progress",
                "sampling",
                "elicitation",
                "resource-read",
                "logging-level",
                "subscribe",
                "prompt-get",
                "completion",
                "cancel",
                "echo-after-cancel",
                "terminate",
                "session-is-gone",
            ],
            Self::Filesystem => &[
                "connect",
                "write",
                "read",
                "list",
                "edit",
                "outside-refused",
                "terminate",
                "session-is-gone",
            ],
            Self::Time => &["connect", "tools-list", "convert", "unknown-zone-refused", "session-is-gone"],
            Self::Fixture => &[
                "connect",
                "echo",
                "progress",
                "sampling",
                "elicitation",
                "roots",
                "cancel",
                "echo-after-cancel",
                "terminate",
                "session-is-gone",
            ],
        }
    }
}

/// Runs one client against one server, and asserts that no process is left afterwards.
async fn run(client: Client, server: Server, flags: &[&str]) {
    let directory = workspace_dir(server.name());
    let command = server.command(directory.path());
    let is_shared = flags.contains(&"--shared");
    // A client that names the directory by its roots gets it even if the gateway was started elsewhere.
    let elsewhere = workspace_dir("elsewhere");
    let is_named_by_roots = server.uses_roots() && !is_shared;
    let stand = if is_named_by_roots { &elsewhere } else { &directory };
    let gateway = Gateway::builder().flags(flags).command(command).current_dir(stand.path());
    let mut gateway = gateway.start().await;
    let (program, script) = client.program();
    let script = parts_dir().join(script);
    let arguments =
        [script.as_os_str(), gateway.url().as_ref(), server.name().as_ref(), directory.path().as_os_str()];
    let what = format!("{client:?} with {server:?} and {flags:?}");
    let ended = run_part(&program, arguments).await;
    assert!(ended.status.success(), "{what}:\n{}\ngateway:\n{}", ended.stderr, gateway.log());

    let outcome: Value = serde_json::from_str(ended.stdout.lines().last().unwrap_or_default()).unwrap();
    assert_eq!(outcome["ok"], true, "{what}: {outcome}");
    let passed: Vec<&str> = outcome["checks"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for mode in client.modes() {
        for check in server.checks() {
            assert!(
                passed.contains(&format!("{mode}{check}").as_str()),
                "{what}: no {mode}{check} in {passed:?}"
            );
        }
    }
    assert_scopes(&gateway.log(), directory.path(), is_named_by_roots, client.modes().len());
    leaves_nothing(&mut gateway, is_shared).await;
}

/// Asserts that every session was fenced in `scope`.
fn assert_scopes(log: &str, scope: &Path, is_named_by_roots: bool, sessions: usize) {
    assert!(log.contains("fences: "), "{log}");
    let source = if is_named_by_roots { "roots" } else { "default" };
    let expected = format!("scope={:?} source={source:?}", [scope]);
    let locked: Vec<&str> = log.lines().filter(|line| line.contains("scope locked")).collect();
    assert_eq!(locked.len(), sessions, "{locked:?}");
    assert!(locked.iter().all(|line| line.ends_with(&expected)), "{expected}: {locked:?}");
}

async fn leaves_nothing(gateway: &mut Gateway, is_shared: bool) {
    assert_eq!(gateway.open_sessions().await, 0);
    if !is_shared {
        wait_until("the server's processes are gone", async || gateway.descendants().is_empty()).await;
    }
    let below = gateway.descendants();
    assert_eq!(!below.is_empty(), is_shared);
    assert!(gateway.terminate().await.success(), "{}", gateway.log());
    assert!(!below.into_iter().any(process_exists), "the gateway left processes behind");
}

#[tokio::test]
async fn typescript_1_with_server_everything() {
    run(Client::TypeScript1, Server::Everything, &[]).await;
}

#[tokio::test]
async fn typescript_1_with_server_filesystem() {
    run(Client::TypeScript1, Server::Filesystem, &[]).await;
}

#[tokio::test]
async fn typescript_1_with_server_time() {
    run(Client::TypeScript1, Server::Time, &[]).await;
}

#[tokio::test]
async fn typescript_1_with_the_fixture() {
    run(Client::TypeScript1, Server::Fixture, &[]).await;
}

#[tokio::test]
async fn typescript_2_with_server_everything() {
    run(Client::TypeScript2, Server::Everything, &[]).await;
}

#[tokio::test]
async fn typescript_2_with_server_filesystem() {
    run(Client::TypeScript2, Server::Filesystem, &[]).await;
}

#[tokio::test]
async fn typescript_2_with_server_time() {
    run(Client::TypeScript2, Server::Time, &[]).await;
}

#[tokio::test]
async fn typescript_2_with_the_fixture() {
    run(Client::TypeScript2, Server::Fixture, &[]).await;
}

#[tokio::test]
async fn python_with_server_everything() {
    run(Client::Python, Server::Everything, &[]).await;
}

#[tokio::test]
async fn python_with_server_filesystem() {
    run(Client::Python, Server::Filesystem, &[]).await;
}

#[tokio::test]
async fn python_with_server_time() {
    run(Client::Python, Server::Time, &[]).await;
}

#[tokio::test]
async fn python_with_the_fixture() {
    run(Client::Python, Server::Fixture, &[]).await;
}

#[tokio::test]
async fn typescript_1_with_server_everything_shared() {
    run(Client::TypeScript1, Server::Everything, &["--shared"]).await;
}

#[tokio::test]
async fn typescript_1_with_the_fixture_shared() {
    run(Client::TypeScript1, Server::Fixture, &["--shared"]).await;
}

#[tokio::test]
async fn python_with_server_everything_shared() {
    run(Client::Python, Server::Everything, &["--shared"]).await;
}

#[tokio::test]
async fn python_with_the_fixture_shared() {
    run(Client::Python, Server::Fixture, &["--shared"]).await;
}

/// Closes every stream early, so that the clients have to come back for the rest.
const PARKING: [&str; 4] = ["--park-after", "0.05", "--retry", "0.05"];

#[tokio::test]
async fn the_streams_of_these_tests_are_parked() {
    let gateway = Gateway::builder().flags(PARKING).start().await;
    let mut client = gateway.client();
    client.open(json!({}), "2025-11-25").await;
    let exchange = client.call_tool_answering("sleep", json!({"ms": 3000}), |_| Ok(json!({}))).await;
    assert!(exchange.resumptions > 0, "{exchange:?}");
}

#[tokio::test]
async fn typescript_1_comes_back_for_parked_streams() {
    run(Client::TypeScript1, Server::Fixture, &PARKING).await;
}

#[tokio::test]
async fn typescript_2_comes_back_for_parked_streams() {
    run(Client::TypeScript2, Server::Fixture, &PARKING).await;
}

#[tokio::test]
async fn python_comes_back_for_parked_streams() {
    run(Client::Python, Server::Fixture, &PARKING).await;
}

// ---- rmcp, the official Rust SDK ----

/// Answers sampling and records progress notifications.
#[derive(Default)]
struct RustClient {
    progress: Mutex<Vec<f64>>,
}

impl ClientHandler for RustClient {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let asked = serde_json::to_value(&params.messages[0]).unwrap();
        let text = format!("sampled {}", asked["content"]["text"].as_str().unwrap_or("nothing"));
        let message = rmcp::model::SamplingMessage::assistant_text(text);
        Ok(CreateMessageResult::new(message, "test-model".to_owned()))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().unwrap().push(params.progress);
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = serde_json::from_value(json!({"sampling": {}})).unwrap();
        ClientConfig::new(capabilities, Implementation::new("rust-client", "1.0.0"))
    }
}

type RustService = RunningService<RoleClient, RustClient>;

fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(JsonObject::from_iter(arguments))
}

async fn text_of(client: &RustService, tool: &'static str, arguments: Value) -> String {
    let result = within_deadline(tool, client.call_tool(call(tool, arguments))).await.unwrap();
    assert_ne!(result.is_error, Some(true), "{result:?}");
    serde_json::to_value(&result.content[0]).unwrap()["text"].as_str().unwrap().to_owned()
}

/// Installs a TLS provider: the HTTP library of this client leaves that choice to the program, even for plain HTTP.
pub(crate) fn install_crypto() {
    // Only the first call in this process succeeds.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

async fn run_rust_client(flags: &[&str]) {
    let directory = workspace_dir("rust-client");
    let mut gateway = Gateway::builder().flags(flags).current_dir(directory.path()).start().await;
    install_crypto();
    let transport = StreamableHttpClientTransport::from_uri(gateway.url().to_owned());
    let client = within_deadline("the handshake", RustClient::default().serve(transport)).await.unwrap();
    let peer = client.peer_info().expect("the handshake is over");
    assert_eq!(peer.protocol_version.to_string(), "2025-11-25");

    let tools = within_deadline("tools/list", client.list_all_tools()).await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "echo"), "{tools:?}");
    let text = "a \"quoted\"\nline, ünïcödé and \u{2028}";
    assert_eq!(text_of(&client, "echo", json!({"text": text})).await, text);

    let sampled = text_of(&client, "ask", json!({"kind": "sampling", "tag": "tag-1"})).await;
    let sampled: Value = serde_json::from_str(&sampled).unwrap();
    assert_eq!(sampled["content"]["text"], "sampled tag-1", "{sampled}");
    assert_eq!(sampled["model"], "test-model");

    let sleep = ClientRequest::CallToolRequest(Request::new(call(
        "sleep",
        json!({"ms": 600, "progress_every_ms": 200}),
    )));
    let running = client.send_cancellable_request(sleep, PeerRequestOptions::no_options()).await.unwrap();
    let answer = within_deadline("sleep", running.await_response()).await.unwrap();
    assert!(matches!(answer, ServerResult::CallToolResult(_)), "{answer:?}");
    let progress = async || client.service().progress.lock().unwrap().clone() == [1.0, 2.0, 3.0];
    wait_until("all progress was reported, in order", progress).await;

    within_deadline("the end of the session", client.cancel()).await.unwrap();
    wait_until("the session ended", async || gateway.open_sessions().await == 0).await;
    assert_scopes(&gateway.log(), directory.path(), false, 1);
    leaves_nothing(&mut gateway, flags.contains(&"--shared")).await;
}

#[tokio::test]
async fn rust_with_the_fixture() {
    run_rust_client(&[]).await;
}

#[tokio::test]
async fn rust_with_the_fixture_shared() {
    run_rust_client(&["--shared"]).await;
}

#[tokio::test]
async fn rust_comes_back_for_parked_streams() {
    run_rust_client(&PARKING).await;
}
