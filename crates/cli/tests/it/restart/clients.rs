//! Real clients that go on with their sessions when their gateway is killed and started again, without code of ours.

use std::process::Stdio;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use testkit::{Gateway, node_binary, parts_dir, python_binary};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{Site, upgraded};

/// Lists the directory whenever it is told to, and prints the session id and whether that worked.
const TYPESCRIPT_1: &str = "
    import { createInterface } from 'node:readline';
    import { Client } from '@modelcontextprotocol/sdk/client/index.js';
    import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
    const transport = new StreamableHTTPClientTransport(new URL(process.argv[1]));
    const client = new Client({ name: 'goes-on', version: '1' });
    await client.connect(transport);
    for await (const line of createInterface({ input: process.stdin })) {
        const result = await client.callTool({ name: 'list_dir', arguments: { path: '.' } });
        console.log(transport.sessionId + ' ' + JSON.stringify(result.content));
    }";

const TYPESCRIPT_2: &str = "
    import { createInterface } from 'node:readline';
    import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
    const transport = new StreamableHTTPClientTransport(new URL(process.argv[1]));
    const client = new Client({ name: 'goes-on', version: '2' });
    await client.connect(transport);
    for await (const line of createInterface({ input: process.stdin })) {
        const result = await client.callTool({ name: 'list_dir', arguments: { path: '.' } });
        console.log(transport.sessionId + ' ' + JSON.stringify(result.content));
    }";

/// Calls without a pause until its input ends, and prints how often.
const TYPESCRIPT_BUSY: &str = "
    import { Client } from '@modelcontextprotocol/sdk/client/index.js';
    import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
    const transport = new StreamableHTTPClientTransport(new URL(process.argv[1]));
    const client = new Client({ name: 'busy', version: '1' });
    await client.connect(transport);
    const id = transport.sessionId;
    let goesOn = true;
    process.stdin.on('end', () => { goesOn = false; }).resume();
    let calls = 0;
    for (; goesOn; calls++) {
        const result = await client.callTool({ name: 'list_dir', arguments: { path: '.' } });
        if (!JSON.stringify(result.content).includes('a-file')) throw new Error(JSON.stringify(result));
    }
    console.log(calls + ' ' + (transport.sessionId === id));
    process.exit(0);";

const PYTHON: &str = "
import anyio, sys
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    async with Client(streamable_http_client(sys.argv[1]), mode='legacy') as client:
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            result = await client.call_tool('list_dir', {'path': '.'})
            print([item.text for item in result.content], flush=True)

anyio.run(main)
";

#[tokio::test]
async fn the_typescript_client_goes_on() {
    let mut command = Command::new(node_binary());
    command.args(["--input-type=module", "-e", TYPESCRIPT_1]);
    goes_on("typescript", command).await;
}

#[tokio::test]
async fn the_second_typescript_client_goes_on() {
    let mut command = Command::new(node_binary());
    command.args(["--input-type=module", "-e", TYPESCRIPT_2]);
    goes_on("typescript-2", command).await;
}

#[tokio::test]
async fn the_typescript_client_keeps_its_session_over_upgrades() {
    let mut site = Site::new("typescript-upgrade");
    let gateway = site.start(Gateway::built_in()).await;
    let mut command = Command::new(node_binary());
    command.args(["--input-type=module", "-e", TYPESCRIPT_1]);
    let mut client = TalkingClient::start(&site, &gateway, command);
    let before = client.call().await;
    assert!(before.contains("a-file"), "{before}");
    for _ in 0..3 {
        upgraded(&gateway).await;
        assert_eq!(client.call().await, before, "the same session and the same answer");
    }
    assert_eq!(gateway.counter("sessions_restored").await, 1);
}

#[tokio::test]
async fn load_of_upgrades_under_a_busy_typescript_client_fails_no_call() {
    const UPGRADES: usize = 8;
    let mut site = Site::new("typescript-busy");
    site.project.write("a-file", "x");
    let gateway = site.start(Gateway::built_in()).await;
    let mut command = Command::new(node_binary());
    command.args(["--input-type=module", "-e", TYPESCRIPT_BUSY, gateway.url()]).current_dir(parts_dir());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = command.kill_on_drop(true).spawn().unwrap();
    for _ in 0..UPGRADES {
        testkit::wait_until("the client calls", async || gateway.counter("calls").await > 10).await;
        upgraded(&gateway).await;
    }
    drop(client.stdin.take());
    let output = client.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let (calls, kept) = said.trim().split_once(' ').unwrap();
    assert!(calls.parse::<usize>().unwrap() > 10 * UPGRADES && kept == "true", "{said}");
}

#[tokio::test]
async fn the_rust_client_goes_on() {
    let mut site = Site::new("rust");
    site.project.write("a-file", "x");
    let mut gateway = site.start(Gateway::built_in()).await;
    crate::bridge::clients_and_servers::install_crypto();
    let client = ().serve(StreamableHttpClientTransport::from_uri(gateway.url().to_owned())).await.unwrap();
    let arguments = serde_json::json!({"path": "."}).as_object().cloned().unwrap();
    let list = async || {
        let call = CallToolRequestParams::new("list_dir").with_arguments(arguments.clone());
        format!("{:?}", client.call_tool(call).await.unwrap().content)
    };
    let before = list().await;
    assert!(before.contains("a-file"), "{before}");
    for _ in 0..3 {
        gateway.kill().await;
        gateway = site.start(Gateway::built_in()).await;
        assert_eq!(list().await, before);
    }
    assert_eq!(gateway.counter("sessions_restored").await, 1);
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn the_python_client_goes_on() {
    let mut command = Command::new(python_binary());
    command.args(["-c", PYTHON]);
    goes_on("python", command).await;
}

async fn goes_on(name: &str, command: Command) {
    let mut site = Site::new(name);
    let mut gateway = site.start(Gateway::built_in()).await;
    let mut client = TalkingClient::start(&site, &gateway, command);
    let before = client.call().await;
    assert!(before.contains("a-file"), "{before}");
    for _ in 0..3 {
        gateway.kill().await;
        gateway = site.start(Gateway::built_in()).await;
        assert_eq!(client.call().await, before, "the same session and the same answer");
    }
    assert_eq!(gateway.counter("sessions_restored").await, 1);
}

/// A client that makes a call for each line that it reads, and prints what it got.
struct TalkingClient {
    _process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl TalkingClient {
    fn start(site: &Site, gateway: &Gateway, mut command: Command) -> Self {
        site.project.write("a-file", "x");
        command.arg(gateway.url()).current_dir(parts_dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { _process: process, input, output }
    }

    async fn call(&mut self) -> String {
        self.input.write_all(b"go\n").await.unwrap();
        self.output.next_line().await.unwrap().expect("the client goes on")
    }
}
