// An MCP server at a URL that speaks only revision 2026-07-28, made with the official TypeScript SDK 2.x: no `initialize`,
// no sessions, every request on its own.
//
// usage: node http-server-ts2.mjs PORT        (0: any free port of 127.0.0.1)
//
// Prints one line: {"event":"listening","port":PORT,"url":"http://127.0.0.1:PORT/mcp"}
// Ends on SIGTERM, SIGINT or the end of its stdin.
//
// Tools
//   add {a, b}               the sum
//   slow {steps, pause_ms}   reports progress at every step
//   ask {question}           asks the user (elicitation) and says what the answer was
//   twice {}                 asks two things at once, and then one more; keeps what it knows in its request state
//   log {text, level}        one log notification
//   note {text}              writes the resource note://current and tells every subscriber
//   grow {}                  adds the tool `grown` and notifies all clients
//   route {region, size}     both arguments must stand in a header, too; says what the headers were
//   hang {}                  reports progress once and never answers; `cancelled` counts how many were given up
//   cancelled {}             that number
// Prompts
//   hello {name}             a greeting
// Resources
//   note://current           can be subscribed to
//
// Environment
//   TOKEN=secret   requires `Authorization: Bearer secret`

import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import {
    acceptedContent,
    createMcpHandler,
    fromJsonSchema,
    inputRequired,
    inputResponse,
    McpServer,
} from '@modelcontextprotocol/server';

const HOST = '127.0.0.1';
const MCP_PATH = '/mcp';
const NOTE_URI = 'note://current';

const port = Number(process.argv[2]);
if (!Number.isInteger(port)) {
    console.error('usage: node http-server-ts2.mjs PORT');
    process.exit(2);
}
const { TOKEN } = process.env;

let note = 'nothing yet';
let hasGrown = false;
let cancelled = 0;

const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });

const pause = (milliseconds, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, milliseconds);
        signal.addEventListener('abort', () => {
            clearTimeout(timer);
            reject(new Error('cancelled'));
        });
    });

const number = { type: 'number' };
const string = { type: 'string' };
const question = (message) =>
    inputRequired.elicit({
        message,
        requestedSchema: { type: 'object', properties: { answer: string }, required: ['answer'] },
    });

/** Name → what it is, the properties of its arguments, which of them it needs, and what it does. */
const tools = {
    add: {
        description: 'Adds two numbers',
        properties: { a: number, b: number },
        required: ['a', 'b'],
        run: ({ a, b }) => text(a + b),
    },
    slow: {
        description: 'Takes its time and reports progress',
        properties: { steps: { type: 'integer' }, pause_ms: { type: 'integer' } },
        run: async ({ steps = 3, pause_ms = 10 }, { mcpReq }) => {
            const progressToken = mcpReq._meta?.progressToken;
            for (let progress = 1; progress <= steps; progress += 1) {
                await pause(pause_ms, mcpReq.signal);
                if (progressToken !== undefined) {
                    await mcpReq.notify({
                        method: 'notifications/progress',
                        params: { progressToken, progress, total: steps },
                    });
                }
            }
            return text(`${steps} steps`);
        },
    },
    ask: {
        description: 'Asks the user',
        properties: { question: string },
        required: ['question'],
        run: (args, { mcpReq }) => {
            const reply = inputResponse(mcpReq.inputResponses, 'reply');
            if (reply.kind === 'missing') {
                return inputRequired({ inputRequests: { reply: question(args.question) } });
            }
            return text(reply.action === 'accept' ? reply.content.answer : reply.action);
        },
    },
    twice: {
        description: 'Asks the user more than once',
        properties: {},
        run: (_args, { mcpReq }) => {
            const answer = (key) => acceptedContent(mcpReq.inputResponses, key)?.answer;
            const state = mcpReq.requestState();
            if (state === undefined) {
                return inputRequired({
                    inputRequests: { first: question('first?'), second: question('second?') },
                    requestState: JSON.stringify([]),
                });
            }
            const known = JSON.parse(state);
            if (known.length === 0) {
                return inputRequired({
                    inputRequests: { third: question('third?') },
                    requestState: JSON.stringify([answer('first'), answer('second')]),
                });
            }
            return text([...known, answer('third')].join(', '));
        },
    },
    log: {
        description: 'Logs one line',
        properties: { text: string, level: string },
        required: ['text'],
        run: async ({ text: data, level = 'info' }, { mcpReq }) => {
            await mcpReq.log(level, data, 'log');
            return text('logged');
        },
    },
    note: {
        description: `Writes ${NOTE_URI}`,
        properties: { text: string },
        required: ['text'],
        run: (args) => {
            note = args.text;
            handler.notify.resourceUpdated(NOTE_URI);
            return text('told');
        },
    },
    grow: {
        description: 'Adds a tool',
        properties: {},
        run: () => {
            hasGrown = true;
            handler.notify.toolsChanged();
            return text('grown');
        },
    },
    grown: {
        description: 'Was not always there',
        properties: {},
        run: () => text('here now'),
    },
    route: {
        description: 'Has arguments that stand in headers',
        properties: {
            region: { type: 'string', 'x-mcp-header': 'Region' },
            size: { type: 'integer', 'x-mcp-header': 'Size' },
        },
        run: (_args, { http }) => {
            const header = (name) => http.req.headers.get(`mcp-param-${name}`);
            return text(`${header('region')} ${header('size')}`);
        },
    },
    hang: {
        description: 'Never answers',
        properties: {},
        run: (_args, { mcpReq }) =>
            new Promise((_resolve, reject) => {
                mcpReq.signal.addEventListener('abort', () => {
                    cancelled += 1;
                    reject(new Error('cancelled'));
                });
                const params = { progressToken: mcpReq._meta?.progressToken, progress: 0 };
                mcpReq.notify({ method: 'notifications/progress', params }).catch(reject);
            }),
    },
    cancelled: {
        description: 'How many calls were given up',
        properties: {},
        run: () => text(cancelled),
    },
};

/** One server for each request, as the revision has it. */
function createMcpServer() {
    const server = new McpServer(
        { name: 'http-server-ts2', version: '1.0.0' },
        {
            capabilities: {
                tools: { listChanged: true },
                prompts: {},
                resources: { subscribe: true },
                logging: {},
            },
            instructions: 'Every request on its own.',
        },
    );
    for (const [name, { description, properties, required, run }] of Object.entries(tools)) {
        if (name !== 'grown' || hasGrown) {
            const schema = { type: 'object', properties, ...(required && { required }) };
            server.registerTool(name, { description, inputSchema: fromJsonSchema(schema) }, run);
        }
    }
    const argsSchema = fromJsonSchema({ type: 'object', properties: { name: string }, required: ['name'] });
    server.registerPrompt('hello', { argsSchema }, ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Hello ${name}` } }],
    }));
    server.registerResource('note', NOTE_URI, { mimeType: 'text/plain' }, () => ({
        contents: [{ uri: NOTE_URI, mimeType: 'text/plain', text: note }],
    }));
    return server;
}

const handler = createMcpHandler(createMcpServer, { legacy: 'reject' });

function refuse(response, status, message, headers = {}) {
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message } }));
}

/** A request of Node as one of the web, and the answer back. */
async function handle(request, response) {
    if (request.url.split('?')[0] !== MCP_PATH) {
        return refuse(response, 404, 'Not found');
    }
    if (TOKEN !== undefined && request.headers.authorization !== `Bearer ${TOKEN}`) {
        const challenge = 'Bearer error="invalid_token", error_description="The token is not the right one"';
        return refuse(response, 401, 'Unauthorized', { 'WWW-Authenticate': challenge });
    }
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const hasBody = request.method !== 'GET' && request.method !== 'HEAD';
    const answer = await handler.fetch(
        new Request(`http://${HOST}${request.url}`, {
            method: request.method,
            headers: request.headers,
            body: hasBody ? Readable.toWeb(request) : undefined,
            duplex: 'half',
            signal: gone.signal,
        }),
    );
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.flushHeaders();
    if (answer.body === null) {
        return response.end();
    }
    // Clients that disconnect in the middle are ignored.
    Readable.fromWeb(answer.body).on('error', () => response.destroy()).pipe(response);
}

const http = createServer((request, response) => {
    handle(request, response).catch((error) => {
        console.error(error);
        if (!response.headersSent) {
            refuse(response, 500, 'Internal error');
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
