// Calls a tool three times with an official TypeScript SDK, as an application that never connects again.
//
// usage: node client-again.mjs ts1 | ts2 URL DIR TOOL [ARGUMENTS]
//
// DIR is the client's root. After the first call it prints {"paused":true}, and waits for a line on stdin. Prints
// {"tools":[…],"outputs":[…]}; the output of a call that failed is the error.

import readline from 'node:readline/promises';
import { pathToFileURL } from 'node:url';

const [sdk, url, directory, tool, input = '{}'] = process.argv.slice(2);
const roots = () => ({ roots: [{ uri: pathToFileURL(directory).href }] });

async function load() {
    if (sdk === 'ts2') {
        const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
        return { Client, StreamableHTTPClientTransport, rootsList: 'roots/list' };
    }
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { ListRootsRequestSchema } = await import('@modelcontextprotocol/sdk/types.js');
    return { Client, StreamableHTTPClientTransport, rootsList: ListRootsRequestSchema };
}

const { Client, StreamableHTTPClientTransport, rootsList } = await load();
const client = new Client({ name: 'client-again', version: '1.0.0' }, { capabilities: { roots: { listChanged: true } } });
client.setRequestHandler(rootsList, roots);
client.onerror = () => {};

async function call() {
    try {
        const { content } = await client.callTool({ name: tool, arguments: JSON.parse(input) });
        return content.map((part) => part.text).join('');
    } catch (error) {
        return String(error);
    }
}

await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const outputs = [await call()];
console.log(JSON.stringify({ paused: true }));
await readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]().next();
outputs.push(await call(), await call());
console.log(JSON.stringify({ tools: tools.map(({ name }) => name), outputs }));
process.exit(0);
