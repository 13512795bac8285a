//! `ringfence register`: the entries that it writes into the files of clients, and how it removes them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use testkit::{Gateway, PipedProcess, node_binary, parts_dir, ringfence_binary};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::commands::config::Home;
use crate::connect::proxy::Proxy;

const URL: &str = "http://127.0.0.1:3000/mcp";

/// A client with a JSON file, and what `register` writes there.
struct Case {
    client: &'static str,
    /// The other arguments that this client needs.
    arguments: &'static str,
    file: &'static str,
    /// The pointer to the entry.
    pointer: &'static str,
    entry: Value,
}

impl Case {
    fn register(&self) -> String {
        format!("register --client {}{}", self.client, self.arguments)
    }

    fn undo(&self) -> String {
        format!("register --client {} --undo", self.client)
    }
}

fn cases(home: &Home) -> Vec<Case> {
    let own = ringfence_binary();
    let project = home.directory.join("project");
    std::fs::create_dir_all(&project).unwrap();
    let case = |client, arguments, file, pointer, entry| Case { client, arguments, file, pointer, entry };
    let in_project = json!({"command": own, "args": ["stdio", "--scope", project.canonicalize().unwrap()]});
    vec![
        case(
            "vscode",
            "",
            ".config/Code/User/mcp.json",
            "/servers/ringfence",
            json!({"type": "http", "url": URL}),
        ),
        case("cursor", "", ".cursor/mcp.json", "/mcpServers/ringfence", json!({"url": URL})),
        case("claude-code", "", ".claude.json", "/mcpServers/ringfence", json!({"type": "http", "url": URL})),
        case(
            "claude-desktop",
            " --scope project",
            ".config/Claude/claude_desktop_config.json",
            "/mcpServers/ringfence",
            in_project.clone(),
        ),
        case("gemini", "", ".gemini/settings.json", "/mcpServers/ringfence", json!({"httpUrl": URL})),
        case("qwen", "", ".qwen/settings.json", "/mcpServers/ringfence", json!({"httpUrl": URL})),
        case(
            "opencode",
            "",
            ".config/opencode/opencode.json",
            "/mcp/ringfence",
            json!({"type": "remote", "url": URL}),
        ),
        case(
            "windsurf",
            " --scope project",
            ".codeium/windsurf/mcp_config.json",
            "/mcpServers/ringfence",
            in_project.clone(),
        ),
        case(
            "zed",
            "",
            ".config/zed/settings.json",
            "/context_servers/ringfence",
            json!({"command": own, "args": ["stdio"]}),
        ),
        case("jetbrains", " --scope project", ".junie/mcp/mcp.json", "/mcpServers/ringfence", in_project),
    ]
}

#[test]
fn a_file_is_made_and_removed_again() {
    let home = Home::new();
    for case in cases(&home) {
        let (client, file, register) = (case.client, case.file, case.register());
        let tried = home.succeeds(&format!("{register} --dry-run"));
        assert!(tried.contains("+++ ~/") && tried.contains("ringfence") && !home.has(file), "{tried}");
        let said = home.succeeds(&register);
        assert!(said.contains("own shell and file tools stay outside of the fence"), "{client}: {said}");
        let written: Value = serde_json::from_str(&home.read(file)).unwrap();
        assert_eq!((written.pointer(case.pointer), home.mode(file)), (Some(&case.entry), 0o600), "{client}");
        let before = home.read(file);
        assert!(home.succeeds(&register).contains("already"));
        assert_eq!(home.read(file), before);
        home.succeeds(&case.undo());
        assert!(!home.has(file), "{client}: {}", home.read(file));
        assert!(home.succeeds(&case.undo()).contains("has no `ringfence`"));
    }
}

#[test]
fn a_file_that_was_there_is_the_same_to_the_byte_after_undo() {
    let home = Home::new();
    for case in cases(&home) {
        let (client, file) = (case.client, case.file);
        let section = case.pointer.split('/').nth(1).unwrap();
        for text in [
            format!(
                "{{\n  // mine\n  \"z\": [1,   2],\n  \"{section}\": {{\n    \"a\": {{\"command\": \"x\"}}, // why\n  }},\n}}\n"
            ),
            format!("{{\"b\":1,\"{section}\":{{\"a\":{{\"command\":\"x\"}}}},\"a\":2}}"),
            "{}".to_owned(),
            "{\r\n\t\"other\": true\r\n}\r\n".to_owned(),
            format!("{{\"{section}\": {{\"ringfence\": {{\"command\": \"somebody's own\"}}}}}}\n"),
        ] {
            home.write(file, &text);
            let path = home.directory.join(file);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
            home.succeeds(&case.register());
            let now = config_value(&home.read(file));
            assert_eq!(now.pointer(case.pointer), Some(&case.entry), "{client}: {text}");
            assert_eq!(home.mode(file), 0o640);
            assert_eq!(home.mode(&format!("{file}.before-ringfence")), 0o640);
            home.succeeds(&case.undo());
            assert_eq!((home.read(file), home.mode(file)), (text, 0o640), "{client}");
            assert!(!home.has(&format!("{file}.before-ringfence")));
        }
    }
}

/// Parses JSON with comments and trailing commas, which these tests write only at the ends of lines.
fn config_value(text: &str) -> Value {
    let lines = text.lines().map(|line| line.split(" //").next().unwrap().to_owned() + "\n");
    let mut text: String = lines.filter(|line| !line.trim_start().starts_with("//")).collect();
    loop {
        let shorter = text.replace(" }", "}").replace("\n}", "}").replace("\t}", "}").replace(",}", "}");
        if shorter == text {
            return serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        }
        text = shorter;
    }
}

#[test]
fn undo_keeps_what_the_user_changed_since() {
    let home = Home::new();
    let file = ".cursor/mcp.json";
    home.write(file, "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n");
    home.succeeds("register --client cursor");
    home.succeeds("register --client cursor --url http://127.0.0.1:4000/mcp");
    home.write(file, &home.read(file).replace("\"x\"", "\"changed\""));
    home.succeeds("register --client cursor --undo");
    assert_eq!(home.read(file), "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"changed\"}\n  }\n}\n");
}

#[test]
fn codex_has_toml_and_keeps_it() {
    let home = Home::new();
    let text =
        "# mine\nmodel = 'x'  # why\n\n[mcp_servers.a]\ncommand = \"x\"\n\n[profiles.fast]\nmodel = \"y\"\n";
    home.write(".codex/config.toml", text);
    home.succeeds("register --client codex --name gate --url http://127.0.0.1:4000/mcp/w/docs");
    let now = home.read(".codex/config.toml");
    assert!(now.contains("[mcp_servers.gate]\nurl = \"http://127.0.0.1:4000/mcp/w/docs\"\n"), "{now}");
    assert!(text.lines().all(|line| now.contains(line)), "{now}");
    home.succeeds("register --client codex --name gate --undo");
    assert_eq!(home.read(".codex/config.toml"), text);
    let fresh = Home::new();
    fresh.succeeds("register --client codex");
    let own = ringfence_binary();
    assert_eq!(
        fresh.read(".codex/config.toml"),
        format!("[mcp_servers.ringfence]\ncommand = \"{}\"\nargs = [\"stdio\"]\n", own.display())
    );
    fresh.succeeds("register --client codex --undo");
    assert!(!fresh.has(".codex/config.toml"));
}

#[test]
fn a_client_without_roots_gets_no_entry_that_lands_in_the_directory_of_the_gateway() {
    let home = Home::new();
    home.write("project/file", "");
    let project = home.directory.join("project").canonicalize().unwrap();
    for (client, hint) in [("codex", "leave --url out"), ("zed", "--scope DIR"), ("windsurf", "/mcp/w/NAME")]
    {
        let refused = home.ringfence(&format!("register --client {client} --url {URL}"));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(
            refused.stderr.contains("does not tell a server at a URL") && refused.stderr.contains(hint),
            "{refused:?}"
        );
        home.succeeds(&format!("register --client {client} --url {URL} --scope project"));
    }
    for client in ["claude-desktop", "windsurf", "jetbrains"] {
        let refused = home.ringfence(&format!("register --client {client}"));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("hint: ") && refused.stderr.contains("--scope DIR"), "{refused:?}");
    }
    assert!(!home.has(".junie/mcp/mcp.json"));
    let codex = home.read(".codex/config.toml");
    let header = format!("http_headers = {{ Ringfence-Workspace = \"{}\" }}\n", project.display());
    assert!(codex.contains(&header), "{codex}");
    let windsurf: Value = serde_json::from_str(&home.read(".codeium/windsurf/mcp_config.json")).unwrap();
    assert_eq!(
        windsurf["mcpServers"]["ringfence"],
        json!({"serverUrl": URL, "headers": {"Ringfence-Workspace": project}})
    );
    for refused in ["/", "~", "missing"] {
        let scope = if refused == "~" { home.directory.path().to_str().unwrap() } else { refused };
        let ended = home.ringfence(&format!("register --client claude-desktop --scope {scope}"));
        assert_eq!(ended.code, 2, "{refused}: {ended:?}");
        assert!(ended.stderr.contains("error: --scope: ") && ended.stderr.contains("hint: "), "{ended:?}");
    }
}

#[test]
fn headers_tokens_and_connect_are_written_and_a_url_that_is_none_is_refused() {
    let home = Home::new();
    for no_url in ["localhost:3000", "127.0.0.1:3000/mcp", "ftp://host/mcp", "http://", "mcp"] {
        for option in ["--url", "--connect"] {
            let refused = home.ringfence(&format!("register --client cursor {option} {no_url}"));
            assert_eq!(refused.code, 2, "{no_url}: {refused:?}");
            assert!(
                refused.stderr.contains("is not the URL of a gateway") && refused.stderr.contains("hint: "),
                "{refused:?}"
            );
        }
    }
    assert!(!home.has(".cursor/mcp.json"));
    home.write("token", "abcdefghijklmnopqrstuvwxyz0123456789\n");
    let token = home.directory.join("token");
    let readable = home.ringfence("register --client cursor --token-file token");
    assert!(readable.code == 2 && readable.stderr.contains("hint: "), "{readable:?}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = home.succeeds(
        "register --client cursor --url https://gateway.example --header X-Team:blue --token-file token",
    );
    assert!(said.contains("holds the token"), "{said}");
    let written: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    assert_eq!(
        written["mcpServers"]["ringfence"],
        json!({
            "url": "https://gateway.example/mcp",
            "headers": {"Authorization": "Bearer abcdefghijklmnopqrstuvwxyz0123456789", "X-Team": "blue"},
        })
    );
    home.succeeds(
        "register --client opencode --connect https://gateway.example --token-file token --ca token",
    );
    let written: Value = serde_json::from_str(&home.read(".config/opencode/opencode.json")).unwrap();
    let command = json!([
        ringfence_binary(),
        "connect",
        "https://gateway.example/",
        "--token-file",
        token,
        "--ca",
        token
    ]);
    assert_eq!(written["mcp"]["ringfence"], json!({"type": "local", "command": command}));
}

#[tokio::test]
async fn the_gateway_that_runs_is_the_one_that_is_registered() {
    let home = Home::new();
    home.write("project/file", "");
    let gateway = || {
        let builder = Gateway::built_in().env("HOME", home.directory.path());
        builder
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(home.directory.join("project"))
    };
    assert!(home.succeeds("register --client cursor").contains("no gateway of this user is running"));
    let first = gateway().start().await;
    let said = home.succeeds("register --client cursor");
    assert!(!said.contains("no gateway"), "{said}");
    let written: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    assert_eq!(written["mcpServers"]["ringfence"]["url"], first.url());
    let second = gateway().start().await;
    let refused = home.ringfence("register --client cursor");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains(first.url()) && refused.stderr.contains("hint: name one with --url"),
        "{refused:?}"
    );
    home.succeeds(&format!("register --client cursor --url {}", second.url()));
}

/// The command that runs the real Codex in a project with what `register` wrote. Its model calls `session_info` this
/// often, and is a stand-in.
fn codex(home: &Home, calls: &str) -> Command {
    let mut command = Command::new(node_binary());
    command
        .arg(parts_dir().join("client-agent.mjs"))
        .args([OsStr::new("codex"), home.directory.path().as_os_str()])
        .arg(home.directory.join("project"))
        .args(["session_info", calls]);
    command
}

/// Runs Codex, and returns the tools that it offers to its model, and what its model gets from `session_info`.
async fn run_codex(home: &Home) -> (Vec<String>, String) {
    let mut codex = PipedProcess::start(&mut codex(home, "1"));
    outcome_of(&mut codex).await
}

/// The tools that an agent offered, and its last output.
async fn outcome_of(agent: &mut PipedProcess) -> (Vec<String>, String) {
    let Some(line) = agent.read_line().await else {
        let mut log = String::new();
        agent.stderr.read_to_string(&mut log).await.unwrap();
        panic!("{log}");
    };
    let seen: Value = serde_json::from_str(&line).unwrap();
    let texts = |key: &str| -> Vec<String> { serde_json::from_value(seen[key].clone()).unwrap() };
    (texts("tools"), texts("outputs").pop().unwrap())
}

#[tokio::test]
async fn codex_works_in_its_own_project_and_with_exclusive_without_a_shell_of_its_own() {
    let home = Home::new();
    home.write("project/file", "");
    let project = home.directory.join("project").canonicalize().unwrap();
    home.succeeds("register --client codex");
    let (tools, output) = run_codex(&home).await;
    assert!(tools.iter().any(|tool| tool == "ringfence/run_terminal_cmd"), "{tools:?}");
    assert!(tools.iter().any(|tool| tool == "exec_command"), "the control: {tools:?}");
    assert!(output.contains(project.to_str().unwrap()), "{output}");
    home.succeeds("register --client codex --undo");
    // Codex may have left settings of its own.
    let _ = std::fs::remove_file(home.directory.join(".codex/config.toml"));
    home.succeeds("register --client codex --exclusive");
    let (tools, _) = run_codex(&home).await;
    assert!(tools.iter().any(|tool| tool == "ringfence/run_terminal_cmd"), "{tools:?}");
    for own in ["exec_command", "write_stdin", "shell", "shell_command", "view_image"] {
        assert!(!tools.iter().any(|tool| tool == own), "{own}: {tools:?}");
    }
}

/// Codex names no directory to a gateway; the entry does.
#[tokio::test]
async fn codex_at_a_gateway_works_in_the_directory_of_its_entry() {
    let home = Home::new();
    home.write("project/file", "");
    home.write("elsewhere/file", "");
    let gateway = Gateway::built_in().flag("--no-config").current_dir(home.directory.join("elsewhere"));
    let gateway = gateway.start().await;
    home.succeeds(&format!("register --client codex --url {} --scope project", gateway.url()));
    let (_, output) = run_codex(&home).await;
    let project = home.directory.join("project").canonicalize().unwrap();
    assert!(output.contains(project.to_str().unwrap()) && !output.contains("elsewhere"), "{output}");
}

/// Codex connects again without its user.
#[tokio::test]
async fn codex_comes_back_by_itself_after_the_gateway_restarted() {
    let home = Home::new();
    home.write("project/file", "");
    let mut gateway = Gateway::built_in().flag("--no-config").start().await;
    let proxy = Proxy::start(gateway.url()).await;
    home.succeeds(&format!("register --client codex --url {} --scope project", proxy.url()));
    let mut codex = PipedProcess::start(&mut codex(&home, "2"));
    assert_eq!(codex.read().await, json!({"paused": true}), "after the first call");
    gateway.terminate().await;
    let gateway = Gateway::built_in().flag("--no-config").start().await;
    proxy.lead_to(gateway.url());
    codex.write_line("").await;
    let (_, output) = outcome_of(&mut codex).await;
    let project = home.directory.join("project").canonicalize().unwrap();
    assert!(output.contains(project.to_str().unwrap()), "{output}");
}

/// Each client that can switch off its own tools: a file of the user's, and the pointer to a setting there.
const EXCLUSIVE: &[(&str, &str, &str, &str)] = &[
    (
        "claude-code",
        ".claude/settings.json",
        r#"{"permissions":{"deny":["Bash","WebFetch"]}}"#,
        "/permissions/deny",
    ),
    ("gemini", ".gemini/settings.json", r#"{"tools":{"exclude":["google_web_search"]}}"#, "/tools/exclude"),
    (
        "qwen",
        ".qwen/settings.json",
        r#"{"permissions":{"deny":["web_fetch"],"allow":[]}}"#,
        "/permissions/deny",
    ),
    ("opencode", ".config/opencode/opencode.json", r#"{"permission":{"bash":"ask"}}"#, "/permission/bash"),
];

#[test]
fn exclusive_switches_the_clients_own_tools_off_and_undo_switches_them_on_again() {
    for (client, file, text, pointer) in EXCLUSIVE {
        let home = Home::new();
        home.write(file, text);
        let before: Value = serde_json::from_str(text).unwrap();
        let said = home.succeeds(&format!("register --client {client} --exclusive"));
        assert!(said.contains(&format!("its own shell and file tools are off: ~/{file}")), "{said}");
        let now: Value = serde_json::from_str(&home.read(file)).unwrap();
        assert_ne!(now.pointer(pointer), before.pointer(pointer), "{client}: {now}");
        if let (Some(now), Some(before)) =
            (now.pointer(pointer).unwrap().as_array(), before.pointer(pointer).unwrap().as_array())
        {
            assert!(before.iter().all(|item| now.contains(item)), "{client}: {now:?}");
            assert_eq!(
                now.iter().filter(|item| **item == "Bash").count(),
                usize::from(*client == "claude-code")
            );
        }
        assert!(home.succeeds(&format!("register --client {client} --exclusive")).contains("already"));
        let said = home.succeeds(&format!("register --client {client} --undo"));
        assert!(said.contains("its own shell and file tools are on again"), "{said}");
        assert_eq!(home.read(file), *text, "{client}");
        // With another change since, the rest stays.
        home.succeeds(&format!("register --client {client} --exclusive"));
        let changed = home.read(file).replacen('{', "{\"mine\": 1,", 1);
        home.write(file, &changed);
        home.succeeds(&format!("register --client {client} --undo"));
        let now: Value = serde_json::from_str(&home.read(file)).unwrap();
        assert_eq!((now.pointer(pointer), &now["mine"]), (before.pointer(pointer), &json!(1)), "{client}");
        // A file that register made is removed.
        let fresh = Home::new();
        fresh.succeeds(&format!("register --client {client} --exclusive"));
        fresh.succeeds(&format!("register --client {client} --undo"));
        assert!(!fresh.has(file), "{client}: {}", fresh.read(file));
    }
    let home = Home::new();
    let text = "sandbox_mode = \"workspace-write\"\n\n[features]\ngoals = true\n";
    home.write(".codex/config.toml", text);
    home.succeeds("register --client codex --exclusive");
    let now = home.read(".codex/config.toml");
    assert!(now.contains("sandbox_mode = \"read-only\"") && now.contains("shell_tool = false"), "{now}");
    home.succeeds("register --client codex --undo");
    assert_eq!(home.read(".codex/config.toml"), text);
    let refused = home.ringfence("register --client cursor --exclusive");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("has no setting that switches off") && !home.has(".cursor/mcp.json"));
}

/// Denials that are the user's own stay after undo.
#[test]
fn undo_without_exclusive_leaves_the_users_own_denials() {
    let home = Home::new();
    let text = r#"{"permissions":{"deny":["Bash","Read"]}}"#;
    home.write(".claude/settings.json", text);
    home.succeeds("register --client claude-code");
    home.succeeds("register --client claude-code --undo");
    assert_eq!(home.read(".claude/settings.json"), text);
}

#[test]
fn clients_can_start_ringfence_themselves() {
    let home = Home::new();
    home.succeeds("add time -- uvx mcp-server-time");
    home.succeeds("register --client vscode --stdio");
    let written: Value = serde_json::from_str(&home.read(".config/Code/User/mcp.json")).unwrap();
    let configuration = home.directory.join(".config/ringfence/config.yaml");
    let entry =
        json!({"type": "stdio", "command": ringfence_binary(), "args": ["stdio", "--config", configuration]});
    assert_eq!(written["servers"]["ringfence"], entry);
    let refused = home.ringfence("register --client claude-desktop --url http://127.0.0.1:3000/mcp");
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("takes no URL") && refused.stderr.contains("hint: leave --url out"));
}

#[test]
fn another_file_and_links_are_followed() {
    let home = Home::new();
    home.write("dotfiles/mcp.json", "{}\n");
    std::os::unix::fs::symlink("dotfiles/mcp.json", home.directory.join("link.json")).unwrap();
    home.succeeds("register --client cursor --file link.json");
    assert!(home.directory.join("link.json").is_symlink());
    assert!(home.read("dotfiles/mcp.json").contains(URL));
}

#[test]
fn a_broken_file_is_left_alone() {
    let home = Home::new();
    for text in ["{\"mcpServers\": [", "[]", "{\"mcpServers\": 3}"] {
        home.write(".cursor/mcp.json", text);
        let ended = home.ringfence("register --client cursor");
        assert_eq!(ended.code, 1, "{text}: {ended:?}");
        assert!(
            ended.stderr.starts_with("error: ~/.cursor/mcp.json: ") && ended.stderr.contains("hint: "),
            "{ended:?}"
        );
        assert_eq!(home.read(".cursor/mcp.json"), text);
    }
}
