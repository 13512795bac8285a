//! Clients that name no directory: they are told where they are, and a gateway that has no place for them says so when
//! it starts.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{
    Gateway, NEWEST, StdioClient, node_binary, parts_dir, ringfence_binary, run_part, workspace_dir,
};
use tokio::process::Command;

use super::project_with_secret;

/// The official SDK without roots, as library clients use it. Prints the instructions and what `session_info` says.
const WITHOUT_ROOTS: &str = r"
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
const [url, tool, workspace] = process.argv.slice(1);
const headers = workspace ? { 'Ringfence-Workspace': workspace } : {};
const client = new Client({ name: 'without-roots', version: '1.0.0' });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { content } = await client.callTool({ name: tool, arguments: {} });
console.log(JSON.stringify({ instructions: client.getInstructions() ?? '', text: content[0].text }));
process.exit(0);
";

async fn told(gateway: &Gateway, tool: &str, workspace: Option<&Path>) -> (String, String) {
    let script = ["--input-type=module", "-e", WITHOUT_ROOTS, gateway.url(), tool].map(Into::into);
    let words: Vec<std::ffi::OsString> = script.into_iter().chain(workspace.map(Into::into)).collect();
    assert!(parts_dir().exists());
    let ended = run_part(&node_binary(), words).await.succeeded("the client");
    let told: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    let text = |key: &str| told[key].as_str().unwrap().to_owned();
    (text("instructions"), text("text"))
}

#[tokio::test]
async fn a_client_without_roots_is_told_which_directory_it_got() {
    let (default, named) = (project_with_secret("default"), project_with_secret("named"));
    let gateway = Gateway::built_in().flag("--no-config").current_dir(&default.path).start().await;
    let (instructions, info) = told(&gateway, "session_info", None).await;
    let expected = format!("This session works in {}: the client named no directory", default.path.display());
    assert!(instructions.starts_with(&expected), "{instructions}");
    assert!(instructions.contains("search_replace"), "what the server says follows: {instructions}");
    assert!(info.contains(&*default.path.to_string_lossy()) && info.contains("default"), "{info}");
    // The control: one that names its directory.
    let (instructions, info) = told(&gateway, "session_info", Some(&named.path)).await;
    assert!(!instructions.contains("works in") && instructions.contains("search_replace"), "{instructions}");
    assert!(info.contains(&*named.path.to_string_lossy()) && !info.contains("default"), "{info}");
}

#[tokio::test]
async fn with_several_servers_the_client_is_told_too() {
    let (default, site) = (project_with_secret("default"), workspace_dir("several"));
    let configuration = json!({"servers": {
        "files": {"command": ["ringfence", "workspace"]},
        "more": {"command": ["ringfence", "workspace", "--read-only"]},
    }});
    std::fs::write(site.join("servers.yaml"), configuration.to_string()).unwrap();
    let gateway = Gateway::without_command().flag("--config").flag(site.join("servers.yaml"));
    let gateway = gateway.current_dir(&default.path).start().await;
    let (instructions, info) = told(&gateway, "files_session_info", None).await;
    assert!(instructions.contains(&format!("works in {}", default.path.display())), "{instructions}");
    assert!(info.contains("default"), "{info}");
}

#[tokio::test]
async fn a_client_on_stdio_is_told_too() {
    let project = project_with_secret("stdio");
    let mut command = Command::new(ringfence_binary());
    command.args(["stdio", "--no-config"]).current_dir(&project.path);
    let mut client = StdioClient::start(&mut command);
    let answer = client.initialize(json!({}), NEWEST).await;
    let instructions = answer["result"]["instructions"].as_str().unwrap();
    assert!(instructions.contains(&format!("works in {}", project.path.display())), "{instructions}");
}

#[tokio::test]
async fn a_default_that_can_never_be_a_scope_is_refused_at_start() {
    let home = workspace_dir("home");
    for refused in [Path::new("/"), Path::new("/usr"), home.path()] {
        let builder = Gateway::built_in().flag("--no-config").env("HOME", home.path());
        let failed = builder.flag("--sandbox-scope").flag(refused).try_start().await.unwrap_err();
        assert_eq!(failed.status.code(), Some(2), "{}: {}", refused.display(), failed.stderr);
        assert!(failed.stderr.contains("error: ") && failed.stderr.contains("hint: "), "{}", failed.stderr);
    }
    std::fs::create_dir(home.join("project")).unwrap();
    let builder = Gateway::built_in().flag("--no-config").env("HOME", home.path());
    builder.flag("--sandbox-scope").flag(home.join("project")).start().await.open().await;
}

#[tokio::test]
async fn a_gateway_that_was_started_in_home_or_root_says_what_to_do() {
    let (home, project) = (workspace_dir("home"), project_with_secret("named"));
    for started_in in [Path::new("/"), home.path()] {
        let builder = Gateway::built_in().flag("--no-config").env("HOME", home.path());
        let gateway = builder.current_dir(started_in).start().await;
        let said = gateway.wait_for_log("clients that name no directory are refused").await;
        let place = format!("ringfence was started in {}", started_in.canonicalize().unwrap().display());
        assert!(said.contains(&place) && said.contains("--sandbox-scope DIR"), "{said}");
        let reply = gateway.client().post_initialize(&json!(1), json!({}), NEWEST).await;
        assert_eq!(reply.status, 403, "{:?}", reply.body);
        let mut client = gateway.client().with_header("ringfence-workspace", &project.path.to_string_lossy());
        client.open(json!({}), NEWEST).await;
        client.call_tool_for_text("session_info", json!({})).await;
    }
}
