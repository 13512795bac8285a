//! Which directories a session works in: who names them, that they are set once, and that the kernel keeps
//! every server in its own. All against the fenced default, in front of the fixture.

mod lifecycles;
mod lock;
mod naming;
mod roots_at_start;
mod roots_change;
mod stdio;
mod waiting;
mod windows;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{EventStream, Gateway, RawClient, Reply, WorkspaceDir, workspace_dir};

const NEWEST: &str = "2025-11-25";

/// What stands in the file `secret` of every project.
const SECRET: &str = "what only this project's sessions may read";

/// A directory that a client works in, with a file that others must not read.
struct Project {
    path: PathBuf,
    _directory: WorkspaceDir,
}

impl Project {
    fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        let path = directory.path().canonicalize().unwrap();
        std::fs::write(path.join("secret"), SECRET).unwrap();
        Self { path, _directory: directory }
    }

    /// A directory inside, with a secret too.
    fn add(&self, relative: &str) -> PathBuf {
        let path = self.path.join(relative);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("secret"), SECRET).unwrap();
        path
    }
}

/// The capabilities of a client that knows its roots.
fn with_roots() -> Value {
    json!({"roots": {"listChanged": true}})
}

fn file_uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// The result of a `roots/list` that names these directories.
fn roots(paths: &[&Path]) -> Value {
    let roots: Vec<Value> = paths.iter().map(|path| json!({"uri": file_uri(path), "name": "root"})).collect();
    json!({ "roots": roots })
}

/// A session of a client with roots that has not said `initialized` yet.
async fn initialize(client: &mut RawClient, version: &str) {
    let id = client.next_id();
    let reply = client.post_initialize(&id, with_roots(), version).await;
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    assert_eq!(reply.json()["result"]["protocolVersion"], version);
    let session = reply.session_id().map(str::to_owned);
    client.set_session(session.as_deref(), Some(version));
}

async fn say_initialized(client: &RawClient) {
    assert_eq!(client.notify("notifications/initialized", None).await.status, 202);
}

/// A session of a client with roots, which nobody has asked for them yet.
async fn open(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(with_roots(), NEWEST).await;
    client
}

/// A session of a client without roots.
async fn open_without_roots(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    client
}

/// A session that is locked to the directory by a client that only reads the answers to its POSTs.
async fn window(gateway: &Gateway, directory: &Path) -> RawClient {
    let client = open(gateway).await;
    assert_eq!(lock(&client, roots(&[directory])).await, directory.to_string_lossy());
    client
}

/// Makes a first call, gives `answer` to the question that it raises, and returns where the server works.
async fn lock(client: &RawClient, answer: Value) -> String {
    let exchange = client
        .call_tool_answering("working_directory", json!({}), |question| {
            assert_eq!(question["method"], "roots/list");
            Ok(answer.clone())
        })
        .await;
    assert_eq!(exchange.server_requests.len(), 1, "{:?}", exchange.response);
    text_of(&exchange.response)
}

/// Where the server works, of a session that is locked.
async fn working_directory(client: &RawClient) -> PathBuf {
    client.call_tool_for_text("working_directory", json!({})).await.into()
}

/// The text of a successful call.
fn text_of(response: &Value) -> String {
    let result = &response["result"];
    match result["content"][0]["text"].as_str() {
        Some(text) if result["isError"] != true => text.to_owned(),
        _ => panic!("the call failed: {response}"),
    }
}

/// The text of a tool's success, or of its failure.
async fn try_tool(client: &RawClient, tool: &str, arguments: Value) -> Result<String, String> {
    let response = client.call_tool(tool, arguments).await;
    let result = &response["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {response}"));
    if result["isError"] == true { Err(text.to_owned()) } else { Ok(text.to_owned()) }
}

/// The server writes and reads in the directory, and the host sees what it wrote.
async fn assert_works_in(client: &RawClient, directory: &Path) {
    let file = directory.join("written");
    let _ = std::fs::remove_file(&file);
    let text = format!("by {}", client.session_id().unwrap_or("nobody"));
    assert_eq!(
        try_tool(client, "write_file", json!({"path": file, "text": text})).await,
        Ok("written".into())
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let secret = try_tool(client, "read_file", json!({"path": directory.join("secret")})).await;
    assert_eq!(secret, Ok(SECRET.into()));
}

/// The kernel lets the server neither write nor read there.
async fn assert_kept_out_of(client: &RawClient, directory: &Path) {
    assert_no_write_in(client, directory).await;
    let read = try_tool(client, "read_file", json!({"path": directory.join("secret")})).await;
    assert_kernel_refused(&read, &directory.join("secret"));
}

/// The kernel lets the server neither create nor change anything there.
async fn assert_no_write_in(client: &RawClient, directory: &Path) {
    for name in ["intruder", "secret"] {
        let file = directory.join(name);
        let written = try_tool(client, "write_file", json!({"path": file, "text": "intruded"})).await;
        assert_kernel_refused(&written, &file);
    }
    assert!(!directory.join("intruder").exists(), "{}", directory.display());
    assert_eq!(std::fs::read_to_string(directory.join("secret")).unwrap(), SECRET);
}

fn assert_kernel_refused(outcome: &Result<String, String>, path: &Path) {
    assert!(
        outcome.as_ref().is_err_and(|error| error.contains("os error")),
        "{}: {outcome:?}",
        path.display()
    );
}

/// The next question on a stream: our `roots/list`. Returns its id.
async fn roots_question(events: &mut EventStream) -> Value {
    let question = events.next_message().await.expect("the stream goes on");
    assert_eq!(question["method"], "roots/list", "{question}");
    question["id"].clone()
}

/// Begins a call that has to wait, and reads the `roots/list` on its stream. Returns that one's id.
async fn begin_asked_call(client: &RawClient, id: &Value, tool: &str) -> (EventStream, Value) {
    let mut events = client.post_tool_call(id, tool, json!({})).await.into_events();
    let question = roots_question(&mut events).await;
    (events, question)
}

/// The one answer on a stream. A client that was slow may have been asked there once more: that is passed over.
async fn only_message(mut events: EventStream) -> Value {
    let mut messages = events.remaining_messages().await;
    messages.retain(|message| message["method"] != "roots/list");
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// The answer of a session that never got a scope.
fn assert_scope_refused(message: &Value) {
    assert_eq!(message["error"]["code"], -32600, "{message}");
    assert_eq!(message["error"]["data"]["reason"], "scope_refused", "{message}");
}

/// The same as an HTTP response, to a request with that id.
fn assert_refused_with_403(reply: &Reply, id: &Value) {
    assert_eq!(reply.status, 403, "{:?}", reply.body);
    assert_eq!(reply.json()["id"], *id);
    assert_scope_refused(reply.json());
}
