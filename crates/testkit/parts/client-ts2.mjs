// Exercises a server through its MCP URL with the official TypeScript client
// 2.x, in both ways it can start a 2025-era session: its default, and `auto`,
// which first probes for the 2026-07-28 era and must fall back when the
// server declines.
//
// usage: node client-ts2.mjs URL everything | filesystem DIR | time | fixture [DIR]
// Prints {"ok":true,"checks":[…]}, or the failing check on stderr with exit code 1.

import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { answers, capabilities, checkSession, main, parseArguments } from './server-checks.mjs';

const MODES = { default: undefined, auto: { mode: 'auto' } };

const server = parseArguments(process.argv.slice(2));

async function open(versionNegotiation) {
    const options = { capabilities: capabilities(server), versionNegotiation };
    const client = new Client({ name: 'client-ts2', version: '1.0.0' }, options);
    for (const [method, answer] of Object.entries(answers(server))) {
        client.setRequestHandler(method, answer);
    }
    client.notifications = [];
    client.fallbackNotificationHandler = async (notification) => void client.notifications.push(notification);
    client.call = (name, args, options) => client.callTool({ name, arguments: args }, options);

    const transport = new StreamableHTTPClientTransport(new URL(server.url));
    await client.connect(transport);
    assert.equal(client.getProtocolEra(), 'legacy');
    return {
        client,
        version: client.getNegotiatedProtocolVersion(),
        sessionId: transport.sessionId,
        terminate: () => transport.terminateSession(),
        close: () => client.close(),
    };
}

await main(async () => {
    for (const [name, versionNegotiation] of Object.entries(MODES)) {
        await checkSession(`${name}:`, server, () => open(versionNegotiation));
    }
});
