// The trial of the clients: what each real client can do with ringfence. `scripts/trial-clients` runs it.
//
// usage: node trial-clients.mjs RINGFENCE TRIAL RUNS [CLIENT…]
//
// RINGFENCE is the program, TRIAL the directory with the clients (node_modules, venv), in which the trial also works.
// RUNS is how often Claude Code is started to see that its first request has all tools. Prints a table; exits with 1
// if a client could not list, call, or switch off its own tools, if its model read anything but the text of a result, if
// a refused write did not name the fence, if a second session had to download, if the server of a client that was killed
// went on, or if a first request lacked tools.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { AGENTS, runAgent } from './agents.mjs';

const [ringfence, trial, runs, ...only] = process.argv.slice(2);
const parts = path.dirname(fileURLToPath(import.meta.url));
const modules = path.join(trial, 'node_modules');
const work = fs.mkdtempSync(path.join(trial, 'work-'));
const TOOL = 'session_info';
/** The tool of the shell, and what is done with it. */
const SHELL = 'run_terminal_cmd';
const DOWNLOAD = { command: 'npm install --no-audit --no-fund is-number@7.0.0 && echo all-$((40+2))', wait_seconds: 120 };
const AGAIN = { command: 'rm -rf node_modules; npm ci --offline --no-audit --no-fund && echo all-$((40+2))', wait_seconds: 120 };
const REFUSED_PATH = '/etc/ringfence-trial';
const REFUSED = { command: `echo x > ${REFUSED_PATH}` };
/** Seconds without a word of a client, after which its servers are stopped. */
const GRACE = 2;

const say = (line) => console.error(`trial-clients: ${line}`);

function directory(name) {
    const made = path.join(work, name);
    fs.mkdirSync(made, { recursive: true });
    return made;
}

const project = directory('project');
// Agents take the repository around their directory for the project.
execFileSync('git', ['init', '--quiet', project]);
const elsewhere = directory('elsewhere');
/** One home for all gateways of a client, so that a restarted one knows what a user's would. */
const gatewayEnvironment = { PATH: process.env.PATH, HOME: directory('gateway-home') };

let homes = 0;
const newHome = () => directory(`home-${homes++}`);

// ---- gateways ----

/** Starts a gateway far from the project, so that a session is there only if its client said so. */
async function startGateway(...flags) {
    const child = spawn(ringfence, ['serve', '--port', '0', '--json', ...flags], {
        cwd: elsewhere,
        env: gatewayEnvironment,
        stdio: ['ignore', 'pipe', fs.openSync(path.join(work, 'gateway.log'), 'a')],
    });
    const exited = new Promise((resolve) => child.on('exit', resolve));
    const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const { value } = await lines.next();
    const stop = async () => {
        child.kill('SIGTERM');
        await exited;
    };
    return { url: JSON.parse(value).url, stop };
}

/**
 * Stands before a gateway, so that another can take its place at the same address, and so that the trial can say in a
 * client's name that its roots have changed.
 */
async function startProxy(gateway) {
    let { url } = gateway;
    let session;
    const forward = (request, body, response) => {
        const options = { method: request.method, headers: { ...request.headers, host: new URL(url).host } };
        const onward = http.request(new URL(request.url, url), options, (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            answer.pipe(response);
            answer.on('error', () => response.destroy());
        });
        onward.on('error', () => response.destroy());
        response.on('close', () => onward.destroy());
        onward.end(body);
    };
    const proxy = http.createServer(async (request, response) => {
        const body = Buffer.concat(await Array.fromAsync(request));
        if (body.includes('"tools/call"')) session = request.headers['mcp-session-id'];
        forward(request, body, response);
    });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    return {
        url: `http://127.0.0.1:${proxy.address().port}/mcp`,
        leadTo: (gateway) => ({ url } = gateway),
        /** Ends the session of the last call, which must be answered with this status. */
        changeRoots: async (status) => {
            const answer = await fetch(url, {
                method: 'POST',
                headers: {
                    'content-type': 'application/json',
                    accept: 'application/json, text/event-stream',
                    'mcp-session-id': session,
                },
                body: JSON.stringify({ jsonrpc: '2.0', method: 'notifications/roots/list_changed' }),
            });
            assert.equal(answer.status, status);
        },
        close: () => {
            proxy.closeAllConnections();
            proxy.close();
        },
    };
}

// ---- clients ----

function register(home, ...words) {
    const env = { PATH: process.env.PATH, HOME: home };
    return execFileSync(ringfence, ['register', '--client', ...words], { cwd: project, env, encoding: 'utf8' });
}

function versionOf(directory) {
    return JSON.parse(fs.readFileSync(path.join(directory, 'package.json'), 'utf8')).version;
}

/** A coding agent. One without roots tells a server at a URL no directory, so its entry does. */
const agent = (name) => ({
    hasNoRoots: AGENTS[name].hasNoRoots,
    title: AGENTS[name].title,
    version: () => versionOf(path.join(modules, AGENTS[name].package)),
    own: AGENTS[name].own,
    run: (url, between, { tool = TOOL, input = {}, calls = 3 } = {}) => {
        const home = newHome();
        register(home, name, '--url', url, ...(AGENTS[name].hasNoRoots ? ['--scope', project] : []));
        return runAgent({ name, modules, home, directory: project, tool, input, calls, between });
    },
    exclusive: (url) => {
        const home = newHome();
        register(home, name, '--exclusive', ...(AGENTS[name].hasNoRoots ? [] : ['--url', url]));
        return runAgent({ name, modules, home, directory: project, tool: TOOL });
    },
});

/** A library, in a script that calls the tool three times and pauses after the first call. */
const library = (title, version, program, ...first) => ({
    title,
    version,
    run: async (url, between, { tool = TOOL, input = {} } = {}) => {
        const words = [...first, url, project, tool, JSON.stringify(input)];
        const child = spawn(program, words, { cwd: parts, stdio: ['pipe', 'pipe', 'pipe'] });
        // It may have been killed while it paused.
        child.stdin.on('error', () => {});
        let printed = '';
        child.stderr.on('data', (part) => (printed += part));
        const seen = { tools: [], outputs: [], printed: () => printed };
        for await (const line of readline.createInterface({ input: child.stdout })) {
            // Some libraries log here, too.
            if (!line.startsWith('{')) continue;
            const message = JSON.parse(line);
            if (message.paused) {
                await between(() => child.kill('SIGKILL'));
                child.stdin.write('\n');
            } else {
                Object.assign(seen, message);
            }
        }
        return { ...seen, printed };
    },
});

/** The command line of the Inspector, which has one session for each command. */
const inspector = {
    title: 'Inspector (command line)',
    version: () => versionOf(path.join(parts, 'node_modules/@modelcontextprotocol/inspector')),
    run: async (url, _, { tool = TOOL, input = {} } = {}) => {
        const program = path.join(parts, 'node_modules/.bin/mcp-inspector');
        const ask = (...words) => {
            const asked = ['--cli', url, '--transport', 'http', '--header', `Ringfence-Workspace: ${project}`, ...words];
            // It fails with the tool, and prints the result all the same.
            const { stdout, stderr } = spawnSync(program, asked, { encoding: 'utf8' });
            assert(stdout.startsWith('{'), stderr);
            return JSON.parse(stdout);
        };
        const tools = ask('--method', 'tools/list').tools.map(({ name }) => name);
        const words = Object.entries(input).flatMap(([name, value]) => ['--tool-arg', `${name}=${value}`]);
        const { content } = ask('--method', 'tools/call', '--tool-name', tool, ...words);
        return { tools, outputs: [content.map(({ text }) => text).join('')] };
    },
};

function pythonVersion(python, name) {
    const code = `import importlib.metadata as m; print(m.version("${name}"))`;
    return execFileSync(python, ['-c', code], { encoding: 'utf8' }).trim();
}

function libraries() {
    const nodeModules = path.join(parts, 'node_modules/@modelcontextprotocol');
    const python = path.join(parts, 'venv/bin/python');
    const again = path.join(parts, 'client-again.mjs');
    const againPython = path.join(parts, 'client_again.py');
    /** A Python library in an environment of its own: they want different versions of the SDK. */
    const own = (environment, title, name, way) => {
        const python = path.join(trial, `venv-${environment}/bin/python`);
        return library(title, () => pythonVersion(python, name), python, againPython, way);
    };
    return {
        ts1: library('TypeScript SDK 1', () => versionOf(path.join(nodeModules, 'sdk')), process.execPath, again, 'ts1'),
        ts2: library('TypeScript SDK 2', () => versionOf(path.join(nodeModules, 'client')), process.execPath, again, 'ts2'),
        python: library('Python SDK', () => pythonVersion(python, 'mcp'), python, againPython, 'mcp'),
        fastmcp: own('fastmcp', 'fastmcp 2', 'fastmcp', 'fastmcp'),
        fastmcp3: own('fastmcp3', 'fastmcp 3', 'fastmcp', 'fastmcp'),
        fastmcp4: own('fastmcp4', 'fastmcp 4', 'fastmcp', 'fastmcp'),
        'pydantic-ai': own('pydantic-ai', 'pydantic-ai', 'pydantic-ai-slim', 'pydantic-ai'),
        langchain: { ...own('langchain', 'langchain-mcp-adapters', 'langchain-mcp-adapters', 'langchain'), hasNoRoots: true },
        'mcp-use': { ...own('mcp-use', 'mcp-use (Python)', 'mcp-use', 'mcp-use'), hasNoRoots: true },
        'openai-agents': { ...own('openai-agents', 'openai-agents (Python)', 'openai-agents', 'openai-agents'), hasNoRoots: true },
        inspector,
    };
}

// ---- the trial ----

/** The tools that a gateway lists for a client that sends no more than it must. */
async function toolsOf(url) {
    const { tools } = await libraries().ts1.run(url, async () => {});
    return tools;
}

/** Which of these tools a client lists. Agents put the name of the server before each. */
function listedOf(wanted, client, tools) {
    const prefix = client.own ? 'ringfence/' : '';
    return wanted.filter((tool) => tools.includes(`${prefix}${tool}`));
}

const worked = (output) => output?.includes(project) ?? false;

/** What a client does after its session was ended between its first and its second call. */
async function afterEnd(client, flags, end) {
    let gateway = await startGateway('--no-config', ...flags);
    const proxy = await startProxy(gateway);
    let ended = false;
    const { outputs, printed } = await client.run(proxy.url, async () => {
        if (ended) return;
        ended = true;
        await end(proxy, async () => {
            await gateway.stop();
            gateway = await startGateway('--no-config', ...flags);
            proxy.leadTo(gateway);
        });
    });
    proxy.close();
    await gateway.stop();
    if (outputs.length < 2) return '–';
    if (!worked(outputs[0])) say(`${client.title}: no first call: ${outputs[0] ?? printed}`);
    if (worked(outputs[1])) return 'repeats the call';
    say(`${client.title}, after its session ended: ${outputs[1]?.slice(0, 300) ?? printed}`);
    return worked(outputs[2]) ? 'the next call works' : 'no';
}

/** The output of the only call of a run. */
async function once(client, url, input) {
    const { outputs, printed } = await client.run(url, async () => {}, { tool: SHELL, input, calls: 1 });
    return outputs[0] ?? String(printed);
}

/** Whether the model read the text of a result, not its data. Some agents put the text into JSON, as a string. */
const readText = (output) => /session: s-[0-9a-f]+(\n|\\n)workspace: /.test(output ?? '') && !/structuredContent/.test(output);

/** What a second session has to download, after a first one has downloaded it. */
async function secondSession(client, url) {
    for (const name of ['node_modules', 'package.json', 'package-lock.json']) {
        fs.rmSync(path.join(project, name), { recursive: true, force: true });
    }
    fs.writeFileSync(path.join(project, 'package.json'), '{}');
    const control = await once(client, url, AGAIN);
    if (control.includes('all-42')) return 'the control fails: all is there before';
    const first = await once(client, url, DOWNLOAD);
    const second = await once(client, url, AGAIN);
    if (first.includes('all-42') && second.includes('all-42')) return 'downloads nothing';
    say(`${client.title}, first session: ${first.slice(0, 300)}; second: ${second.slice(0, 300)}`);
    return 'no';
}

/** Whether the server of a client that is killed after its first call is stopped. */
async function afterDeath(client) {
    const gateway = await startGateway('--no-config', '--client-grace', String(GRACE));
    const list = () => {
        const listed = execFileSync(ringfence, ['sessions', 'list', '--json'], { env: gatewayEnvironment, encoding: 'utf8' });
        return JSON.parse(listed).sessions.filter((session) => session.gateway === new URL(gateway.url).origin);
    };
    const running = () => list().flatMap(({ workers }) => workers).filter(({ pid }) => pid !== null).length;
    let before = 0;
    await client.run(gateway.url, async (kill) => {
        before = running();
        kill();
    });
    const deadline = Date.now() + 60_000;
    while (running() > 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 200));
    const after = running();
    await gateway.stop();
    return before > 0 && after === 0 ? 'stops' : `no: ${before} ran, ${after} left`;
}

/** The later steps, each with a cell and whether it is as it should be. */
async function laterSteps(client, url, usual) {
    const isText = readText(usual.outputs[0]);
    if (!isText) say(`${client.title} reads: ${usual.outputs[0]?.slice(0, 400)}`);
    const refusal = await once(client, url, REFUSED);
    const isNamed = refusal.includes(`the fence refused ${REFUSED_PATH}`);
    if (!isNamed) say(`${client.title}, a refused write: ${refusal.slice(0, 300)}`);
    const second = await secondSession(client, url);
    const death = client === inspector ? 'ends itself' : await afterDeath(client);
    const isGood = isText && isNamed && second === 'downloads nothing' && !death.startsWith('no');
    return { cells: { text: isText ? 'text' : 'NOT TEXT', refusal: isNamed ? 'names the fence' : 'NO', second, death }, isGood };
}

async function tryClient(client) {
    say(`${client.title} ${client.version()}`);
    // With caches of its own, which the clients before have not filled.
    gatewayEnvironment.HOME = newHome();
    const gateway = await startGateway('--no-config');
    const wanted = await toolsOf(gateway.url);
    const usual = await client.run(gateway.url, async () => {});
    const listed = listedOf(wanted, client, usual.tools);
    const row = { client: client.title, version: client.version() };
    row.lists = `${listed.length} of ${wanted.length}`;
    row.calls = worked(usual.outputs[0]) ? 'yes' : 'no';
    let failed = wanted.length === 0 || listed.length < wanted.length || !worked(usual.outputs[0]);
    if (failed) say(`${client.title}: ${usual.outputs[0] ?? usual.printed}`);
    row.exclusive = '–';
    if (client.exclusive) {
        const { tools } = await client.exclusive(gateway.url);
        const [before, after] = [usual.tools, tools].map((tools) => client.own.filter((own) => tools.includes(own)));
        const rest = tools.filter((tool) => !tool.startsWith('ringfence/'));
        say(`${client.title}: own tools ${before.join(', ')}; with --exclusive the others: ${rest.join(', ')}`);
        row.exclusive = `${before.length} own tools → ${after.length}`;
        failed ||= before.length === 0 || after.length > 0 || rest.length === tools.length;
    }
    if (!failed) {
        const { cells, isGood } = await laterSteps(client, gateway.url, usual);
        Object.assign(row, cells);
        failed = !isGood;
    }
    await gateway.stop();
    if (row.text === undefined) {
        const none = { text: '–', refusal: '–', second: '–', death: '–', restart: '–', terminate: '–', reinit: '–' };
        return { row: { ...row, ...none }, failed };
    }
    if (client === inspector) {
        const always = 'each command is a session';
        return { row: { ...row, restart: always, terminate: always, reinit: always }, failed };
    }
    row.restart = await afterEnd(client, [], (_, restart) => restart());
    const changed = (status, ...flags) =>
        client.hasNoRoots ? 'has no roots' : afterEnd(client, flags, (proxy) => proxy.changeRoots(status));
    row.terminate = await changed(403);
    row.reinit = await changed(404, '--on-roots-change', 'reinit');
    return { row, failed };
}

/** Starts Claude Code often, with four servers that a probe knows, and counts first requests with all tools. */
async function firstRequests() {
    const server = (name, ...words) => ({
        command: [process.execPath, path.join(parts, `node_modules/@modelcontextprotocol/${name}/dist/index.js`), ...words],
    });
    const file = path.join(work, 'four-servers.json');
    const servers = {
        files: { command: ['ringfence', 'workspace'] },
        everything: server('server-everything'),
        memory: { ...server('server-memory'), env: { MEMORY_FILE_PATH: '{storage}/memory.jsonl' }, storage: 'persistent' },
        time: { command: [path.join(parts, 'venv/bin/mcp-server-time')] },
    };
    fs.writeFileSync(file, JSON.stringify({ servers }));
    const gateway = await startGateway('--config', file);
    const home = newHome();
    register(home, 'claude-code', '--url', gateway.url);
    const run = () => runAgent({ name: 'claude-code', modules, home, directory: project, tool: `files_${TOOL}` });
    // A probe is made for each kind of client: let the first run of this one have it made.
    await run();
    const wanted = await toolsOf(gateway.url);
    let complete = 0;
    for (let number = 1; number <= Number(runs); number++) {
        const { tools } = await run();
        const missing = wanted.filter((tool) => !tools.includes(`ringfence/${tool}`));
        if (missing.length === 0) complete += 1;
        else say(`run ${number} lacked ${missing.join(', ')}`);
    }
    await gateway.stop();
    console.log(`\nClaude Code's first request had all ${wanted.length} tools of four servers in ${complete} of ${runs} runs.`);
    return complete === Number(runs);
}

const clients = { ...Object.fromEntries(Object.keys(AGENTS).map((name) => [name, agent(name)])), ...libraries() };
const chosen = only.length > 0 ? only : Object.keys(clients);
const outcomes = [];
for (const name of chosen) {
    // One that fails in an unforeseen way must not take the rows of the others along.
    const failure = (error) => ({ row: { client: clients[name].title, lists: String(error).slice(0, 200) }, failed: true });
    outcomes.push(await tryClient(clients[name]).catch(failure));
}

const COLUMNS = {
    client: 'Client',
    version: 'Version',
    lists: 'Tools',
    calls: 'A call',
    text: 'Its model reads',
    refusal: 'A refused write',
    second: 'Second session',
    death: 'Server, once it is killed',
    exclusive: '`--exclusive`',
    restart: 'After a restart (404)',
    terminate: 'After other roots (403)',
    reinit: 'With `reinit` (404)',
};
console.log(`| ${Object.values(COLUMNS).join(' | ')} |`);
console.log(`|${'---|'.repeat(Object.keys(COLUMNS).length)}`);
for (const { row } of outcomes) console.log(`| ${Object.keys(COLUMNS).map((name) => row[name]).join(' | ')} |`);
const isComplete = !chosen.includes('claude-code') || Number(runs) === 0 || (await firstRequests());
fs.rmSync(work, { recursive: true, force: true });
process.exit(isComplete && outcomes.every(({ failed }) => !failed) ? 0 : 1);
