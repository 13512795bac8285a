// Runs a real coding agent against a model that is a stand-in, and calls a tool of the server `ringfence`.
//
// usage: node client-agent.mjs AGENT HOME DIR TOOL [CALLS]
//
// HOME holds the agent's configuration; it starts in DIR. Prints {"tools":[…],"outputs":[…]}, tools of the server as
// `ringfence/TOOL`. Before every call but the first it prints {"paused":true}, and waits for a line on stdin.

import path from 'node:path';
import readline from 'node:readline/promises';
import { fileURLToPath } from 'node:url';
import { runAgent } from './agents.mjs';

const [name, home, directory, tool, calls = '1'] = process.argv.slice(2);
const modules = path.join(path.dirname(fileURLToPath(import.meta.url)), 'node_modules');
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function between() {
    console.log(JSON.stringify({ paused: true }));
    await lines.next();
}

const { tools, outputs, code, printed } = await runAgent({
    name,
    modules,
    home,
    directory,
    tool,
    calls: Number(calls),
    between,
});
if (code !== 0 || outputs.length < Number(calls)) {
    console.error(`${name} ended with ${code}, after ${outputs.length} calls:\n${printed}`);
    process.exit(1);
}
console.log(JSON.stringify({ tools, outputs }));
process.exit(0);
