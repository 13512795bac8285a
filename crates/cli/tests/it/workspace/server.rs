//! The built-in server: `ringfence serve` without a command, over HTTP, each session in its own fence.

mod arguments;
mod audit;
mod commands;
mod editing;
mod finding;
mod git_elsewhere;
mod git_over_ssh;
mod hidden_paths;
mod inspector;
mod isolation;
mod lifecycles;
mod listing;
mod metadata;
mod moving;
mod operations;
mod patching;
mod programs;
mod reading;
mod repair;
mod replacing;
mod resources;
mod results;
mod rules;
mod session_diff;
mod session_tools;
mod subscriptions;
mod toolchain_layouts;
mod toolchains;
mod writing;

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Gateway, NEWEST, Project, RawClient};

/// All tools, in the order in which they are listed.
const TOOLS: [&str; 22] = [
    "read_file",
    "write_file",
    "edit_file",
    "search_replace",
    "multi_edit",
    "apply_patch",
    "list_dir",
    "directory_tree",
    "file_search",
    "grep_search",
    "file_info",
    "create_directory",
    "move_file",
    "copy_file",
    "delete_file",
    "run_terminal_cmd",
    "await_operation",
    "operation_status",
    "cancel_operation",
    "session_info",
    "session_context",
    "session_diff",
];

/// Numbered lines that begin with `before`, such as `line 1`, `line 2` and so on.
fn numbered(count: usize, before: &str) -> String {
    let lines: Vec<String> = (1..=count).map(|number| format!("{before}{number}\n")).collect();
    lines.concat()
}

/// The outcome of a tool call.
#[derive(Debug)]
struct Outcome {
    text: String,
    data: Value,
    result: Value,
}

impl Outcome {
    fn of(tool: &str, response: &Value) -> Self {
        let result = response["result"].clone();
        let Some(text) = result["content"][0]["text"].as_str().map(str::to_owned) else {
            panic!("{tool} gave no text: {response}");
        };
        Self { text, data: result["structuredContent"].clone(), result }
    }

    fn is_error(&self) -> bool {
        self.result["isError"] == true
    }

    /// The machine-readable error code.
    fn code(&self) -> &str {
        self.data["code"].as_str().unwrap_or_else(|| panic!("no code in {}", self.data))
    }

    fn list(&self, name: &str) -> Vec<Value> {
        self.data[name].as_array().unwrap_or_else(|| panic!("no {name} in {}", self.data)).clone()
    }

    /// A field of every element of a list.
    fn column(&self, list: &str, field: &str) -> Vec<String> {
        let text = |entry: &Value| entry[field].as_str().unwrap_or_default().to_owned();
        self.list(list).iter().map(text).collect()
    }
}

/// A client with an open session.
struct Session {
    client: RawClient,
}

impl Session {
    async fn open(gateway: &Gateway) -> Self {
        Self::open_as(gateway.client()).await
    }

    async fn open_as(mut client: RawClient) -> Self {
        client.open(json!({}), NEWEST).await;
        Self { client }
    }

    /// Opens a session that a header locks to `directory`.
    async fn open_in(gateway: &Gateway, directory: &Path) -> Self {
        let header = directory.to_str().unwrap();
        Self::open_as(gateway.client().with_header("ringfence-workspace", header)).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        Outcome::of(tool, &self.client.call_tool(tool, arguments).await)
    }

    /// Makes a call that must succeed.
    async fn ok(&self, tool: &str, arguments: Value) -> Outcome {
        let outcome = self.call(tool, arguments.clone()).await;
        assert!(!outcome.is_error(), "{tool} with {arguments} failed: {}", outcome.text);
        outcome
    }

    /// Makes a call that must fail with this code.
    async fn refused(&self, tool: &str, arguments: Value, code: &str) -> Outcome {
        let outcome = self.call(tool, arguments.clone()).await;
        assert!(outcome.is_error(), "{tool} with {arguments} did not fail: {}", outcome.text);
        assert_eq!(outcome.code(), code, "{tool} with {arguments}: {}", outcome.text);
        assert_eq!(outcome.data["success"], false);
        let message = outcome.data["error"].as_str().unwrap();
        assert!(outcome.text.starts_with(&format!("Error: {message}")), "{}", outcome.text);
        outcome
    }

    /// Runs a command that must exit with 0; returns its output.
    async fn run(&self, command: &str) -> String {
        let ended = self.run_to_end(command).await;
        assert_eq!(ended.data["exit_code"], 0, "{command}: {}", ended.text);
        ended.data["output"].as_str().unwrap().trim_end().to_owned()
    }

    /// Runs a command to its end, however long it takes.
    async fn run_to_end(&self, command: &str) -> Outcome {
        let started = json!({"command": command, "wait_seconds": 45});
        let mut outcome = self.call("run_terminal_cmd", started).await;
        while outcome.data["status"] == "running" {
            let id = outcome.data["operation_id"].clone();
            outcome = self.call("await_operation", json!({"operation_id": id, "timeout": 45})).await;
        }
        outcome
    }

    async fn handle(&self) -> String {
        self.ok("session_info", json!({})).await.data["session"].as_str().unwrap().to_owned()
    }
}

/// A gateway in the project's directory, and one session on it.
struct Desk {
    project: Project,
    gateway: Gateway,
    session: Session,
}

impl Desk {
    async fn open(project: Project) -> Self {
        Self::with_flags(project, &[]).await
    }

    async fn empty() -> Self {
        Self::open(Project::new("desk")).await
    }

    async fn with_flags(project: Project, flags: &[&str]) -> Self {
        let gateway = Gateway::built_in().flags(flags).current_dir(&project.path).start().await;
        let session = Session::open(&gateway).await;
        Self { project, gateway, session }
    }
}

impl std::ops::Deref for Desk {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

#[tokio::test]
async fn all_tools_are_listed_with_schemas_and_hints() {
    let desk = Desk::empty().await;
    let answer = desk.client.request("tools/list", None).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, TOOLS);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().is_some_and(|about| about.len() > 20), "{tool}");
    }
    let hints = |name: &str| &tools.iter().find(|tool| tool["name"] == name).unwrap()["annotations"];
    // What is not said counts as: writes, may destroy, differs each time, reaches the outside world.
    assert_eq!(*hints("read_file"), json!({"readOnlyHint": true, "openWorldHint": false}));
    assert_eq!(*hints("delete_file"), json!({"openWorldHint": false}));
    assert_eq!(hints("create_directory")["idempotentHint"], true);
    assert_eq!(*hints("run_terminal_cmd"), json!({}));
}

#[tokio::test]
async fn the_server_introduces_itself_before_and_after_the_workspace_is_known() {
    let project = Project::new("introduction");
    let gateway = Gateway::built_in().current_dir(&project.path).start().await;
    for _ in 0..2 {
        let mut client = gateway.client();
        let opened = client.open(json!({}), NEWEST).await;
        assert_eq!(opened.result["serverInfo"]["name"], "ringfence-workspace");
        assert_eq!(opened.result["capabilities"]["resources"]["subscribe"], true);
        assert!(opened.result["capabilities"]["tools"].is_object());
        assert!(opened.result["capabilities"]["completions"].is_object());
        assert!(opened.result["instructions"].as_str().unwrap().contains("search_replace"));
    }
}
