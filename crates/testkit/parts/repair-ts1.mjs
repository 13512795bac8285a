// Repairs the project of `workspace/server/repair.rs` through the MCP URL of a
// built-in server, with the official TypeScript SDK 1.x: runs its tests, finds
// and fixes one bug after the other until they pass, and commits.
//
// usage: node repair-ts1.mjs URL DIR
// Prints {"ok":true,"rounds":N,"fixed":[…]}, or what went wrong with exit code 1.

import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [url, directory] = process.argv.slice(2);

/** By failing test: where to look, and what to change there. */
const FIXES = {
    test_total: {
        query: 'def total',
        tool: 'search_replace',
        change: { old_string: 'price + quantity', new_string: 'price * quantity' },
    },
    test_discounted: {
        query: 'def discounted',
        tool: 'edit_file',
        change: {
            code_edit: [
                '# ... existing code ...',
                'def discounted(amount, percent):',
                '    """An amount less a percentage."""',
                '    return amount - amount * percent / 100',
                '',
            ].join('\n'),
        },
    },
};

const client = new Client({ name: 'repair-ts1', version: '1.0.0' }, { capabilities: { roots: {} } });
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: pathToFileURL(directory).href }] }));
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
// The client checks results against the schemas that it has listed.
await client.listTools();

async function call(name, args) {
    const { structuredContent, isError } = await client.callTool({ name, arguments: args });
    return { ...structuredContent, failed: isError === true };
}

async function succeed(name, args) {
    const result = await call(name, args);
    assert.equal(result.failed, false, `${name}: ${JSON.stringify(result)}`);
    return result;
}

const test = () => call('run_terminal_cmd', { command: 'python3 -B -m unittest', wait_seconds: 45 });

const fixed = [];
let rounds = 1;
let ended = await test();
while (ended.exit_code !== 0) {
    assert.match(ended.output, /AssertionError/);
    const failing = /^FAIL: (\w+)/m.exec(ended.output)[1];
    assert.ok(!fixed.includes(failing), `${failing} was not fixed:\n${ended.output}`);
    const { query, tool, change } = FIXES[failing];
    const found = await succeed('grep_search', { query, include_pattern: '*.py' });
    assert.equal(found.total_matches, 1);
    const { path, line } = found.matches[0];
    const read = await succeed('read_file', { target_file: path, start_line_one_indexed: line });
    assert.ok(read.content.startsWith(query), read.content);
    const edited = await succeed(tool, { path, expected_hash: read.hash, ...change });
    assert.deepEqual([edited.lines_added, edited.lines_removed], [1, 1]);
    fixed.push(failing);
    rounds += 1;
    ended = await test();
}

const commit = "git commit --quiet --all --message 'Fix the prices' && git status --porcelain";
assert.equal((await succeed('run_terminal_cmd', { command: commit })).output, '');
const diff = await succeed('session_diff', {});
assert.deepEqual(diff.files, [
    { path: 'shop/prices.py', status: 'modified', lines_added: 2, lines_removed: 2 },
]);
assert.match(diff.diff, /-        amount \+= price \+ quantity\n\+        amount \+= price \* quantity\n/);

await transport.terminateSession();
await client.close();
console.log(JSON.stringify({ ok: true, rounds, fixed: fixed.sort() }));
