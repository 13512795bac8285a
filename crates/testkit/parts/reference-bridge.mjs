// The direct leg of a differential conformance run: a small, known-good
// Streamable HTTP server in front of a stdio server, made with the official
// TypeScript SDK v1. What a client sees through ringfence must equal what it
// sees through this.
//
// usage: node reference-bridge.mjs -- COMMAND ARGS…
//
// Listens on a free port of 127.0.0.1 and prints one line:
//   {"event":"listening","url":"http://127.0.0.1:PORT/mcp"}
// Ends on SIGTERM, SIGINT or the end of its stdin, and ends its children first.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';

const RETRY_MS = 500;

const separator = process.argv.indexOf('--');
const [command, ...args] = separator < 0 ? [] : process.argv.slice(separator + 1);
if (command === undefined) {
    console.error('usage: node reference-bridge.mjs -- COMMAND ARGS…');
    process.exit(2);
}

/** Session id → the HTTP side of the session. */
const sessions = new Map();

/** Every child that may still run; it outlives its session by the time it takes to end. */
const children = new Set();

/** Remembers every event in order, so that a client can resume any stream. */
class EventLog {
    events = [];

    async storeEvent(streamId, message) {
        this.events.push({ streamId, message });
        return String(this.events.length);
    }

    async getStreamIdForEventId(eventId) {
        return this.events[Number(eventId) - 1]?.streamId;
    }

    async replayEventsAfter(lastEventId, { send }) {
        const streamId = await this.getStreamIdForEventId(lastEventId);
        for (let at = Number(lastEventId); at < this.events.length; at += 1) {
            const event = this.events[at];
            // A priming event was stored as an empty object; it is no message.
            if (event.streamId === streamId && event.message.jsonrpc !== undefined) {
                await send(String(at + 1), event.message);
            }
        }
        return streamId;
    }
}

/** Forwards messages both ways and remembers which requests are unanswered. */
function connect(http, child) {
    // Id of each unanswered client request → its progress token, oldest first.
    const inFlight = new Map();

    http.onmessage = (message) => {
        if (message.method !== undefined && message.id !== undefined) {
            inFlight.set(message.id, message.params?._meta?.progressToken);
        } else if (message.method === 'notifications/cancelled') {
            inFlight.delete(message.params?.requestId);
        }
        child.send(message).catch(report);
    };

    child.onmessage = (message) => {
        if (message.method === undefined) {
            inFlight.delete(message.id);
            http.send(message).catch(report);
        } else {
            http.send(message, { relatedRequestId: relatedRequest(message, inFlight) }).catch(report);
        }
    };

    // When one side ends, the other is closed too.
    http.onclose = () => {
        sessions.delete(http.sessionId);
        child.close().catch(report);
    };
    child.onclose = () => {
        children.delete(child);
        http.close().catch(report);
    };
}

/**
 * The request on whose stream a message of the child belongs. Progress names
 * its request by token; everything else is put with the newest request, and
 * without one on the GET stream (undefined). The SDK drops such a message when
 * no GET stream is open yet.
 */
function relatedRequest(message, inFlight) {
    const requests = [...inFlight.keys()];
    if (message.method === 'notifications/progress') {
        return requests.find((id) => inFlight.get(id) === message.params?.progressToken);
    }
    return requests.at(-1);
}

function newSession(authority) {
    const child = new StdioClientTransport({ command, args });
    const http = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: new EventLog(),
        retryInterval: RETRY_MS,
        enableDnsRebindingProtection: true,
        allowedHosts: authority,
        allowedOrigins: authority.map((host) => `http://${host}`),
        // The SDK awaits this before it hands on the initialize request.
        onsessioninitialized: async (id) => {
            connect(http, child);
            await child.start();
            children.add(child);
            sessions.set(id, http);
        },
    });
    return http;
}

async function handle(request, response) {
    const { port } = server.address();
    const id = request.headers['mcp-session-id'];
    if (new URL(request.url, 'http://bridge').pathname !== '/mcp') {
        response.writeHead(404).end();
    } else if (id === undefined) {
        // Anything but an initialize request is refused by the new transport.
        await newSession([`127.0.0.1:${port}`, `localhost:${port}`]).handleRequest(request, response);
    } else if (sessions.has(id)) {
        await sessions.get(id).handleRequest(request, response);
    } else {
        response.writeHead(404, { 'content-type': 'application/json' });
        response.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}');
    }
}

function report(error) {
    console.error(`reference-bridge: ${error.message}`);
}

let stopping = false;
async function stop() {
    if (stopping) return;
    stopping = true;
    server.close();
    for (const http of sessions.values()) await http.close();
    while (children.size > 0) await new Promise((resolve) => setTimeout(resolve, 10));
    process.exit(0);
}

const server = createServer((request, response) => {
    handle(request, response).catch((error) => {
        report(error);
        response.destroy();
    });
});
server.listen(0, '127.0.0.1', () => {
    const url = `http://127.0.0.1:${server.address().port}/mcp`;
    console.log(JSON.stringify({ event: 'listening', url }));
});
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
process.stdin.on('end', stop).resume();
