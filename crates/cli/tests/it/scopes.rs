//! The directories of a session: how they are named, that they are set only once, and that the kernel confines
//! each server to them. All servers are fenced, as by default; most are the fixture.

mod default_scope;
mod lifecycles;
mod lock;
mod naming;
mod opened_paths;
mod reserved;
mod roots_at_start;
mod roots_change;
mod stdio;
mod waiting;
mod windows;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{EventStream, Gateway, NEWEST, Project, RawClient, Reply, roots, text_of};

/// The contents of the file `secret` in every project.
const SECRET: &str = "what only this project's sessions may read";

/// A project with a file that other sessions must not read.
fn project_with_secret(name: &str) -> Project {
    let project = Project::new(name);
    project.write("secret", SECRET);
    project
}

/// Adds a directory with its own secret to the project.
fn add_directory(project: &Project, below: &str) -> PathBuf {
    project.write(&format!("{below}/secret"), SECRET);
    project.join(below)
}

/// The capabilities of a client that supports roots.
fn with_roots() -> Value {
    json!({"roots": {"listChanged": true}})
}

/// Sends `initialize` as a client with roots, but not `initialized`.
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

/// Opens a session of a client with roots that has not been asked for them yet.
async fn open(gateway: &Gateway) -> RawClient {
    let mut client = gateway.client();
    client.open(with_roots(), NEWEST).await;
    client
}

/// Opens a session locked to the directory, for a client that reads only the responses to its POSTs.
async fn window(gateway: &Gateway, directory: &Path) -> RawClient {
    let client = open(gateway).await;
    assert_eq!(lock(&client, roots(&[directory])).await, directory.to_string_lossy());
    client
}

/// Makes a first call, answers its `roots/list` with `answer`, and returns the server's working directory.
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

/// The server's working directory in a locked session.
async fn working_directory(client: &RawClient) -> PathBuf {
    client.call_tool_for_text("working_directory", json!({})).await.into()
}

/// Calls a tool and returns its text, as an error if the tool failed.
async fn try_tool(client: &RawClient, tool: &str, arguments: Value) -> Result<String, String> {
    let response = client.call_tool(tool, arguments).await;
    let result = &response["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: {response}"));
    if result["isError"] == true { Err(text.to_owned()) } else { Ok(text.to_owned()) }
}

/// Asserts that the server writes and reads in the directory, and that the host sees the file.
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

/// Asserts that the kernel lets the server neither write nor read there.
async fn assert_kept_out_of(client: &RawClient, directory: &Path) {
    assert_no_write_in(client, directory).await;
    let read = try_tool(client, "read_file", json!({"path": directory.join("secret")})).await;
    assert_kernel_refused(&read, &directory.join("secret"));
}

/// Asserts that the kernel lets the server neither create nor change anything there.
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

/// Reads the gateway's `roots/list` from a stream and returns its id.
async fn roots_question(events: &mut EventStream) -> Value {
    let question = events.next_message().await.expect("the stream goes on");
    assert_eq!(question["method"], "roots/list", "{question}");
    question["id"].clone()
}

/// Starts a call that has to wait and reads the `roots/list` on its stream. Returns the stream and that request's id.
async fn begin_asked_call(client: &RawClient, id: &Value, tool: &str) -> (EventStream, Value) {
    let mut events = client.post_tool_call(id, tool, json!({})).await.into_events();
    let question = roots_question(&mut events).await;
    (events, question)
}

/// The only answer on a stream, apart from repeated `roots/list` requests, which a slow client may get.
async fn only_message(mut events: EventStream) -> Value {
    let mut messages = events.remaining_messages().await;
    messages.retain(|message| message["method"] != "roots/list");
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

/// Asserts the error of a session whose scope was refused.
fn assert_scope_refused(message: &Value) {
    assert_eq!(message["error"]["code"], -32600, "{message}");
    assert_eq!(message["error"]["data"]["reason"], "scope_refused", "{message}");
}

/// Asserts the same error in a 403 response to the request with this id.
fn assert_refused_with_403(reply: &Reply, id: &Value) {
    assert_eq!(reply.status, 403, "{:?}", reply.body);
    assert_eq!(reply.json()["id"], *id);
    assert_scope_refused(reply.json());
}
