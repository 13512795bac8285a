//! A user of its own for each principal (`--principal-uids`). These tests need root.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use serde_json::json;
use testkit::{Gateway, GatewayBuilder, ringfence_binary, within_deadline};
use tokio::process::Command;

use super::{ALICE, BOB, Site, fixture};

/// Users that no host has.
const RANGE: &str = "61300-61310";
/// The user of shared servers, and those of the first and the second principal.
const COMMON: u32 = 61_300;
const FIRST: u32 = 61_301;
const SECOND: u32 = 61_302;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not tested: only root can run servers as other users");
    }
    is_root
}

/// A gateway that gives users, whose server may read all projects: the fence that fails.
fn gateway(site: &Site, more: &serde_json::Value) -> GatewayBuilder {
    let readable = [site.project("alice"), site.project("bob")];
    let server =
        json!({"command": fixture()["command"], "fence": {"read": readable}, "storage": "persistent"});
    let mut servers = json!({"box": server});
    servers.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let principals =
        json!({"alice": {"scopes": [site.project("alice")]}, "bob": {"scopes": [site.project("bob")]}});
    site.configure(&json!({"servers": servers, "principals": principals}));
    site.builder().flag("--principal-uids").flag(RANGE).env("XDG_STATE_HOME", site.directory.join("state"))
}

fn give(path: &Path, user: u32, mode: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// What a server answers that is asked for a file.
async fn read(client: &testkit::RawClient, path: &Path) -> String {
    client.call_tool("box_read_file", json!({"path": path})).await.to_string()
}

#[tokio::test]
async fn principals_are_apart_even_where_a_fence_lets_them_read_each_other() {
    if !is_root() {
        return;
    }
    let site = Site::new("users-apart");
    let (of_alice, of_bob) = (site.project("alice"), site.project("bob"));
    give(&of_alice, FIRST, 0o755);
    give(&of_bob, SECOND, 0o755);
    for (name, mode) in [("secret", 0o600), ("public", 0o644)] {
        std::fs::write(of_bob.join(name), format!("{name} of bob")).unwrap();
        give(&of_bob.join(name), SECOND, mode);
    }
    let gateway = gateway(&site, &json!({})).start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let bob = site.open(&gateway, BOB, "bob").await;
    for (client, directory, user) in [(&alice, &of_alice, FIRST), (&bob, &of_bob, SECOND)] {
        let file = directory.join("made");
        let arguments = json!({"path": file, "text": "x"});
        assert_eq!(client.call_tool_for_text("box_write_file", arguments).await, "written");
        let made = file.metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (user, user), "{}", file.display());
    }
    let refused = read(&alice, &of_bob.join("secret")).await;
    assert!(!refused.contains("secret of bob") && refused.contains("Permission denied"), "{refused}");
    let control = read(&alice, &of_bob.join("public")).await;
    assert!(control.contains("public of bob"), "the control: the fence shows it, {control}");
    assert!(read(&bob, &of_bob.join("secret")).await.contains("secret of bob"), "the control: his own");
}

#[tokio::test]
async fn a_principal_has_the_same_user_after_a_restart() {
    if !is_root() {
        return;
    }
    let site = Site::new("users-kept");
    give(&site.project("bob"), FIRST, 0o755);
    give(&site.project("alice"), SECOND, 0o755);
    for _ in 0..2 {
        let mut gateway = gateway(&site, &json!({})).start().await;
        for (token, project) in [(BOB, "bob"), (ALICE, "alice")] {
            let client = site.open(&gateway, token, project).await;
            let arguments = json!({"path": site.project(project).join("made"), "text": "x"});
            assert_eq!(client.call_tool_for_text("box_write_file", arguments).await, "written");
        }
        gateway.terminate().await;
    }
    let users = std::fs::read_to_string(site.directory.join("state/ringfence/principal-uids.json")).unwrap();
    let users: serde_json::Value = serde_json::from_str(&users).unwrap();
    assert_eq!(users, json!({"alice": SECOND, "bob": FIRST}));
}

#[tokio::test]
async fn what_principals_share_runs_as_a_user_of_no_principal() {
    if !is_root() {
        return;
    }
    let site = Site::new("users-shared");
    let open = site.project("shared");
    give(&open, COMMON, 0o755);
    give(&site.project("alice"), FIRST, 0o755);
    let shared =
        json!({"command": fixture()["command"], "lifecycle": "shared", "allowedDirectories": [open]});
    let gateway = gateway(&site, &json!({"all": shared})).start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let arguments = json!({"path": open.join("made"), "text": "x"});
    assert_eq!(alice.call_tool_for_text("all_write_file", arguments).await, "written");
    assert_eq!(open.join("made").metadata().unwrap().uid(), COMMON);
}

#[tokio::test]
async fn a_directory_that_its_user_cannot_write_is_named_with_the_remedy() {
    if !is_root() {
        return;
    }
    let site = Site::new("users-unwritable");
    give(&site.project("alice"), 0, 0o755);
    let gateway = gateway(&site, &json!({})).start().await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let answer = alice.call_tool("box_echo", json!({"text": "x"})).await.to_string();
    assert!(
        answer.contains(&format!("not writable for uid {FIRST}")) && answer.contains("chown"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_built_in_server_and_its_commands_run_as_the_principals_user() {
    if !is_root() {
        return;
    }
    let site = Site::new("users-built-in");
    give(&site.project("alice"), FIRST, 0o755);
    let gateway = Gateway::built_in()
        .flag("--no-config")
        .flag("--auth-token-file")
        .flag(site.tokens())
        .flag("--allow-scope")
        .flag(site.directory.path())
        .flag("--principal-uids")
        .flag(RANGE)
        .env("XDG_STATE_HOME", site.directory.join("state"))
        .env("XDG_CACHE_HOME", site.directory.join("caches"))
        .current_dir(site.directory.join("project"))
        .start()
        .await;
    let alice = site.open(&gateway, ALICE, "alice").await;
    let command = "id -u; id -G; touch made; echo in-home > ~/here && cat ~/here";
    let said = alice.call_tool("run_terminal_cmd", json!({"command": command})).await.to_string();
    assert!(said.contains(&format!("{FIRST}\\n{FIRST}\\nin-home")), "{said}");
    assert_eq!(site.project("alice").join("made").metadata().unwrap().uid(), FIRST);
    let written = alice.call_tool("write_file", json!({"path": "by-tool", "content": "x"})).await;
    assert_ne!(written["result"]["isError"], true, "{written}");
    assert_eq!(site.project("alice").join("by-tool").metadata().unwrap().uid(), FIRST);
}

#[tokio::test]
async fn wrong_ranges_are_refused_with_a_hint() {
    if !is_root() {
        return;
    }
    let site = Site::new("users-ranges");
    let tokens = site.tokens();
    for (range, wanted) in
        [("5", "300000-365535"), ("0-9", "300000-365535"), ("1-9", "has a number of that range")]
    {
        let arguments = ["serve", "--auth-token-file", tokens.to_str().unwrap(), "--principal-uids", range];
        let mut command = Command::new(ringfence_binary());
        command.args(arguments).kill_on_drop(true);
        let output = within_deadline("ringfence exits", command.output()).await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(wanted), "{range}: {text}");
    }
}
