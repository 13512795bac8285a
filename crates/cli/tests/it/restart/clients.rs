//! Real clients that go on with their sessions when their gateway is killed and started again, without code of ours.

use std::process::Stdio;

use testkit::{Gateway, node_binary, parts_dir};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::Site;

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

const PYTHON: &str = "
import asyncio, json, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def main():
    async with streamablehttp_client(sys.argv[1]) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            await session.initialize()
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                result = await session.call_tool('list_dir', {'path': '.'})
                print(session_id(), json.dumps([item.model_dump() for item in result.content]), flush=True)

asyncio.run(main())
";

#[tokio::test]
async fn the_typescript_client_goes_on() {
    let mut command = Command::new(node_binary());
    command.args(["--input-type=module", "-e", TYPESCRIPT_1]);
    goes_on("typescript", command).await;
}

#[tokio::test]
async fn the_python_client_goes_on() {
    let mut command = Command::new(parts_dir().join("venv/bin/python"));
    command.args(["-c", PYTHON]);
    goes_on("python", command).await;
}

async fn goes_on(name: &str, mut command: Command) {
    let mut site = Site::new(name);
    site.project.write("a-file", "x");
    let mut gateway = site.start(Gateway::built_in()).await;
    command.arg(gateway.url()).current_dir(parts_dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = command.kill_on_drop(true).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut call = async || {
        input.write_all(b"go\n").await.unwrap();
        output.next_line().await.unwrap().expect("the client goes on")
    };
    let before = call().await;
    assert!(before.contains("a-file"), "{before}");
    for _ in 0..3 {
        gateway.kill().await;
        gateway = site.start(Gateway::built_in()).await;
        assert_eq!(call().await, before, "the same session and the same answer");
    }
    assert_eq!(gateway.counter("sessions_restored").await, 1);
    client.kill().await.unwrap();
}
