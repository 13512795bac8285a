//! What the gateway itself trusts is in no scope: configuration, tokens, logs, its data, its own program. And a
//! changed configuration widens no fence.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{
    Gateway, GatewayBuilder, NEWEST, RawClient, Reply, fixture_binary, ringfence_binary, wait_until,
    workspace_dir,
};

use super::{assert_refused_with_403, working_directory};
use crate::authentication::{write_certificate, write_private};

const HEADER: &str = "ringfence-workspace";

fn configuration(fence: &Value) -> String {
    json!({"servers": {"x": {"command": [fixture_binary()], "fence": fence}}}).to_string()
}

/// Sends `initialize` for a directory.
async fn ask_for(gateway: &Gateway, directory: &Path) -> Reply {
    let client = gateway.client().with_header(HEADER, directory.to_str().unwrap());
    client.post_initialize(&json!(1), json!({}), NEWEST).await
}

async fn assert_refused(gateway: &Gateway, directory: &Path) {
    let reply = ask_for(gateway, directory).await;
    assert_refused_with_403(&reply, &json!(1));
    let message = reply.json()["error"]["message"].as_str().unwrap();
    assert!(message.contains("not apart"), "{}: {message}", directory.display());
}

async fn assert_served(gateway: &Gateway, directory: &Path) -> RawClient {
    let mut client = gateway.client().with_header(HEADER, directory.to_str().unwrap());
    client.open(json!({}), NEWEST).await;
    client
}

/// A directory with a configuration and a project, and a gateway that was started in the directory.
struct Site {
    directory: PathBuf,
    _kept: testkit::WorkspaceDir,
}

impl Site {
    fn new(name: &str) -> Self {
        let kept = workspace_dir(name);
        let directory = kept.as_ref().canonicalize().unwrap();
        std::fs::create_dir(directory.join("project")).unwrap();
        std::fs::write(directory.join("servers.yaml"), configuration(&json!({}))).unwrap();
        Self { directory, _kept: kept }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn builder(&self) -> GatewayBuilder {
        Gateway::without_command().current_dir(&self.directory).flag("--config").flag("servers.yaml")
    }
}

#[tokio::test]
async fn a_directory_with_the_configuration_is_no_scope() {
    let site = Site::new("reserved-configuration");
    let gateway = site.builder().start().await;
    let warning = gateway.wait_for_log("clients that name no directory are refused").await;
    assert!(warning.contains("servers.yaml") && warning.contains("hint: "), "{warning}");
    assert_refused(&gateway, &site.directory).await;
    assert_refused(&gateway, site.directory.parent().unwrap()).await;
    symlink(&site.directory, site.path("project/link")).unwrap();
    assert_refused(&gateway, &site.path("project/link")).await;
    let reply = gateway.client().post_initialize(&json!(1), json!({}), NEWEST).await;
    assert_refused_with_403(&reply, &json!(1));
    assert_served(&gateway, &site.path("project")).await;
}

/// The finding: the working directory is the scope of clients that name none, and the gateway reads and writes there.
#[tokio::test]
async fn no_session_changes_the_configuration_or_the_log_in_the_working_directory() {
    let site = Site::new("reserved-beside");
    let gateway = site.builder().flag("--audit-log").flag("audit.jsonl").start().await;
    let mut client = gateway.client();
    let opened = client.post_initialize(&json!(1), json!({}), NEWEST).await;
    for (file, text) in
        [("servers.yaml", configuration(&json!({"unfenced": true}))), ("audit.jsonl", String::new())]
    {
        let before = std::fs::read_to_string(site.path(file)).unwrap();
        if let Some(session) = opened.session_id() {
            client.set_session(Some(session), Some(NEWEST));
            client.notify("notifications/initialized", None).await;
            client.call_tool("x_write_file", json!({"path": site.path(file), "text": text})).await;
        }
        let after = std::fs::read_to_string(site.path(file)).unwrap();
        assert!(after.starts_with(&before), "a session has written {file}: {after}");
    }
    let client = assert_served(&gateway, &site.path("project")).await;
    let arguments = json!({"path": site.path("project/file"), "text": "x"});
    assert_eq!(client.call_tool_for_text("x_write_file", arguments).await, "written", "the control");
}

#[tokio::test]
async fn neither_are_directories_with_tokens_logs_secrets_or_data_of_servers() {
    let site = Site::new("reserved-files");
    for directory in ["tokens", "log", "secrets", "data/ringfence-storage/deep"] {
        std::fs::create_dir_all(site.path(directory)).unwrap();
    }
    let server = json!({"command": [fixture_binary()], "envFile": site.path("secrets/env")});
    std::fs::write(site.path("secrets/env"), "A=b\n").unwrap();
    std::fs::write(site.path("servers.yaml"), json!({"servers": {"x": server}}).to_string()).unwrap();
    let gateway = site
        .builder()
        .env("XDG_DATA_HOME", site.path("data"))
        .flag("--audit-log")
        .flag(site.path("log/audit.jsonl"))
        .start()
        .await;
    for directory in ["log", "secrets", "data", "data/ringfence-storage/deep"] {
        assert_refused(&gateway, &site.path(directory)).await;
    }
    assert_served(&gateway, &site.path("tokens")).await;
}

#[tokio::test]
async fn a_link_that_leads_to_the_configuration_is_as_good_as_the_file() {
    let site = Site::new("reserved-link");
    std::fs::create_dir(site.path("etc")).unwrap();
    std::fs::rename(site.path("servers.yaml"), site.path("etc/servers.yaml")).unwrap();
    symlink("../etc/servers.yaml", site.path("project/servers.yaml")).unwrap();
    std::fs::create_dir(site.path("other")).unwrap();
    let gateway = Gateway::without_command()
        .current_dir(&site.directory)
        .flag("--config")
        .flag("project/servers.yaml")
        .start()
        .await;
    for directory in ["project", "etc"] {
        assert_refused(&gateway, &site.path(directory)).await;
    }
    assert_served(&gateway, &site.path("other")).await;
}

/// The finding: a tool of a session adds `unfenced: true` to the file that the gateway reads again.
#[tokio::test]
async fn a_changed_configuration_cannot_take_a_fence_away() {
    let site = Site::new("reserved-reload");
    let mut gateway = site.builder().start().await;
    let outside = site.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let writes_outside = async |gateway: &Gateway| {
        let client = assert_served(gateway, &site.path("project")).await;
        assert_eq!(working_directory_of(&client).await, site.path("project"));
        let arguments = json!({"path": outside.join("file"), "text": "x"});
        let response = client.call_tool("x_write_file", arguments).await;
        client.delete().await;
        response["result"]["isError"] != true
    };
    assert!(!writes_outside(&gateway).await);
    for weaker in [json!({"unfenced": true}), json!({"write": [outside]}), json!({"network": "all"})] {
        std::fs::write(site.path("servers.yaml"), configuration(&weaker)).unwrap();
        wait_until("the change is refused", async || {
            gateway.log().matches("only a start may do").count() > 0
        })
        .await;
        assert!(!writes_outside(&gateway).await, "{weaker}");
    }
    // The control: what does not weaken a fence is taken, and a start takes everything.
    let renamed = json!({"servers": {"y": {"command": [fixture_binary()]}}}).to_string();
    std::fs::write(site.path("servers.yaml"), renamed).unwrap();
    wait_until("the new server is there", async || {
        let client = assert_served(&gateway, &site.path("project")).await;
        let tools = client.request("tools/list", None).await.to_string();
        client.delete().await;
        tools.contains("y_echo")
    })
    .await;
    gateway.terminate().await;
    std::fs::write(site.path("servers.yaml"), configuration(&json!({"write": [outside]}))).unwrap();
    let gateway = site.builder().start().await;
    let client = assert_served(&gateway, &site.path("project")).await;
    let arguments = json!({"path": outside.join("file"), "text": "x"});
    assert_eq!(client.call_tool_for_text("x_write_file", arguments).await, "written");
}

async fn working_directory_of(client: &RawClient) -> PathBuf {
    client.call_tool_for_text("x_working_directory", json!({})).await.into()
}

#[tokio::test]
async fn settings_of_a_home_are_no_scopes_unless_the_operator_names_them() {
    let site = Site::new("reserved-home");
    for directory in ["home/.config/autostart", "home/.local/bin", "home/bin", "home/code"] {
        std::fs::create_dir_all(site.path(directory)).unwrap();
    }
    let builder = || Gateway::builder().env("HOME", site.path("home"));
    let gateway = builder().start().await;
    for directory in ["home/.config", "home/.config/autostart", "home/.local/bin", "home/bin"] {
        let reply = ask_for(&gateway, &site.path(directory)).await;
        assert_refused_with_403(&reply, &json!(1));
    }
    assert_served(&gateway, &site.path("home/code")).await;
    let all_of_home = builder().flag("--allow-scope").flag(site.path("home")).start().await;
    assert_refused_with_403(&ask_for(&all_of_home, &site.path("home/.config")).await, &json!(1));
    let named = builder().flag("--allow-scope").flag(site.path("home/.config/autostart")).start().await;
    let client = assert_served(&named, &site.path("home/.config/autostart")).await;
    assert_eq!(working_directory(&client).await, site.path("home/.config/autostart"));
}

/// The finding: ringfence furnishes the home of a session before each start of its server, which may have left links
/// there.
#[tokio::test]
async fn a_link_in_the_home_of_a_session_leads_nothing_of_the_gateway_outside() {
    let site = Site::new("reserved-links-in-home");
    std::fs::create_dir_all(site.path("home/.config")).unwrap();
    std::fs::write(site.path("home/.gitconfig"), "[user]\n\tname = Ada\n").unwrap();
    std::fs::create_dir(site.path("outside")).unwrap();
    std::fs::write(site.path("outside/file"), "kept").unwrap();
    let gateway = Gateway::builder().env("HOME", site.path("home")).start().await;
    let client = assert_served(&gateway, &site.path("project")).await;
    let first = client.call_tool_for_text("pid", json!({})).await;
    for (path, target) in [(".gitconfig", "outside/file"), (".config/pnpm", "outside")] {
        let arguments = json!({"path": path, "target": site.path(target)});
        assert_eq!(client.call_tool_for_text("link_in_home", arguments).await, "linked");
    }
    client.call_tool("crash", json!({"code": 1})).await;
    // The control: another process runs, so the home was furnished again.
    assert_ne!(client.call_tool_for_text("pid", json!({})).await, "");
    assert_eq!(gateway.counter("worker_restarts").await, 1, "{first}");
    assert_eq!(std::fs::read_to_string(site.path("outside/file")).unwrap(), "kept");
    assert_eq!(std::fs::read_dir(site.path("outside")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_directory_with_a_hard_link_of_the_configuration_is_no_scope() {
    let site = Site::new("reserved-hard-link");
    let gateway = site.builder().start().await;
    assert_served(&gateway, &site.path("project")).await.delete().await;
    std::fs::hard_link(site.path("servers.yaml"), site.path("project/notes.yaml")).unwrap();
    assert_refused(&gateway, &site.path("project")).await;
    std::fs::remove_file(site.path("project/notes.yaml")).unwrap();
    assert_served(&gateway, &site.path("project")).await;
}

/// Every file that `ringfence register` writes.
const FILES_OF_CLIENTS: &[&str] = &[
    ".config/Code/User/mcp.json",
    ".cursor/mcp.json",
    ".claude.json",
    ".claude/settings.json",
    ".config/Claude/claude_desktop_config.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".qwen/settings.json",
    ".config/opencode/opencode.json",
    ".codeium/windsurf/mcp_config.json",
    ".config/zed/settings.json",
    ".junie/mcp/mcp.json",
];

/// People keep such files elsewhere and link to them.
#[tokio::test]
async fn a_directory_with_a_file_that_register_writes_is_no_scope() {
    let kept = workspace_dir("reserved-clients");
    let home = kept.as_ref().canonicalize().unwrap();
    let dotfiles = |place: usize| home.join(format!("dotfiles-{place}"));
    for (place, file) in FILES_OF_CLIENTS.iter().enumerate() {
        std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        std::fs::create_dir(dotfiles(place)).unwrap();
        std::fs::write(dotfiles(place).join("settings"), "{}").unwrap();
        symlink(dotfiles(place).join("settings"), home.join(file)).unwrap();
    }
    std::fs::create_dir(home.join("project")).unwrap();
    let mut builder = Gateway::built_in().flag("--no-config").env("HOME", &home);
    for name in ["XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "QWEN_HOME"] {
        builder = builder.env_remove(name);
    }
    let gateway = builder.current_dir(home.join("project")).start().await;
    for place in 0..FILES_OF_CLIENTS.len() {
        assert_refused(&gateway, &dotfiles(place)).await;
    }
    assert_served(&gateway, &home.join("project")).await;
}

const ALICE: &str = "alices-token-0123456789";

/// A file by which callers are known has a gateway of its own, because every caller then needs a token.
#[tokio::test]
async fn neither_is_a_directory_with_the_tokens_of_callers() {
    let site = Site::new("reserved-tokens");
    std::fs::create_dir(site.path("tokens")).unwrap();
    write_private(&site.path("tokens/file"), &format!("alice:{ALICE}\n"));
    let tokens = site.path("tokens/file");
    let builder = site.builder().flag("--auth-token-file").flag(tokens);
    let gateway = builder.flag("--allow-scope").flag(&site.directory).start().await;
    let ask = async |directory: &str| {
        let client = gateway.client().with_header("authorization", &format!("Bearer {ALICE}"));
        let client = client.with_header(HEADER, site.path(directory).to_str().unwrap());
        client.post_initialize(&json!(1), json!({}), NEWEST).await
    };
    let refused = ask("tokens").await;
    assert_refused_with_403(&refused, &json!(1));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("not apart") && message.contains("tokens/file"), "{message}");
    assert_eq!(ask("project").await.status, 200, "the control");
}

/// Whether a gateway starts whose clients work in this directory, and if not, what it says.
async fn refusal_to_work_in(builder: GatewayBuilder, scope: &Path) -> Option<String> {
    let failed = builder.flag("--sandbox-scope").flag(scope).try_start().await.err()?;
    assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("error: ") && failed.stderr.contains("hint: "), "{}", failed.stderr);
    Some(failed.stderr)
}

#[tokio::test]
async fn a_gateway_does_not_start_in_the_directory_of_a_key_its_state_its_packages_or_its_program() {
    let site = Site::new("reserved-at-start");
    for directory in [
        "certificate",
        "key",
        "tokens",
        "audit-key",
        "program",
        "state/ringfence",
        "home/.local/state/ringfence",
    ] {
        std::fs::create_dir_all(site.path(directory)).unwrap();
    }
    let (certificate, key) = write_certificate(&site.directory);
    std::fs::rename(certificate, site.path("certificate/pem")).unwrap();
    std::fs::rename(key, site.path("key/pem")).unwrap();
    write_private(&site.path("tokens/file"), &format!("alice:{ALICE}\n"));
    write_private(&site.path("audit-key/file"), &"0123456789abcdef".repeat(4));
    std::fs::hard_link(ringfence_binary(), site.path("program/ringfence")).unwrap();
    let builder = || {
        let mut builder = site.builder().binary(site.path("program/ringfence"));
        for (option, file) in [
            ("--tls-cert", "certificate/pem"),
            ("--tls-key", "key/pem"),
            ("--auth-token-file", "tokens/file"),
            ("--audit-log", "audit.jsonl"),
            ("--audit-key", "audit-key/file"),
        ] {
            builder = builder.flag(option).flag(site.path(file));
        }
        let home = builder.env("HOME", site.path("home")).env("XDG_STATE_HOME", site.path("state"));
        home.env("XDG_CACHE_HOME", site.path("caches"))
    };
    let refused = refusal_to_work_in(builder(), &site.path("project")).await;
    assert_eq!(refused, None, "the control, which also makes the directory of packages");
    let packages = site.path("caches/ringfence/packages");
    std::fs::create_dir_all(&packages).unwrap();
    for (directory, named) in [
        ("certificate", "certificate/pem"),
        ("key", "key/pem"),
        ("tokens", "tokens/file"),
        ("audit-key", "audit-key/file"),
        ("program", "program/ringfence"),
        ("state", "state/ringfence"),
        ("home/.local/state", "home/.local/state/ringfence"),
        ("caches", "ringfence's own files"),
        ("caches/ringfence/packages", "ringfence's own files"),
    ] {
        let refused = refusal_to_work_in(builder(), &site.path(directory)).await;
        let refused = refused.unwrap_or_else(|| panic!("a gateway works in {directory}"));
        assert!(refused.contains(named), "{directory}: {refused}");
    }
}

#[tokio::test]
async fn a_bind_mount_of_the_configuration_is_as_good_as_the_file() {
    const BIND: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
    let site = Site::new("reserved-bind-mount");
    for directory in ["etc", "alias", "other"] {
        std::fs::create_dir(site.path(directory)).unwrap();
    }
    std::fs::rename(site.path("servers.yaml"), site.path("etc/servers.yaml")).unwrap();
    let builder = |mounted: &str| {
        let mut words: Vec<OsString> = ["unshare", "--mount", "sh", "-c", BIND, "sh"].map(Into::into).into();
        words.extend([site.path(mounted).into(), site.path("alias").into()]);
        let builder = Gateway::without_command().under(words).current_dir(site.path("project"));
        builder.flag("--config").flag(site.path("etc/servers.yaml"))
    };
    assert_eq!(refusal_to_work_in(builder("other"), &site.path("alias")).await, None, "the control");
    let refused =
        refusal_to_work_in(builder("etc"), &site.path("alias")).await.expect("it is the same directory");
    assert!(refused.contains("not apart") && refused.contains("etc/servers.yaml"), "{refused}");
}
