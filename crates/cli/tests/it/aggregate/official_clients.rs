//! Unmodified official clients with an aggregate: with `names: conflict`, each server looks as if it were alone.

use serde_json::{Value, json};
use testkit::{node_binary, parts_dir, python_binary, run_part};

use super::{Site, official, official_python};

async fn run(script: &str, server: &str) {
    let site = Site::new(
        "official-clients",
        &json!({"names": "conflict", "servers": {
            "everything": official("server-everything", &[]),
            "filesystem": official("server-filesystem", &["{workingDirectory}"]),
            "time": official_python("mcp-server-time", &[]),
        }}),
    );
    let gateway = site.start().await;
    let program = if script.contains(".py") { python_binary() } else { node_binary() };
    let (script, project) = (parts_dir().join(script), site.project());
    let arguments = [script.as_os_str(), gateway.url().as_ref(), server.as_ref(), project.as_os_str()];
    let ended = run_part(&program, arguments).await;
    assert!(ended.status.success(), "{server}: {}\ngateway:\n{}", ended.stderr, gateway.log());
    let outcome: Value = serde_json::from_str(ended.stdout.lines().last().unwrap_or_default()).unwrap();
    assert_eq!(outcome["ok"], true, "{outcome}");
    assert!(outcome["checks"].as_array().unwrap().len() >= 5, "{outcome}");
}

#[tokio::test]
async fn typescript_1_finds_server_everything() {
    run("client-ts1.mjs", "everything").await;
}

#[tokio::test]
async fn typescript_1_finds_server_filesystem() {
    run("client-ts1.mjs", "filesystem").await;
}

#[tokio::test]
async fn typescript_2_finds_server_everything() {
    run("client-ts2.mjs", "everything").await;
}

#[tokio::test]
async fn python_finds_server_everything() {
    run("client_python.py", "everything").await;
}

/// Connects to an existing session by its id, for which the SDK sends no `initialize`.
const WITH_SESSION: &str = r"
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
const [url, sessionId] = process.argv.slice(1);
const client = new Client({ name: 'with-session', version: '1.0.0' });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { sessionId }));
const { tools } = await client.listTools();
const { content } = await client.callTool({ name: 'box_echo', arguments: { text: 'hi' } });
console.log(JSON.stringify({ tools: tools.length, text: content[0].text }));
process.exit(0);
";

#[tokio::test]
async fn typescript_1_uses_a_session_that_was_made_for_it() {
    let site = Site::new("made-session", &super::one_server("box", super::fixture(&[])));
    let gateway = site.start().await;
    let reply = gateway.client().post("{}").path("/session/init").await;
    let id = reply.json()["sessionId"].as_str().unwrap().to_owned();
    let arguments = ["--input-type=module", "-e", WITH_SESSION, gateway.url(), &id];
    let ended = run_part(&node_binary(), arguments).await.succeeded("the client");
    let outcome: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!(outcome["text"], "hi", "{outcome}");
    assert_eq!(outcome["tools"], reply.json()["tools"].as_array().unwrap().len());
}
