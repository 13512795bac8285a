//! `ringfence config`, `add` and `import`: commands, and the files they write.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{WorkspaceDir, ringfence_binary, workspace_dir};

/// An empty home directory.
pub(crate) struct Home {
    pub(crate) directory: WorkspaceDir,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: workspace_dir("home") }
    }

    /// Runs ringfence with arguments separated by spaces. In the output, `~` replaces the home.
    pub(crate) fn ringfence(&self, line: &str) -> Ended {
        let mut command = Command::new(ringfence_binary());
        command.args(line.split(' ')).env_clear().env("HOME", self.directory.path());
        let Output { status, stdout, stderr } = command.current_dir(self.directory.path()).output().unwrap();
        let text =
            |bytes| String::from_utf8(bytes).unwrap().replace(self.directory.path().to_str().unwrap(), "~");
        Ended { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command that must succeed; returns its output.
    #[track_caller]
    pub(crate) fn succeeds(&self, line: &str) -> String {
        let ended = self.ringfence(line);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{line}: {ended:?}");
        ended.stdout
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.directory.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.directory.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.directory.join(file).exists()
    }

    pub(crate) fn mode(&self, file: &str) -> u32 {
        std::fs::metadata(self.directory.join(file)).unwrap().permissions().mode() & 0o777
    }
}

const OWN: &str = ".config/ringfence/config.yaml";

#[test]
fn a_right_file_is_summed_up() {
    let home = Home::new();
    home.write(
        OWN,
        "servers:\n  files: {command: [ringfence, workspace]}\n  search: {command: [npx, x], env: {SURELY_ABSENT_KEY: \
         \"${SURELY_ABSENT_KEY}\"}}\n  hub: {url: \"https://hub.example\", bearerToken: hunter2}\n  web:\n",
    );
    let hint = "put it into the environment of ringfence or into a file (`secrets`), and write ${NAME}";
    assert_eq!(
        home.succeeds("config check"),
        format!(
            "~/{OWN}:4:50: warning: `bearerToken` is a secret that every reader of this file sees\nhint: {hint}\n~/{OWN}: 4 \
             servers\n  files   local   built in\n  search  remote  command; not set here: SURELY_ABSENT_KEY; cannot \
             start `npx`: no such program\n  hub     remote  url\n  web     remote  disabled: nothing to run is named: add command or url\n"
        )
    );
    let json: Value = serde_json::from_str(&home.succeeds("config check --json")).unwrap();
    assert_eq!(
        (&json["ok"], &json["servers"][1]["missing"][0]),
        (&Value::Bool(true), &"SURELY_ABSENT_KEY".into())
    );
    assert_eq!(json["servers"][1]["missingProgram"], "cannot start `npx`: no such program");
    assert_eq!(
        (&json["servers"][3]["enabled"], &json["warnings"][0]["line"]),
        (&Value::Bool(false), &4.into())
    );
    assert!(!json.to_string().contains("hunter2"));
}

#[test]
fn a_wrong_file_is_told_line_by_line() {
    let home = Home::new();
    home.write("c.yaml", "servers:\n  a: {comand: [x]}\n  b: {command: [x], start: now}\n");
    let ended = home.ringfence("config check c.yaml");
    assert_eq!((ended.code, ended.stderr.as_str()), (1, ""));
    assert_eq!(
        ended.stdout,
        "c.yaml:2:7: unknown key `comand`\nhint: did you mean `command`?\nc.yaml:3:28: `start` cannot be `now`\nhint: choose \
         one of `lazy`, `eager`\n2 errors\n"
    );
    let ended = home.ringfence("config check --json c.yaml");
    let json: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &json["ok"]), (1, &Value::Bool(false)));
    assert_eq!((&json["errors"][1]["line"], &json["errors"][1]["column"]), (&3.into(), &28.into()));
    let absent = home.ringfence("config check");
    assert_eq!(absent.code, 1);
    assert!(absent.stderr.starts_with(&format!("error: cannot read ~/{OWN}: ")), "{absent:?}");
    assert!(absent.stderr.contains("hint: `ringfence add NAME -- COMMAND` begins one"), "{absent:?}");
}

#[test]
fn the_place_the_schema_and_the_reference_are_printed() {
    let home = Home::new();
    assert_eq!(home.succeeds("config path"), format!("~/{OWN}\n"));
    let schema: Value = serde_json::from_str(&home.succeeds("config schema")).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let documentation = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let written = std::fs::read_to_string(documentation).unwrap();
    let printed = home.succeeds("config reference");
    let differs = printed.lines().zip(written.lines()).find(|(printed, written)| printed != written);
    assert_eq!(differs, None, "print it anew: ringfence config reference > docs/configuration.md");
    assert_eq!(printed.len(), written.len());
}

#[test]
fn servers_are_added_and_the_rest_stays() {
    let home = Home::new();
    assert_eq!(home.succeeds("add time -- uvx mcp-server-time"), format!("added `time` to ~/{OWN}\n"));
    assert_eq!((home.mode(OWN), home.mode(".config/ringfence")), (0o600, 0o700));
    let begun = "servers:\n  time:\n    command: [uvx, mcp-server-time]\n";
    assert_eq!(home.read(OWN), begun);
    home.write(OWN, &format!("# mine\n{begun}  # more below\nnames: conflict\n"));
    home.succeeds("add search --env KEY --env MODE=fast --remote -- npx -y @x/search");
    home.succeeds("add docs --url https://docs.example/mcp");
    let search = "  search:\n    command: [npx, -y, \"@x/search\"]\n    env:\n      KEY: \"${KEY}\"\n      MODE: fast\n    \
        executionContext: remote\n";
    let docs = "  docs:\n    url: \"https://docs.example/mcp\"\n";
    assert_eq!(home.read(OWN), format!("# mine\n{begun}  # more below\n{search}{docs}names: conflict\n"));
    let again = home.ringfence("add time -- other");
    assert_eq!(again.code, 1);
    assert_eq!(
        again.stderr,
        format!("error: ~/{OWN}: there is a server `time` already\nhint: --replace overwrites it\n")
    );
    home.succeeds("add time --replace --local -- other");
    assert!(
        home.read(OWN)
            .contains("  time:\n    command: [other]\n    executionContext: local\n  # more below\n")
    );
    assert!(home.succeeds("config check").contains("3 servers"));
}

#[test]
fn what_cannot_be_added_is_told_and_nothing_is_written() {
    let home = Home::new();
    for (line, code, part) in [
        ("add a_b!c -- x", 2, "`a_b!c` cannot be the name of a server"),
        ("add a", 2, "--url"),
        ("add a --url http://x -- y", 2, "cannot be used with"),
        ("add a --url ftp://x", 1, "`url` must begin with https:// or http://"),
        ("add a --env =x -- y", 2, "--env =x"),
        ("add a -- x {session_id}", 1, "hint: write {sessionId}"),
    ] {
        let ended = home.ringfence(line);
        assert_eq!(ended.code, code, "{line}: {ended:?}");
        assert!(ended.stderr.contains(part), "{line}: {ended:?}");
    }
    assert!(!home.has(".config"));
    let shown = home.succeeds("add a --dry-run -- x");
    assert!(shown.contains("+servers:\n+  a:\n+    command: [x]\n") && !home.has(".config"), "{shown}");
}

#[test]
fn servers_of_other_clients_are_taken_over_once() {
    let home = Home::new();
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"time": {"command": "uvx", "args": ["time"]}, "old": {"type": "sse", "url": "https://x.example/sse"},
            "ringfence": {"url": "http://127.0.0.1:3000/mcp"}, "odd": {"command": "x", "env": {"A-B": "c"}}}}"#,
    );
    home.write(
        ".codex/config.toml",
        "[mcp_servers.docs]\nurl = \"https://d.example\"\nbearer_token_env_var = \"D\"\n",
    );
    home.write(".claude.json", r#"{"numStartups": 3, "tipsHistory": {}}"#);
    home.write(
        ".config/Code/User/mcp.json",
        "{\n  // mine\n  \"servers\": {\"time\": {\"type\": \"stdio\", \"command\": \"other\"}}\n}\n",
    );
    let tried = home.ringfence("import --dry-run");
    assert!(tried.code == 0 && tried.stdout.contains("+  docs:\n") && !home.has(OWN), "{tried:?}");
    let told = home.succeeds("import");
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(
        lines,
        [
            "added `time` (~/.config/Code/User/mcp.json)",
            "kept `time`: it is there already (~/.cursor/mcp.json)",
            "skipped `old`: the old HTTP+SSE transport is not supported: ask the server's makers for Streamable HTTP \
         (~/.cursor/mcp.json)",
            "skipped `ringfence`: it is ringfence itself (~/.cursor/mcp.json)",
            "skipped `odd`: `A-B` cannot be the name of a variable (~/.cursor/mcp.json)",
            "added `docs` (~/.codex/config.toml)",
        ]
    );
    assert_eq!(
        home.read(OWN),
        "servers:\n  time:\n    command: [other]\n  docs:\n    url: \"https://d.example\"\n    headers:\n      Authorization: \
         \"Bearer ${D}\"\n"
    );
    let before = home.read(OWN);
    home.succeeds("import --from cursor,codex");
    assert_eq!(home.read(OWN), before);
    let missing = home.ringfence("import --from claude-desktop");
    assert!(missing.code == 1 && missing.stderr.contains("cannot read"), "{missing:?}");
    assert_eq!(Home::new().succeeds("import"), "no servers of other clients were found\n");
}

/// The files of the clients that write neither like Cursor nor like Codex, each with one server and with ringfence as
/// `register` writes it.
#[test]
fn the_servers_of_every_client_that_register_knows_are_imported() {
    let home = Home::new();
    home.write("project/file", "");
    for (client, file, text) in [
        (
            "gemini",
            ".gemini/settings.json",
            r#"{"mcp": {"allowed": []}, "mcpServers": {"gemini": {"httpUrl": "https://g.example", "headers": {"X-Key": "$KEY"}}}}"#,
        ),
        (
            "qwen",
            ".qwen/settings.json",
            r#"{"mcpServers": {"qwen": {"command": "cat", "env": {"KEY": "$KEY"}, "timeout": 15000}}, "$version": 4}"#,
        ),
        (
            "opencode",
            ".config/opencode/opencode.jsonc",
            "{\"mcp\": {\"opencode\": {\"type\": \"local\", \"command\": [\"env\", \"-x\"], \"environment\": {\"A\": \"b\"}}}} // mine",
        ),
        (
            "windsurf",
            ".codeium/windsurf/mcp_config.json",
            r#"{"mcpServers": {"windsurf": {"serverUrl": "https://w.example/mcp"}}}"#,
        ),
        (
            "zed",
            ".config/zed/settings.json",
            r#"{"theme": "x", "context_servers": {"zed": {"source": "custom", "command": "true", "args": [], "env": {}}}}"#,
        ),
        (
            "jetbrains",
            ".junie/mcp/mcp.json",
            r#"{"mcpServers": {"jetbrains": {"command": "sh", "args": ["-x"]}}}"#,
        ),
    ] {
        home.write(file, text);
        home.succeeds(&format!("register --client {client} --stdio --scope project"));
        let told = home.succeeds(&format!("import --from {client}"));
        assert_eq!(
            told,
            format!("added `{client}` (~/{file})\nskipped `ringfence`: it is ringfence itself (~/{file})\n")
        );
    }
    assert_eq!(
        home.read(OWN),
        "servers:\n  gemini:\n    url: \"https://g.example\"\n    headers:\n      X-Key: \"${KEY}\"\n  qwen:\n    \
         command: [cat]\n    env:\n      KEY: \"${KEY}\"\n    timeout: 15.0\n  opencode:\n    command: [env, -x]\n    \
         env:\n      A: b\n  windsurf:\n    url: \"https://w.example/mcp\"\n  zed:\n    command: [\"true\"]\n  jetbrains:\n    \
         command: [sh, -x]\n"
    );
    assert!(home.succeeds("config check").contains("6 servers"));
    let told = home.succeeds("import");
    assert_eq!(told.matches("it is there already").count(), 6, "{told}");
}

/// What a known server needs beyond its command is written and explained. `aggregate/storage.rs` runs the memory server
/// with these fields.
#[test]
fn a_known_server_is_added_with_what_it_needs() {
    let home = Home::new();
    let told = home.succeeds("add memory -- npx -y @modelcontextprotocol/server-memory@2025.11.25");
    assert!(told.contains("storage: persistent, because"), "{told}");
    home.succeeds("add notes --env BASIC_MEMORY_HOME=/srv/notes -- uvx basic-memory mcp");
    home.succeeds("add plain --no-preset -- npx -y @modelcontextprotocol/server-memory");
    home.succeeds("add time -- uvx mcp-server-time");
    let told = home.succeeds("add ssh -- npx -y ssh-mcp --host=h --user=u");
    assert!(told.contains("private keys stay outside"), "{told}");
    let told = home.succeeds("add web -- npx -y @playwright/mcp --no-sandbox");
    assert!(told.contains("unixSockets: true"), "{told}");
    for (server, reason) in [
        ("git -- uvx mcp-server-git", "executionContext: local, because"),
        ("chrome -- npx -y chrome-devtools-mcp@latest", "--chromeArg=--no-sandbox"),
        ("postgres -- npx -y @modelcontextprotocol/server-postgres postgresql://127.0.0.1/db", "over TCP"),
        ("docker -- uvx mcp-server-docker", "all rights of root"),
    ] {
        let told = home.succeeds(&format!("add {server}"));
        assert!(told.contains(reason), "{server}: {told}");
    }
    let text = home.read(OWN);
    for line in [
        "storage: persistent",
        "MEMORY_FILE_PATH",
        "{storage}/memory.jsonl",
        "/srv/notes",
        "{storage}/settings",
        "allowInstallScripts: true",
        "sshAgent: true",
        "unixSockets: true",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(
        text.matches("storage: persistent").count(),
        2,
        "neither the plain nor the unknown one: {text}"
    );
    let checked = home.ringfence("config check");
    assert_eq!(checked.code, 0, "{checked:?}");
}
