// Coding agents, by the names that `ringfence register --client` has for them: how each is run
// without an account, once, with a model that is a stand-in (model.mjs).

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { startModel } from './model.mjs';

const WATCHDOG_MS = 240_000;

/**
 * The package that an agent comes in, the program in it, the dialect of its model, its own tools that run
 * commands or touch files, and the words and variables that point it at the model at `url` and let it call `tool` of the
 * server `ringfence`.
 */
export const AGENTS = {
    'claude-code': {
        title: 'Claude Code',
        package: '@anthropic-ai/claude-code',
        // The package's own script would copy this file.
        program: ['@anthropic-ai/claude-code-linux-x64/claude'],
        dialect: 'anthropic',
        own: ['Bash', 'Read', 'Edit', 'Write', 'NotebookEdit', 'Glob', 'Grep', 'Monitor', 'EnterWorktree'],
        run: (url, tool) => ({
            words: ['-p', 'go', '--model', 'claude-sonnet-4-5', '--allowedTools', `mcp__ringfence__${tool}`],
            env: {
                ANTHROPIC_BASE_URL: url,
                ANTHROPIC_API_KEY: 'none',
                CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
            },
        }),
    },
    codex: {
        title: 'Codex',
        package: '@openai/codex',
        program: [process.execPath, '@openai/codex/bin/codex.js'],
        dialect: 'responses',
        hasNoRoots: true,
        own: ['exec_command', 'write_stdin', 'shell', 'shell_command', 'local_shell', 'view_image'],
        run: (url) => ({
            words: [
                'exec',
                '--skip-git-repo-check',
                '-c',
                `model_providers.stand-in={name="stand-in",base_url="${url}/v1",wire_api="responses"}`,
                '-c',
                'model_provider="stand-in"',
                // Without a user to ask, it refuses tools that change something.
                '-c',
                'mcp_servers.ringfence.default_tools_approval_mode="approve"',
                '-m',
                'gpt-5-codex',
                'go',
            ],
            env: {},
        }),
    },
    gemini: {
        title: 'Gemini CLI',
        package: '@google/gemini-cli',
        program: [process.execPath, '@google/gemini-cli/bundle/gemini.js'],
        dialect: 'gemini',
        own: [
            'run_shell_command',
            'read_file',
            'read_many_files',
            'write_file',
            'replace',
            'list_directory',
            'glob',
            'grep_search',
            'search_file_content',
        ],
        run: (url, tool, home) => {
            // With another address, it would take the API key for that of an organisation's gateway.
            const defaults = path.join(home, 'gemini-defaults.json');
            fs.writeFileSync(defaults, JSON.stringify({ security: { auth: { selectedType: 'gemini-api-key' } } }));
            return {
                words: ['-p', 'go', '-m', 'gemini-2.5-flash', '--approval-mode', 'yolo'],
                env: {
                    GOOGLE_GEMINI_BASE_URL: url,
                    GEMINI_API_KEY: 'none',
                    GEMINI_CLI_TRUST_WORKSPACE: 'true',
                    GEMINI_CLI_SYSTEM_DEFAULTS_PATH: defaults,
                },
            };
        },
    },
    qwen: {
        title: 'Qwen Code',
        package: '@qwen-code/qwen-code',
        program: [process.execPath, '@qwen-code/qwen-code/cli.js'],
        dialect: 'chat',
        own: [
            'run_shell_command',
            'monitor',
            'read_file',
            'read_many_files',
            'write_file',
            'edit',
            'list_directory',
            'glob',
            'grep_search',
        ],
        run: (url) => ({
            words: ['-p', 'go', '--approval-mode', 'yolo', '--auth-type', 'openai'],
            env: { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: 'none', OPENAI_MODEL: 'stand-in' },
        }),
    },
    opencode: {
        title: 'opencode',
        package: 'opencode-ai',
        program: ['opencode-linux-x64/bin/opencode'],
        dialect: 'chat',
        own: ['bash', 'read', 'write', 'edit', 'patch', 'apply_patch', 'glob', 'grep', 'list'],
        run: (url) => ({
            words: ['run', '-m', 'stand-in/stand-in', 'go'],
            env: {
                OPENCODE_CONFIG_CONTENT: JSON.stringify({
                    autoupdate: false,
                    share: 'disabled',
                    provider: {
                        'stand-in': {
                            npm: '@ai-sdk/openai-compatible',
                            options: { baseURL: `${url}/v1`, apiKey: 'none' },
                            models: { 'stand-in': { tool_call: true } },
                        },
                    },
                }),
                OPENCODE_DISABLE_AUTOUPDATE: 'true',
                OPENCODE_DISABLE_MODELS_FETCH: 'true',
                OPENCODE_DISABLE_LSP_DOWNLOAD: 'true',
            },
        }),
    },
};

/**
 * Runs the agent `name` of the directory `modules` in `directory`, with the configuration below `home`. Its model calls
 * `tool` of the server `ringfence` with `input` `calls` times, with `between` before every call but the first; that gets
 * a function that kills the agent. Returns the tools of
 * its first request, those of the server as `ringfence/TOOL`, the outputs that it gave its model, and what it printed.
 */
export async function runAgent({ name, modules, home, directory, tool, input, calls = 1, between = async () => {} }) {
    const agent = AGENTS[name];
    const model = await startModel({
        dialect: agent.dialect,
        server: 'ringfence',
        tool,
        input,
        calls,
        between: () => between(() => started.kill('SIGKILL')),
    });
    const { words, env } = agent.run(model.url, tool, home);
    const [program, ...first] = agent.program.map((word) => path.resolve(modules, word));
    const started = spawn(program, [...first, ...words], {
        cwd: directory,
        env: { PATH: process.env.PATH, HOME: home, ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
    });
    let printed = '';
    for (const stream of [started.stdout, started.stderr]) stream.on('data', (part) => (printed += part));
    const watchdog = setTimeout(() => started.kill('SIGKILL'), WATCHDOG_MS);
    const code = await new Promise((resolve) => started.on('close', resolve));
    clearTimeout(watchdog);
    model.close();
    return { tools: model.seen.tools ?? [], outputs: model.seen.outputs, code, printed };
}
