// An MCP server at a URL, made with the official TypeScript SDK 1.x: what ringfence talks to when a server is not a
// command but an address.
//
// usage: node http-server-ts1.mjs PORT        (0: any free port of 127.0.0.1)
//
// Prints one line: {"event":"listening","port":PORT,"url":"http://127.0.0.1:PORT/mcp"}
// Ends on SIGTERM, SIGINT or the end of its stdin.
//
// Tools
//   add {a, b}               the sum
//   slow {steps, pause_ms}   reports progress at every step
//   part {steps, pause_ms}   the same, but closes its own event stream first: the client must come back for the rest
//   ask {question}           asks the user (elicitation) and says what the answer was
//   log {text, level}        one log notification
//   note {text}              writes the resource note://current and tells every subscriber
//   cut {}                   pings the client, then ends this call's TCP connection without a word
//   whoami {}                the session id and the number of sessions
// Resources
//   note://current           can be subscribed to
//
// Environment
//   JSON_ONLY=1    answers with JSON documents, never with event streams
//   TOKEN=secret   requires `Authorization: Bearer secret`
//   FORGET=1       POST /forget drops all sessions, as a restart would; it answers how many there were

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
    CallToolRequestSchema,
    EmptyResultSchema,
    ErrorCode,
    isInitializeRequest,
    ListResourcesRequestSchema,
    ListToolsRequestSchema,
    McpError,
    ReadResourceRequestSchema,
    SubscribeRequestSchema,
    UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const HOST = '127.0.0.1';
const MCP_PATH = '/mcp';
const NOTE_URI = 'note://current';
/** How soon a client should come back to a stream that was closed on it. */
const RETRY_MS = 20;
const MAX_BODY_BYTES = 4 * 1024 * 1024;

const port = Number(process.argv[2]);
if (!Number.isInteger(port)) {
    console.error('usage: node http-server-ts1.mjs PORT');
    process.exit(2);
}
const { JSON_ONLY, TOKEN, FORGET } = process.env;

/** Session id → { server, transport, subscriptions, sockets }. */
const sessions = new Map();

let note = 'nothing yet';

/** Remembers every event of a session in order, so that its client can resume any stream. */
class EventLog {
    prefix = randomUUID().slice(0, 8);
    events = [];

    async storeEvent(streamId, message) {
        this.events.push({ streamId, message });
        return `${this.prefix}-${this.events.length}`;
    }

    async getStreamIdForEventId(eventId) {
        return this.events[this.#position(eventId) - 1]?.streamId;
    }

    async replayEventsAfter(lastEventId, { send }) {
        const streamId = await this.getStreamIdForEventId(lastEventId);
        for (let at = this.#position(lastEventId); at < this.events.length; at += 1) {
            const event = this.events[at];
            // A priming event was stored as an empty object; it is no message.
            if (event.streamId === streamId && event.message.jsonrpc !== undefined) {
                await send(`${this.prefix}-${at + 1}`, event.message);
            }
        }
        return streamId;
    }

    #position(eventId) {
        const [prefix, number] = eventId.split('-');
        return prefix === this.prefix ? Number(number) : NaN;
    }
}

const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });

const pause = (milliseconds, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, milliseconds);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new Error('cancelled'));
        });
    });

async function countSteps({ steps = 3, pause_ms = 10 }, extra) {
    const progressToken = extra._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress += 1) {
        await pause(pause_ms, extra.signal);
        if (progressToken !== undefined) {
            await extra.sendNotification({
                method: 'notifications/progress',
                params: { progressToken, progress, total: steps },
            });
        }
    }
    return text(`${steps} steps`);
}

const number = { type: 'number' };
const string = { type: 'string' };
const steps = { steps: { type: 'integer' }, pause_ms: { type: 'integer' } };

/** Name → what it is, the properties of its arguments, which of them it needs, and what it does in a session. */
const tools = {
    add: {
        description: 'Adds two numbers',
        properties: { a: number, b: number },
        required: ['a', 'b'],
        run: (_session, { a, b }) => text(a + b),
    },
    slow: {
        description: 'Takes its time and reports progress',
        properties: steps,
        run: (_session, args, extra) => countSteps(args, extra),
    },
    part: {
        description: 'Closes its event stream and goes on; the rest is there for those who come back',
        properties: steps,
        run: (_session, args, extra) => {
            extra.closeSSEStream?.();
            return countSteps(args, extra);
        },
    },
    ask: {
        description: 'Asks the user',
        properties: { question: string },
        required: ['question'],
        run: async ({ server }, { question }, extra) => {
            const requestedSchema = { type: 'object', properties: { answer: string }, required: ['answer'] };
            const reply = await server.elicitInput(
                { message: question, requestedSchema },
                { relatedRequestId: extra.requestId },
            );
            return text(reply.action === 'accept' ? reply.content.answer : reply.action);
        },
    },
    log: {
        description: 'Logs one line',
        properties: { text: string, level: string },
        required: ['text'],
        run: async (_session, { text: data, level = 'info' }, extra) => {
            await extra.sendNotification({ method: 'notifications/message', params: { level, logger: 'log', data } });
            return text('logged');
        },
    },
    note: {
        description: `Writes ${NOTE_URI}`,
        properties: { text: string },
        required: ['text'],
        run: async (_session, args) => {
            note = args.text;
            const subscribers = [...sessions.values()].filter(({ subscriptions }) => subscriptions.has(NOTE_URI));
            await Promise.all(subscribers.map(({ server }) => server.sendResourceUpdated({ uri: NOTE_URI })));
            return text(`${subscribers.length} told`);
        },
    },
    cut: {
        description: 'Ends the TCP connection of this call',
        properties: {},
        run: async ({ sockets }, _args, extra) => {
            // A client that answers has read the stream so far, so the stream can be resumed.
            await extra.sendRequest({ method: 'ping' }, EmptyResultSchema);
            sockets.get(extra.requestId)?.destroy();
            return text('nobody reads this on the first stream');
        },
    },
    whoami: {
        description: 'Says which session this is',
        properties: {},
        run: (_session, _args, extra) => text(JSON.stringify({ session: extra.sessionId, sessions: sessions.size })),
    },
};

function createMcpServer(session) {
    const server = new Server(
        { name: 'http-server-ts1', version: '1.0.0' },
        { capabilities: { tools: {}, logging: {}, resources: { subscribe: true } } },
    );
    server.setRequestHandler(ListToolsRequestSchema, () => ({
        tools: Object.entries(tools).map(([name, { description, properties, required }]) => ({
            name,
            description,
            inputSchema: { type: 'object', properties, ...(required && { required }) },
        })),
    }));
    server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
        const tool = tools[params.name];
        if (tool === undefined) {
            throw new McpError(ErrorCode.InvalidParams, `unknown tool ${params.name}`);
        }
        return tool.run(session, params.arguments ?? {}, extra);
    });
    server.setRequestHandler(ListResourcesRequestSchema, () => ({
        resources: [{ uri: NOTE_URI, name: 'note', mimeType: 'text/plain' }],
    }));
    server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => {
        if (params.uri !== NOTE_URI) {
            throw new McpError(-32002, `no such resource: ${params.uri}`);
        }
        return { contents: [{ uri: NOTE_URI, mimeType: 'text/plain', text: note }] };
    });
    server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
        session.subscriptions.add(params.uri);
        return {};
    });
    server.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => {
        session.subscriptions.delete(params.uri);
        return {};
    });
    return server;
}

async function createSession() {
    const session = { subscriptions: new Set(), sockets: new Map() };
    session.transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: JSON_ONLY === '1',
        eventStore: new EventLog(),
        retryInterval: RETRY_MS,
        onsessioninitialized: (id) => void sessions.set(id, session),
        onsessionclosed: (id) => void sessions.delete(id),
    });
    session.server = createMcpServer(session);
    await session.server.connect(session.transport);
    return session;
}

function refuse(response, status, code, message, headers = {}) {
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code, message } }));
}

async function readBody(request) {
    const chunks = [];
    let length = 0;
    for await (const chunk of request) {
        length += chunk.length;
        if (length > MAX_BODY_BYTES) {
            return undefined;
        }
        chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString();
}

function parse(body) {
    try {
        return JSON.parse(body);
    } catch {
        return undefined;
    }
}

async function handleMcp(request, response) {
    const body = request.method === 'POST' ? await readBody(request) : '';
    if (body === undefined) {
        return refuse(response, 413, -32000, 'Payload too large');
    }
    const message = request.method === 'POST' ? parse(body) : undefined;
    if (request.method === 'POST' && message === undefined) {
        return refuse(response, 400, -32700, 'Parse error');
    }
    const id = request.headers['mcp-session-id'];
    let session = sessions.get(id);
    if (id === undefined && isInitializeRequest(message)) {
        session = await createSession();
    } else if (id === undefined) {
        return refuse(response, 400, -32000, 'Bad Request: Mcp-Session-Id header is required');
    } else if (session === undefined) {
        return refuse(response, 404, -32001, 'Session not found');
    }
    if (message?.id !== undefined) {
        session.sockets.set(message.id, request.socket);
        response.on('close', () => session.sockets.delete(message.id));
    }
    return session.transport.handleRequest(request, response, message);
}

async function forgetAll(response) {
    const forgotten = [...sessions.values()];
    sessions.clear();
    await Promise.all(forgotten.map(({ server }) => server.close()));
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ forgotten: forgotten.length }));
}

async function handle(request, response) {
    const path = request.url.split('?')[0];
    if (path === '/forget' && request.method === 'POST' && FORGET === '1') {
        return forgetAll(response);
    }
    if (path !== MCP_PATH) {
        return refuse(response, 404, -32000, 'Not found');
    }
    if (TOKEN !== undefined && request.headers.authorization !== `Bearer ${TOKEN}`) {
        const challenge = 'Bearer error="invalid_token", error_description="The token is not the right one"';
        return refuse(response, 401, -32000, 'Unauthorized', { 'WWW-Authenticate': challenge });
    }
    return handleMcp(request, response);
}

const http = createServer((request, response) => {
    handle(request, response).catch((error) => {
        console.error(error);
        if (!response.headersSent) {
            refuse(response, 500, -32603, 'Internal error');
        }
    });
});

http.listen(port, HOST, () => {
    const { port: bound } = http.address();
    console.log(JSON.stringify({ event: 'listening', port: bound, url: `http://${HOST}:${bound}${MCP_PATH}` }));
});

const end = () => process.exit(0);
process.on('SIGTERM', end);
process.on('SIGINT', end);
process.stdin.on('end', end).resume();
