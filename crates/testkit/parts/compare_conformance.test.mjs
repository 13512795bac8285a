// Proves that compare_conformance.mjs can fail: each test doctors one thing in
// a copy of a small conformance output and states whether that is admissible.
//
// usage: node --test compare_conformance.test.mjs

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

const root = mkdtempSync(join(tmpdir(), 'compare-conformance-'));
after(() => rmSync(root, { recursive: true }));

/** What a run of the suite leaves behind, cut down to what the tests doctor. */
function sample(port, uuid) {
    const success = (id, details) => ({ id, status: 'SUCCESS', timestamp: new Date().toISOString(), details });
    return {
        'tools-call-simple-text': [
            success('tools-call-simple-text', { result: { content: [{ type: 'text', text: 'as expected' }] } }),
            success('wire-schema-valid', { messagesValidated: 5, violations: [] }),
        ],
        'server-initialize': [
            success('server-initialize', { serverUrl: `http://127.0.0.1:${port}/mcp`, connected: true }),
            success('server-session-id-visible-ascii', { sessionId: uuid }),
        ],
        'dns-rebinding-protection': [
            success('localhost-host-rebinding-rejected', { statusCode: 403, body: { error: 'Invalid Host' } }),
        ],
        'server-session-lifecycle': [success('server-session-delete-accepted', { statusCode: 200 })],
        'server-sse-multiple-streams': [
            success('server-accepts-multiple-post-streams', {
                numStreamsAccepted: 1,
                numSseStreams: 1,
                contentTypes: ['text/event-stream'],
            }),
            success('server-sse-streams-functional', { results: [{ event: { id: '3', data: '' } }] }),
        ],
        'server-sse-polling': [
            { id: 'server-sse-disconnect-resume', status: 'INFO', details: { receivedToolResponse: true } },
        ],
    };
}

function write(name, scenarios) {
    const directory = join(root, name);
    for (const [scenario, checks] of Object.entries(scenarios)) {
        const run = join(directory, `server-${scenario}-2026-01-01T00-00-00-${String(Math.random()).slice(2, 5)}Z`);
        mkdirSync(run, { recursive: true });
        writeFileSync(join(run, 'checks.json'), JSON.stringify(checks));
    }
    return directory;
}

let copies = 0;
function exitCodeWith(doctor) {
    copies += 1;
    const doctored = sample(2000 + copies, '11111111-2222-3333-4444-555555555555');
    doctor(doctored);
    const a = write(`a${copies}`, sample(1000, 'aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'));
    const b = write(`b${copies}`, doctored);
    const script = join(import.meta.dirname, 'compare_conformance.mjs');
    return spawnSync(process.execPath, [script, a, b]).status;
}

const ADMISSIBLE = {
    'other ports, session ids and times': () => {},
    'another 403 body': (run) => (run['dns-rebinding-protection'][0].details.body = 'Forbidden'),
    'DELETE answered with 204': (run) => (run['server-session-lifecycle'][0].details.statusCode = 204),
    'JSON instead of SSE': (run) => {
        const [accepted] = run['server-sse-multiple-streams'];
        Object.assign(accepted.details, { numSseStreams: 0, contentTypes: ['application/json'] });
        run['server-sse-multiple-streams'].pop();
    },
    'a stream really closed and resumed': (run) => {
        const [resume] = run['server-sse-polling'];
        Object.assign(resume, { status: 'SUCCESS', details: { receivedToolResponse: false } });
    },
};

const INADMISSIBLE = {
    'a check that fails': (run) => (run['tools-call-simple-text'][0].status = 'FAILURE'),
    'a check that only warns': (run) => (run['tools-call-simple-text'][0].status = 'WARNING'),
    'a changed text': (run) => (run['tools-call-simple-text'][0].details.result.content[0].text = 'as Expected'),
    'an added field': (run) => (run['tools-call-simple-text'][0].details.result._meta = {}),
    'a lost check': (run) => run['tools-call-simple-text'].pop(),
    'a lost scenario': (run) => delete run['tools-call-simple-text'],
    'an added scenario': (run) => (run['tools-call-audio'] = run['tools-call-simple-text']),
    'a 404 instead of the 403': (run) => (run['dns-rebinding-protection'][0].details.statusCode = 404),
    'DELETE answered with 202': (run) => (run['server-session-lifecycle'][0].details.statusCode = 202),
    'neither JSON nor SSE': (run) => (run['server-sse-multiple-streams'][0].details.contentTypes = ['text/html']),
    'fewer streams accepted': (run) => (run['server-sse-multiple-streams'][0].details.numStreamsAccepted = 0),
    'a streaming check that fails': (run) => (run['server-sse-polling'][0].status = 'FAILURE'),
};

for (const [name, doctor] of Object.entries(ADMISSIBLE)) {
    test(`accepts ${name}`, () => assert.equal(exitCodeWith(doctor), 0));
}
for (const [name, doctor] of Object.entries(INADMISSIBLE)) {
    test(`refuses ${name}`, () => assert.equal(exitCodeWith(doctor), 1));
}
test('refuses to compare nothing with nothing', () => {
    const script = join(import.meta.dirname, 'compare_conformance.mjs');
    mkdirSync(join(root, 'empty'));
    assert.equal(spawnSync(process.execPath, [script, join(root, 'empty'), join(root, 'empty')]).status, 2);
});
