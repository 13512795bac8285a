// What the TypeScript clients check about each server. The two SDK
// generations differ only in how a client is made and called, so
// client-ts1.mjs and client-ts2.mjs wrap theirs in the small interface below
// and share the checks.
//
// client: { listTools, listPrompts, listResources, listResourceTemplates,
//           getPrompt, readResource, complete, setLoggingLevel,
//           subscribeResource, unsubscribeResource: as in the SDKs;
//           call(tool, arguments, options): tools/call;
//           notifications: every notification received, in order }

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const WATCHDOG_MS = 240_000;
const WAIT_MS = 120_000;

/** The server behind the URL, as named on the command line. */
export function parseArguments([url, name, directory]) {
    const known = ['everything', 'filesystem', 'time', 'fixture'];
    if (url === undefined || !known.includes(name) || (name === 'filesystem' && directory === undefined)) {
        console.error('usage: client URL everything | filesystem DIR | time | fixture [DIR]');
        process.exit(2);
    }
    return { url, name, directory: directory ?? process.cwd() };
}

/** What the client offers: roots only where the server has to do with a directory. */
export function capabilities(server) {
    const offered = { sampling: {}, elicitation: {} };
    return usesRoots(server) ? { ...offered, roots: {} } : offered;
}

/** The client's answers to the server's requests, by method. */
export function answers(server) {
    const always = { 'sampling/createMessage': answerSampling, 'elicitation/create': answerElicitation };
    const roots = [{ uri: pathToFileURL(server.directory).href, name: 'test root' }];
    return usesRoots(server) ? { ...always, 'roots/list': () => ({ roots }) } : always;
}

function usesRoots(server) {
    return server.name === 'filesystem' || server.name === 'fixture';
}

function answerSampling(request) {
    const text = `sampled ${request.params.messages[0].content.text}`;
    return { role: 'assistant', model: 'test-model', stopReason: 'endTurn', content: { type: 'text', text } };
}

/** Fills every plain text field with the message that asked for it. */
function answerElicitation(request) {
    const content = {};
    for (const [name, schema] of Object.entries(request.params.requestedSchema.properties)) {
        const plainText = schema.type === 'string' && !schema.enum && !schema.oneOf && !schema.format;
        if (plainText) content[name] = request.params.message;
    }
    return { action: 'accept', content };
}

const passed = [];
let current = 'start';

async function check(name, body) {
    current = name;
    await body();
    passed.push(name);
}

/** Runs a client script and prints its one line. */
export async function main(body) {
    const watchdog = setTimeout(() => fail(new Error(`no end after ${WATCHDOG_MS} ms`)), WATCHDOG_MS);
    try {
        await body();
    } catch (error) {
        fail(error);
    }
    clearTimeout(watchdog);
    console.log(JSON.stringify({ ok: true, checks: passed }));
    process.exit(0);
}

function fail(error) {
    console.error(`check failed: ${current}\n${error.stack}`);
    process.exit(1);
}

/**
 * One whole session: connect, the checks of that server, a proper end.
 * open() gives { client, version, sessionId, terminate, close }.
 */
export async function checkSession(prefix, server, open) {
    const named = (name, body) => check(prefix + name, body);
    let session;
    await named('connect', async () => {
        session = await open();
        assert.match(session.sessionId, /^[\x21-\x7e]{16,}$/);
        assert.match(session.version, /^2025-/);
    });
    const checks = { everything, filesystem, time, fixture };
    await checks[server.name](named, session.client, server);
    await named('terminate', async () => {
        await session.terminate();
        await session.close();
    });
    await named('session-is-gone', async () => {
        const response = await fetch(server.url, {
            method: 'POST',
            headers: {
                'content-type': 'application/json',
                accept: 'application/json, text/event-stream',
                'mcp-session-id': session.sessionId,
                'mcp-protocol-version': session.version,
            },
            body: JSON.stringify({ jsonrpc: '2.0', id: 'gone', method: 'tools/list' }),
        });
        await response.text();
        assert.equal(response.status, 404);
    });
}

// ---- server-everything ----

async function everything(check, client) {
    const resource = 'demo://resource/dynamic/text/7';
    let tools;

    await check('tools-list', async () => {
        tools = (await client.listTools()).tools.map((tool) => tool.name);
        for (const name of ['echo', 'get-sum', 'trigger-long-running-operation', 'trigger-sampling-request']) {
            assert.ok(tools.includes(name), `${name} is not among ${tools}`);
        }
    });
    await check('prompts-list', async () => {
        const names = (await client.listPrompts()).prompts.map((prompt) => prompt.name);
        assert.deepEqual(names, ['simple-prompt', 'args-prompt', 'completable-prompt', 'resource-prompt']);
    });
    await check('resources-list', async () => {
        const uris = (await client.listResources()).resources.map((entry) => entry.uri);
        assert.ok(uris.includes('demo://resource/static/document/features.md'), `got ${uris}`);
    });
    await check('resource-templates-list', async () => {
        const { resourceTemplates } = await client.listResourceTemplates();
        const templates = resourceTemplates.map((entry) => entry.uriTemplate);
        assert.deepEqual(templates, [
            'demo://resource/dynamic/text/{resourceId}',
            'demo://resource/dynamic/blob/{resourceId}',
        ]);
    });
    await check('echo', async () => {
        const message = 'a "quoted"\nline, ünïcödé and \u2028';
        assert.deepEqual(await texts(client.call('echo', { message })), [`Echo: ${message}`]);
    });
    await check('sum', async () => {
        assert.deepEqual(await texts(client.call('get-sum', { a: 19, b: 23 })), ['The sum of 19 and 23 is 42.']);
    });
    await check('progress', async () => {
        const seen = [];
        const result = client.call(
            'trigger-long-running-operation',
            { duration: 0.8, steps: 4 },
            { onprogress: (progress) => seen.push(progress) },
        );
        assert.deepEqual(await texts(result), [
            'Long running operation completed. Duration: 0.8 seconds, Steps: 4.',
        ]);
        assert.deepEqual(seen, [1, 2, 3, 4].map((progress) => ({ progress, total: 4 })));
    });
    await check('sampling', async () => {
        const [text] = await texts(client.call('trigger-sampling-request', { prompt: 'Tag-1' }));
        const [heading, ...json] = text.split('\n');
        assert.equal(heading, 'LLM sampling result: ');
        assert.deepEqual(JSON.parse(json.join('\n')), {
            role: 'assistant',
            model: 'test-model',
            stopReason: 'endTurn',
            content: { type: 'text', text: 'sampled Resource trigger-sampling-request context: Tag-1' },
        });
    });
    if (tools.includes('trigger-elicitation-request')) {
        await check('elicitation', async () => {
            const [outcome, inputs] = await texts(client.call('trigger-elicitation-request', {}));
            assert.equal(outcome, '✅ User provided the requested information!');
            assert.equal(inputs, 'User inputs:\n- Name: Please provide inputs for the following fields:');
        });
    }
    await check('resource-read', async () => {
        const { contents } = await client.readResource({ uri: resource });
        assert.equal(contents.length, 1);
        assert.equal(contents[0].uri, resource);
        assert.match(contents[0].text, /^Resource 7: This is a plaintext resource created at /);
    });
    await check('resource-unknown', async () => {
        const refused = client.readResource({ uri: 'demo://no/such/resource' });
        await assert.rejects(refused, (error) => error.code === -32602 || error.code === -32002);
    });
    await check('logging-level', async () => {
        assert.deepEqual(await client.setLoggingLevel('info'), {});
    });
    await check('subscribe', async () => {
        assert.deepEqual(await client.subscribeResource({ uri: resource }), {});
        const data = `Received Subscribe Resource request for URI: ${resource} `;
        await received(client, 'notifications/message', (params) => params.data === data);
        // The tool turns updates on and off; the first one is sent at once.
        await client.call('toggle-subscriber-updates', {});
        await received(client, 'notifications/resources/updated', (params) => params.uri === resource);
        await client.call('toggle-subscriber-updates', {});
        assert.deepEqual(await client.unsubscribeResource({ uri: resource }), {});
    });
    await check('prompt-get', async () => {
        const prompt = await client.getPrompt({ name: 'args-prompt', arguments: { city: 'Ulm', state: 'BW' } });
        assert.deepEqual(prompt.messages, [
            { role: 'user', content: { type: 'text', text: "What's weather in Ulm, BW?" } },
        ]);
    });
    await check('completion', async () => {
        const { completion } = await client.complete({
            ref: { type: 'ref/prompt', name: 'completable-prompt' },
            argument: { name: 'name', value: 'A' },
            context: { arguments: { department: 'Engineering' } },
        });
        assert.deepEqual(completion.values, ['Alice']);
    });
    await checkCancel(check, client, 'trigger-long-running-operation', { duration: 4, steps: 40 });
    await check('echo-after-cancel', async () => {
        assert.deepEqual(await texts(client.call('echo', { message: 'still here' })), ['Echo: still here']);
    });
}

// ---- server-filesystem ----

async function filesystem(check, client, { directory }) {
    const inside = mkdtempSync(join(directory, 'client-'));
    const file = join(inside, 'note.txt');

    await check('write', async () => {
        const written = client.call('write_file', { path: file, content: 'first\nsecond\n' });
        assert.deepEqual(await texts(written), [`Successfully wrote to ${file}`]);
        assert.equal(readFileSync(file, 'utf8'), 'first\nsecond\n');
    });
    await check('read', async () => {
        assert.deepEqual(await texts(client.call('read_text_file', { path: file })), ['first\nsecond\n']);
    });
    await check('list', async () => {
        assert.deepEqual(await texts(client.call('list_directory', { path: inside })), ['[FILE] note.txt']);
    });
    await check('edit', async () => {
        const edits = [{ oldText: 'second', newText: 'zweite' }];
        const [difference] = await texts(client.call('edit_file', { path: file, edits }));
        assert.match(difference, /^-second$/m);
        assert.match(difference, /^\+zweite$/m);
        assert.equal(readFileSync(file, 'utf8'), 'first\nzweite\n');
    });
    await check('outside-refused', async () => {
        const result = await client.call('read_text_file', { path: '/etc/hostname' });
        assert.equal(result.isError, true);
        assert.match(result.content[0].text, /^Access denied - path outside allowed directories: /);
    });
    rmSync(inside, { recursive: true });
}

// ---- mcp-server-time ----

async function time(check, client) {
    await check('tools-list', async () => {
        const names = (await client.listTools()).tools.map((tool) => tool.name);
        assert.deepEqual(names.sort(), ['convert_time', 'get_current_time']);
    });
    // Two zones without clock changes, so that the answer is always the same.
    await check('convert', async () => {
        const [text] = await texts(
            client.call('convert_time', {
                source_timezone: 'Asia/Kolkata',
                time: '12:00',
                target_timezone: 'Asia/Kathmandu',
            }),
        );
        const answer = JSON.parse(text);
        const day = answer.source.datetime.slice(0, 10);
        const weekday = new Date(day).toLocaleDateString('en-GB', { weekday: 'long', timeZone: 'UTC' });
        const at = (timezone, clock) => ({
            timezone,
            datetime: `${day}T${clock}`,
            day_of_week: weekday,
            is_dst: false,
        });
        assert.deepEqual(answer, {
            source: at('Asia/Kolkata', '12:00:00+05:30'),
            target: at('Asia/Kathmandu', '12:15:00+05:45'),
            time_difference: '+0.25h',
        });
    });
    await check('unknown-zone-refused', async () => {
        const result = await client.call('get_current_time', { timezone: 'Mars/Olympus' });
        assert.equal(result.isError, true);
    });
}

// ---- our own fixture ----

async function fixture(check, client, { directory }) {
    const ask = async (kind, tag) => JSON.parse((await texts(client.call('ask', { kind, tag })))[0]);

    await check('echo', async () => {
        const text = 'a "quoted"\nline, ünïcödé and \u2028';
        assert.deepEqual(await texts(client.call('echo', { text })), [text]);
    });
    await check('progress', async () => {
        const seen = [];
        const onprogress = ({ progress }) => seen.push(progress);
        await texts(client.call('sleep', { ms: 500, progress_every_ms: 100 }, { onprogress }));
        assert.ok(seen.length >= 2, `progress: ${seen}`);
        assert.deepEqual(seen, [...new Set(seen)].sort((a, b) => a - b), 'progress must increase');
    });
    await check('sampling', async () => {
        const { content } = await ask('sampling', 'tag-sampling');
        assert.match(content.text, /tag-sampling/);
    });
    await check('elicitation', async () => {
        const { action, content } = await ask('elicitation', 'tag-elicitation');
        assert.equal(action, 'accept');
        assert.match(JSON.stringify(content), /tag-elicitation/);
    });
    // roots/list carries nothing to echo, and a gateway may answer it with the
    // scope it locked; either way the directory is what must come back.
    await check('roots', async () => {
        const { roots } = await ask('roots', 'tag-roots');
        assert.deepEqual(roots.map((root) => root.uri), [pathToFileURL(directory).href]);
    });
    await checkCancel(check, client, 'sleep', { ms: 60_000, progress_every_ms: 100 });
    await check('echo-after-cancel', async () => {
        assert.deepEqual(await texts(client.call('echo', { text: 'still here' })), ['still here']);
    });
}

// ---- shared steps ----

/** Starts a long call, waits for a sign of life, cancels it, expects its end at once. */
async function checkCancel(check, client, tool, args) {
    await check('cancel', async () => {
        const cancel = new AbortController();
        const call = client.call(tool, args, {
            signal: cancel.signal,
            onprogress: () => cancel.abort(new Error('cancelled by the test')),
        });
        await assert.rejects(call, /cancelled by the test|abort/i);
        assert.ok(cancel.signal.aborted, 'the call ended before it was cancelled');
    });
}

/** The texts of a successful tool result. */
async function texts(pending) {
    const result = await pending;
    assert.notEqual(result.isError, true, `the tool failed: ${JSON.stringify(result.content)}`);
    return result.content.map((part) => part.text);
}

/** Waits until a notification that matches has arrived. */
async function received(client, method, matches) {
    const deadline = Date.now() + WAIT_MS;
    while (!client.notifications.some((entry) => entry.method === method && matches(entry.params))) {
        assert.ok(Date.now() < deadline, `${method} never came; got ${JSON.stringify(client.notifications)}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
}
