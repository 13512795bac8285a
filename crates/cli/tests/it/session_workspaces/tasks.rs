//! Real clients do a task each in workspaces of one project, while its owner goes on with the project.

use std::process::Stdio;

use testkit::{node_binary, parts_dir, python_binary};
use tokio::process::Command;

use super::Desk;

/// Edits, tests and commits, with the official TypeScript client.
const TYPESCRIPT: &str = "
    import { Client } from '@modelcontextprotocol/sdk/client/index.js';
    import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
    const [url, word] = process.argv.slice(1);
    const client = new Client({ name: 'task', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    const call = async (name, args) => {
        const result = await client.callTool({ name, arguments: args });
        if (result.isError) throw new Error(JSON.stringify(result.content));
        return result.content.map((part) => part.text).join('');
    };
    await call('search_replace', { path: 'greet.sh', old_string: 'echo hello', new_string: `echo ${word}` });
    const tested = await call('run_terminal_cmd', { command: `sh test.sh ${word}` });
    if (!tested.includes('passed')) throw new Error(tested);
    await call('run_terminal_cmd', {
        command: `git -c user.name=a -c user.email=a@b commit -qam 'say ${word}' && git log -1 --format=%s`,
    });
    console.log('done');
    process.exit(0);";

/// The same with the official Python client.
const PYTHON: &str = "
import anyio, sys
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    url, word = sys.argv[1:]
    async with Client(streamable_http_client(url), mode='legacy') as client:
        async def call(name, args):
            result = await client.call_tool(name, args)
            text = ''.join(item.text for item in result.content)
            assert not result.is_error, text
            return text
        await call('search_replace', {'path': 'greet.sh', 'old_string': 'echo hello', 'new_string': f'echo {word}'})
        tested = await call('run_terminal_cmd', {'command': f'sh test.sh {word}'})
        assert 'passed' in tested, tested
        await call('run_terminal_cmd', {
            'command': f\"git -c user.name=a -c user.email=a@b commit -qam 'say {word}' && git log -1 --format=%s\"})
        print('done')

anyio.run(main)
";

#[tokio::test]
async fn three_agents_work_at_once_while_the_owner_edits_the_project() {
    let desk = Desk::plain("tasks");
    desk.project.write("greet.sh", "#!/bin/sh\necho hello\n");
    desk.project.write("test.sh", "test \"$(sh greet.sh)\" = \"$1\" && echo passed\n");
    desk.project.commit_all();
    let gateway = desk.gateway().start().await;
    let words = ["bonjour", "hallo", "ciao"];
    let mut running = Vec::new();
    for word in words {
        desk.succeeds(&["start", word, "--mcp"]);
        let url = format!("{}/w/{word}", gateway.url());
        let mut command = if word == "hallo" {
            let mut python = Command::new(python_binary());
            python.args(["-c", PYTHON]);
            python
        } else {
            let mut node = Command::new(node_binary());
            node.args(["--input-type=module", "-e", TYPESCRIPT]);
            node
        };
        command.args([url.as_str(), word]).current_dir(parts_dir()).kill_on_drop(true);
        running.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    }
    // The owner works on another file, and on the same one where no agent does.
    for round in 0..20 {
        desk.project.write("owner.txt", format!("round {round}\n"));
    }
    for (client, word) in running.into_iter().zip(words) {
        let output = client.wait_with_output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("done"), "{word}: {output:?}");
    }
    assert_eq!(desk.project.text("greet.sh"), "#!/bin/sh\necho hello\n");
    assert_eq!(desk.project.git(&["log", "--format=%s", "--all"]), "as it was\n");
    drop(gateway);
    for word in words {
        assert!(desk.succeeds(&["diff", word]).stdout.contains(&format!("+echo {word}")));
        desk.succeeds(&["merge", word]);
        let log = desk.project.git(&["log", "--format=%s", &format!("main..ringfence/{word}")]);
        assert_eq!(log, format!("say {word}\n"));
    }
    desk.succeeds(&["apply", "ciao"]);
    assert_eq!(desk.project.text("greet.sh"), "#!/bin/sh\necho ciao\n");
    assert_eq!(desk.project.text("owner.txt"), "round 19\n");
    // The second one changed the same line.
    desk.fails(&["apply", "hallo"], "both changed the same lines");
}
