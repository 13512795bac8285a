// Exercises a server through its MCP URL with the official TypeScript SDK 1.x.
//
// usage: node client-ts1.mjs URL everything | filesystem DIR | time | fixture [DIR]
// Prints {"ok":true,"checks":[…]}, or the failing check on stderr with exit code 1.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { answers, capabilities, checkSession, main, parseArguments } from './server-checks.mjs';

const SCHEMAS = {
    'sampling/createMessage': CreateMessageRequestSchema,
    'elicitation/create': ElicitRequestSchema,
    'roots/list': ListRootsRequestSchema,
};

const server = parseArguments(process.argv.slice(2));

async function open() {
    const client = new Client({ name: 'client-ts1', version: '1.0.0' }, { capabilities: capabilities(server) });
    for (const [method, answer] of Object.entries(answers(server))) {
        client.setRequestHandler(SCHEMAS[method], answer);
    }
    client.notifications = [];
    client.fallbackNotificationHandler = async (notification) => void client.notifications.push(notification);
    client.call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);

    const transport = new StreamableHTTPClientTransport(new URL(server.url));
    await client.connect(transport);
    return {
        client,
        version: transport.protocolVersion,
        sessionId: transport.sessionId,
        terminate: () => transport.terminateSession(),
        close: () => client.close(),
    };
}

await main(() => checkSession('', server, open));
