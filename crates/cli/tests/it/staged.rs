//! Sessions that work on a copy of their project: what they see, what the project keeps, and what becomes of the copy.

mod apart;
mod executed;
mod going_on;
mod made;
mod reviewed;
mod together;

use std::path::Path;

use serde_json::{Value, json};
use staging::{Method, NewCopy, WorkspaceCopy, WorkspaceName, Workspaces};
use testkit::{Gateway, GatewayBuilder, NEWEST, Project, RawClient, WorkspaceDir, roots, workspace_dir};

/// A project, and where its copies lie.
struct Site {
    project: Project,
    state: WorkspaceDir,
}

impl Site {
    fn new(name: &str) -> Self {
        let project = Project::new(name);
        project.write("kept.txt", "from the project\n");
        Self { project, state: workspace_dir("state") }
    }

    /// The built-in server for clients of this project.
    fn serve(&self) -> GatewayBuilder {
        self.of_user(Gateway::built_in())
    }

    fn of_user(&self, builder: GatewayBuilder) -> GatewayBuilder {
        builder.env("XDG_STATE_HOME", self.state.path()).flag("--no-default-scope")
    }

    async fn staged(&self) -> Gateway {
        self.serve().flag("--stage").start().await
    }

    fn workspaces(&self) -> Workspaces {
        Workspaces::open(&self.state.join("ringfence/workspaces")).unwrap()
    }

    /// A copy that a command has made.
    fn copy(&self, name: &str, method: Method) -> WorkspaceCopy {
        let name = Some(name.parse::<WorkspaceName>().unwrap());
        self.workspaces().create(NewCopy { name, ..NewCopy::of(&self.project.path, method) }).unwrap()
    }

    fn copies(&self) -> Vec<WorkspaceCopy> {
        self.workspaces().list().unwrap().into_iter().map(Result::unwrap).collect()
    }

    fn path(&self) -> &Path {
        &self.project.path
    }
}

/// A session of a client whose root is this directory.
async fn open_in(gateway: &Gateway, directory: &Path) -> RawClient {
    let mut client = gateway.client();
    client.open(json!({"roots": {}}), NEWEST).await;
    let exchange = client
        .call_tool_answering("session_info", json!({}), |question| {
            assert_eq!(question["method"], "roots/list");
            Ok(roots(&[directory]))
        })
        .await;
    assert!(exchange.response["result"]["isError"] != true, "{}", exchange.response);
    client
}

/// A session in the copy of this name.
async fn open_copy(gateway: &Gateway, name: &str) -> RawClient {
    let mut client = RawClient::new(format!("{}/w/{name}", gateway.url()));
    client.open(json!({"roots": {}}), NEWEST).await;
    client
}

/// What a shell command of the session prints, whether it fails or not.
async fn shell(client: &RawClient, command: &str) -> String {
    let answer = client.call_tool("run_terminal_cmd", json!({ "command": command })).await;
    let result = &answer["result"];
    assert_eq!(result["structuredContent"]["status"], "exited", "{answer}");
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Asks an endpoint of the session itself. Returns the status and the body.
async fn at_session(client: &RawClient, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let path = format!("/session/{}/{path}", client.session_id().unwrap());
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let reply = client.post(body).method(method).path(&path).await;
    (reply.status.as_u16(), reply.json().clone())
}

fn changed_paths(report: &Value) -> Vec<String> {
    let entries = report["changes"]["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}
