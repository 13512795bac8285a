// Runs the real Codex against a model that is this script: it records the tools
// that Codex offers, calls one of them, and records what Codex answers.
//
// usage: node client-codex.mjs HOME DIR SERVER TOOL
//
// HOME holds .codex/config.toml, to which the model is added; Codex starts in DIR.
// Prints {"tools":[…],"output":"…"}; tools of an MCP server as `SERVER/TOOL`.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const [home, directory, server, tool] = process.argv.slice(2);
const WATCHDOG_MS = 240_000;
const namespace = `mcp__${server}`;

const seen = { tools: [], output: null };

/** The names of all tools in a request, those of MCP servers with their server. */
function names(tools) {
    return tools.flatMap((entry) =>
        entry.tools
            ? entry.tools.map((inner) => `${(entry.name ?? '').replace(/^mcp__/, '')}/${inner.name}`)
            : [entry.name ?? entry.type],
    );
}

/** The first answer calls the tool; the next one ends the turn. */
function answer(request) {
    const result = request.input.find((item) => item.type === 'function_call_output');
    if (result) {
        seen.output = typeof result.output === 'string' ? result.output : JSON.stringify(result.output);
        const content = [{ type: 'output_text', text: 'done' }];
        return { type: 'message', role: 'assistant', id: 'm1', content };
    }
    seen.tools = names(request.tools ?? []);
    return { type: 'function_call', id: 'f1', call_id: 'c1', name: tool, namespace, arguments: '{}' };
}

const model = http.createServer((request, response) => {
    let body = '';
    request.on('data', (part) => (body += part));
    request.on('end', () => {
        const item = answer(JSON.parse(body));
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const send = (type, data) =>
            response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
        const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
        send('response.created', { response: { id: 'r1' } });
        send('response.output_item.done', { item });
        send('response.completed', { response: { id: 'r1', usage } });
        response.end();
    });
});

await new Promise((resolve) => model.listen(0, '127.0.0.1', resolve));
const file = path.join(home, '.codex', 'config.toml');
const provider = `
[model_providers.test]
name = "test"
base_url = "http://127.0.0.1:${model.address().port}/v1"
wire_api = "responses"
`;
fs.appendFileSync(file, provider);

const parts = path.dirname(fileURLToPath(import.meta.url));
const codex = spawn(
    process.execPath,
    [
        path.join(parts, 'node_modules/@openai/codex/bin/codex.js'),
        'exec',
        '--skip-git-repo-check',
        '-c',
        'model_provider="test"',
        '-m',
        'gpt-5-codex',
        'go',
    ],
    { cwd: directory, env: { PATH: process.env.PATH, HOME: home }, stdio: ['ignore', 'ignore', 'pipe'] },
);
let log = '';
codex.stderr.on('data', (part) => (log += part));
const watchdog = setTimeout(() => codex.kill('SIGKILL'), WATCHDOG_MS);
const code = await new Promise((resolve) => codex.on('close', resolve));
clearTimeout(watchdog);
model.close();
if (code !== 0 || seen.output === null) {
    console.error(`codex ended with ${code}:\n${log}`);
    process.exit(1);
}
console.log(JSON.stringify(seen));
process.exit(0);
