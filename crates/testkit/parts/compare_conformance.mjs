// Compares two output directories of the conformance suite (`-o DIR`): A from
// the reference bridge, B through ringfence. A passing suite proves little,
// because many scenarios accept nearly any answer; equal details prove that
// the gateway changed nothing.
//
// usage: node compare_conformance.mjs DIR_A DIR_B
//
// Prints every difference in `status` and `details`, then one line
//   {"ok":…,"scenarios":…,"checks":…,"admissible":…,"differences":…}
// Exit code 0: at most admissible differences; 1: others; 2: nothing to compare.

import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * The differences that are the transport's own business. Each rule says where
 * (scenario, check and the path within the check), which values, and why.
 * Nothing here excuses a check that fails in B: see `admissibleBecause`.
 */
export const ADMISSIBLE = [
    {
        scenario: 'dns-rebinding-protection',
        check: 'localhost-host-rebinding-rejected',
        path: /^details\.body\b/,
        values: () => true,
        reason: 'the protocol fixes the status 403, not the body that goes with it',
    },
    {
        scenario: 'dns-rebinding-protection',
        check: 'localhost-host-valid-accepted',
        path: /^details\.body\b/,
        values: (a, b) => a === null || b === null,
        reason: 'the suite records the body of a JSON answer and null for an SSE answer',
    },
    {
        scenario: 'server-session-lifecycle',
        check: 'server-session-delete-accepted',
        path: /^details\.statusCode$/,
        values: (a, b) => [200, 204].includes(a) && [200, 204].includes(b),
        reason: 'DELETE may be answered with 200 or 204',
    },
    {
        scenario: 'server-sse-multiple-streams',
        check: 'server-accepts-multiple-post-streams',
        path: /^details\.contentTypes\.\d+$/,
        values: (a, b) => isAnswerType(a) && isAnswerType(b),
        reason: 'a server chooses JSON or SSE for each answer',
    },
    {
        scenario: 'server-sse-multiple-streams',
        check: 'server-accepts-multiple-post-streams',
        path: /^details\.numSseStreams$/,
        values: () => true,
        reason: 'follows from the choice of JSON or SSE; the number accepted is compared',
    },
    {
        scenario: 'server-sse-multiple-streams',
        check: 'server-sse-streams-functional',
        path: /./,
        values: () => true,
        reason: 'looks at the first event of each SSE stream, and not at all at JSON answers',
    },
    {
        scenario: 'server-sse-polling',
        check: /./,
        path: /./,
        values: () => true,
        reason: 'when to close and resume a stream is decided by the HTTP side; the bridge never does',
    },
];

function isAnswerType(value) {
    return /^(application\/json|text\/event-stream)\b/.test(value);
}

/** Values that differ from run to run, replaced before the comparison. */
const MASKED_TEXTS = [
    [/\b(127\.0\.0\.1|localhost|\[::1\]):\d+/g, '<authority>'],
    [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, '<uuid>'],
    [/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)/g, '<time>'],
    [/\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\b/g, '<time>'],
];
const MASKED_KEYS = /^(mcp-session-id|session_?id|sessionIdSent|eventId|lastEventId|last-event-id|timestamp)$/i;

function mask(value) {
    if (typeof value === 'string') {
        return MASKED_TEXTS.reduce((text, [pattern, name]) => text.replace(pattern, name), value);
    }
    if (Array.isArray(value)) return value.map(mask);
    if (value === null || typeof value !== 'object') return value;
    const isMessageOrEvent = 'jsonrpc' in value || 'data' in value;
    const masked = {};
    for (const [key, inner] of Object.entries(value)) {
        const isId = MASKED_KEYS.test(key) || (key === 'id' && isMessageOrEvent);
        masked[key] = isId && inner !== null ? '<id>' : mask(inner);
    }
    return masked;
}

/** Scenario → its checks, in order; a scenario that ran twice counts as two. */
function readScenarios(directory) {
    const files = readdirSync(directory, { recursive: true }).filter((file) => basename(file) === 'checks.json');
    const scenarios = new Map();
    for (const file of files.sort()) {
        const name = basename(dirname(file))
            .replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '')
            .replace(/^server-/, '');
        let unique = name;
        for (let run = 2; scenarios.has(unique); run += 1) unique = `${name} (run ${run})`;
        scenarios.set(unique, JSON.parse(readFileSync(join(directory, file), 'utf8')));
    }
    return scenarios;
}

/** Check id, numbered where it repeats → what is compared. */
function comparable(checks) {
    const byId = new Map();
    for (const { id, status, details } of checks ?? []) {
        let unique = id;
        for (let nth = 2; byId.has(unique); nth += 1) unique = `${id}#${nth}`;
        byId.set(unique, { status, details: mask(details ?? null) });
    }
    return byId;
}

/** Every place where two values differ, as { path, a, b }. */
function differencesBetween(a, b, path) {
    const both = [a, b];
    if (both.some((side) => side === null || typeof side !== 'object') || Array.isArray(a) !== Array.isArray(b)) {
        return Object.is(a, b) ? [] : [{ path, a, b }];
    }
    const keys = new Set(both.flatMap(Object.keys));
    return [...keys].flatMap((key) => differencesBetween(a[key], b[key], path ? `${path}.${key}` : key));
}

/** The reason why a difference is admissible, or undefined. */
function admissibleBecause({ scenario, check, path, a, b, failsInB }) {
    if (failsInB) return undefined;
    const rule = ADMISSIBLE.find(
        (rule) =>
            rule.scenario === scenario.replace(/ \(run \d+\)$/, '') &&
            (rule.check instanceof RegExp ? rule.check.test(check) : rule.check === check) &&
            rule.path.test(path) &&
            rule.values(a, b),
    );
    return rule?.reason;
}

/** Compares two directories; nothing is printed. */
export function compare(directoryA, directoryB) {
    const scenariosA = readScenarios(directoryA);
    const scenariosB = readScenarios(directoryB);
    const outcome = { scenarios: 0, checks: 0, admissible: [], differences: [] };
    for (const scenario of new Set([...scenariosA.keys(), ...scenariosB.keys()])) {
        outcome.scenarios += 1;
        if (!scenariosA.has(scenario) || !scenariosB.has(scenario)) {
            const a = scenariosA.has(scenario) ? 'ran' : 'did not run';
            const b = scenariosB.has(scenario) ? 'ran' : 'did not run';
            outcome.differences.push({ scenario, check: '-', path: 'presence', a, b });
            continue;
        }
        const checksA = comparable(scenariosA.get(scenario));
        const checksB = comparable(scenariosB.get(scenario));
        for (const check of new Set([...checksA.keys(), ...checksB.keys()])) {
            outcome.checks += 1;
            const [a, b] = [checksA.get(check), checksB.get(check)];
            const failsInB = b?.status === 'FAILURE' && a?.status !== 'FAILURE';
            const found = a && b ? differencesBetween(a, b, '') : [{ path: 'presence', a, b }];
            for (const difference of found) {
                const entry = { scenario, check, ...difference, failsInB };
                const reason = admissibleBecause(entry);
                if (reason === undefined) outcome.differences.push(entry);
                else outcome.admissible.push({ ...entry, reason });
            }
        }
    }
    return outcome;
}

function print({ scenario, check, path, a, b, reason }) {
    const kind = reason === undefined ? 'DIFFERENT' : 'admissible';
    console.log(`${kind}: ${scenario} / ${check} / ${path}`);
    console.log(`    A: ${JSON.stringify(a)}`);
    console.log(`    B: ${JSON.stringify(b)}`);
    if (reason !== undefined) console.log(`    ${reason}`);
}

function main([directoryA, directoryB]) {
    if (directoryB === undefined) {
        console.error('usage: node compare_conformance.mjs DIR_A DIR_B');
        return 2;
    }
    const { scenarios, checks, admissible, differences } = compare(directoryA, directoryB);
    if (checks === 0 && differences.length === 0) {
        console.error('compare_conformance: no checks.json in either directory');
        return 2;
    }
    [...admissible, ...differences].forEach(print);
    const ok = differences.length === 0;
    const counts = { scenarios, checks, admissible: admissible.length, differences: differences.length };
    console.log(JSON.stringify({ ok, ...counts }));
    return ok ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    process.exitCode = main(process.argv.slice(2));
}
