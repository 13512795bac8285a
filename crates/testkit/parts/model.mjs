// A stand-in for the API of a model, in the four dialects that coding agents speak.
// It records which tools an agent offers, calls one of them as often as it is told, and
// records what the agent answers.

import http from 'node:http';

/** The tool results in a text, whatever its shape. */
const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

/** The ids of calls that only let an agent show a tool that it has deferred begin with this. */
const SEARCH = 'search';

/** The tools that an agent names in its first message, and shows once its model has searched for them. */
function deferred(messages) {
    const [first] = messages;
    if (!text(first?.content ?? '').includes('tool_search')) return [];
    const parts = Array.isArray(first.content) ? first.content.map((part) => part.text ?? '').join('') : first.content;
    return [...parts.matchAll(/^- "([^"]+)": /gm)].map(([, name]) => name);
}

/**
 * Each dialect: the tools of a request as [name, how the agent wants it called], the results of
 * calls so far, and the events of an answer that calls a tool or ends the turn.
 */
const DIALECTS = {
    responses: {
        tools: ({ tools = [] }) =>
            tools.flatMap((entry) =>
                entry.tools
                    ? entry.tools.map(({ name }) => [`${entry.name}/${name}`, { name, namespace: entry.name }])
                    : [[entry.name ?? entry.type, { name: entry.name }]],
            ),
        results: ({ input }) =>
            input.filter(({ type }) => type === 'function_call_output').map(({ output }) => text(output)),
        *events(call, number) {
            const { input, ...named } = call ?? {};
            const item = call
                ? { type: 'function_call', id: `f${number}`, call_id: `c${number}`, arguments: JSON.stringify(input), ...named }
                : { type: 'message', role: 'assistant', id: 'm1', content: [{ type: 'output_text', text: 'done' }] };
            const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
            yield { type: 'response.created', response: { id: `r${number}` } };
            yield { type: 'response.output_item.done', item };
            yield { type: 'response.completed', response: { id: `r${number}`, usage } };
        },
    },
    anthropic: {
        tools: ({ tools = [] }) => tools.map(({ name }) => [name, { name }]),
        results: ({ messages }) =>
            messages
                .flatMap(({ content }) => (Array.isArray(content) ? content : []))
                .filter(({ type }) => type === 'tool_result')
                .map(({ content }) => text(content)),
        *events(call, number, { model }) {
            const usage = { input_tokens: 1, output_tokens: 1 };
            const message = { id: `m${number}`, type: 'message', role: 'assistant', model, content: [], usage };
            yield { type: 'message_start', message: { ...message, stop_reason: null } };
            if (call) {
                const content_block = { type: 'tool_use', id: `t${number}`, name: call.name, input: {} };
                yield { type: 'content_block_start', index: 0, content_block };
                const delta = { type: 'input_json_delta', partial_json: JSON.stringify(call.input) };
                yield { type: 'content_block_delta', index: 0, delta };
            } else {
                yield { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } };
                yield { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'done' } };
            }
            yield { type: 'content_block_stop', index: 0 };
            const stop_reason = call ? 'tool_use' : 'end_turn';
            yield { type: 'message_delta', delta: { stop_reason }, usage: { output_tokens: 1 } };
            yield { type: 'message_stop' };
        },
    },
    gemini: {
        tools: ({ tools = [] }) =>
            tools.flatMap(({ functionDeclarations = [] }) => functionDeclarations.map(({ name }) => [name, { name }])),
        results: ({ contents = [] }) =>
            contents
                .flatMap(({ parts = [] }) => parts)
                .filter(({ functionResponse }) => functionResponse)
                .map(({ functionResponse }) => text(functionResponse.response)),
        *events(call) {
            const part = call ? { functionCall: { name: call.name, args: call.input } } : { text: 'done' };
            const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
            yield { candidates: [{ content: { role: 'model', parts: [part] }, finishReason: 'STOP' }], usageMetadata };
        },
    },
    chat: {
        tools: ({ tools = [], messages }) => [
            ...tools.map(({ function: { name } }) => [name, { name }]),
            ...deferred(messages).map((name) => [name, { name: 'tool_search', input: { query: `select:${name}` } }]),
        ],
        results: ({ messages }) =>
            messages
                .filter(({ role, tool_call_id }) => role === 'tool' && !tool_call_id.startsWith(SEARCH))
                .map(({ content }) => text(content)),
        *events(call, number, { model }) {
            const chunk = { id: `r${number}`, object: 'chat.completion.chunk', created: 1, model };
            const delta = { role: 'assistant', content: 'done' };
            if (call) {
                const id = call.name === 'tool_search' ? `${SEARCH}${number}` : `c${number}`;
                const invoked = { name: call.name, arguments: JSON.stringify(call.input) };
                delete delta.content;
                delta.tool_calls = [{ index: 0, id, type: 'function', function: invoked }];
            }
            yield { ...chunk, choices: [{ index: 0, delta, finish_reason: null }] };
            const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
            const finish_reason = call ? 'tool_calls' : 'stop';
            yield { ...chunk, choices: [{ index: 0, delta: {}, finish_reason }], usage };
        },
    },
};

/**
 * Starts a model that calls `tool` of the MCP server `server` with `input` `calls` times, and runs `between`
 * before every call but the first.
 */
export async function startModel({ dialect, server, tool, input = {}, calls, between }) {
    const { tools, results, events } = DIALECTS[dialect];
    const ofServer = new RegExp(`^(?:mcp_+)?${server}[_/]+(.+)$`);
    /** Agents spell the names of tools of MCP servers differently; here, all are `SERVER/TOOL`. */
    const shown = (name) => name.replace(ofServer, `${server}/$1`);
    const seen = { tools: null, outputs: [] };
    let calledBefore = 0;

    async function answer(request) {
        const offered = tools(request);
        const outputs = results(request);
        // Agents also ask for titles and summaries, without tools.
        if (offered.length === 0) return undefined;
        seen.tools ??= offered.map(([name]) => shown(name));
        if (outputs.length > seen.outputs.length) seen.outputs = outputs;
        if (outputs.length >= calls) return undefined;
        if (outputs.length > calledBefore) {
            calledBefore = outputs.length;
            await between();
        }
        const found = offered.find(([name]) => shown(name) === `${server}/${tool}`)?.[1];
        return found && { input, ...found };
    }

    const api = http.createServer((request, response) => {
        let body = '';
        request.on('data', (part) => (body += part));
        request.on('end', async () => {
            const asked = body.startsWith('{') ? JSON.parse(body) : {};
            const isStream = asked.stream === true || request.url.includes('streamGenerateContent');
            if (!isStream) {
                response.writeHead(200, { 'content-type': 'application/json' });
                response.end(JSON.stringify(unstreamed(dialect, asked)));
                return;
            }
            const call = await answer(asked);
            response.writeHead(200, { 'content-type': 'text/event-stream' });
            for (const event of events(call, seen.outputs.length + 1, asked)) {
                const name = event.type ? `event: ${event.type}\n` : '';
                response.write(`${name}data: ${JSON.stringify(event)}\n\n`);
            }
            response.end(dialect === 'chat' ? 'data: [DONE]\n\n' : '');
        });
    });
    await new Promise((resolve) => api.listen(0, '127.0.0.1', resolve));
    return { url: `http://127.0.0.1:${api.address().port}`, seen, close: () => api.close() };
}

/** The answer to a question beside the conversation, such as for a title or a number of tokens. */
function unstreamed(dialect, { model }) {
    const content = [{ type: 'text', text: 'ok' }];
    const anthropic = { id: 'm0', type: 'message', role: 'assistant', model, content, stop_reason: 'end_turn' };
    return {
        responses: {},
        anthropic: { ...anthropic, input_tokens: 1, usage: { input_tokens: 1, output_tokens: 1 } },
        gemini: {
            candidates: [{ content: { role: 'model', parts: [{ text: '{}' }] }, finishReason: 'STOP' }],
            totalTokens: 1,
        },
        chat: { choices: [{ index: 0, message: { role: 'assistant', content: 'ok' }, finish_reason: 'stop' }] },
    }[dialect];
}
