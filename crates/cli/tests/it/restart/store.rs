//! The store on the disk: when it is kept, what it refuses, and that a fence cannot reach it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use testkit::{Gateway, NEWEST, text_of, wait_until};

use super::{Site, open_in, works_in};

#[tokio::test]
async fn a_gateway_on_a_fixed_port_keeps_its_sessions_below_the_state_directory_of_its_user() {
    let mut site = Site::new("default-place");
    let home = site.state.join("home");
    let builder = |port: u16| {
        Gateway::builder().port(port).env("XDG_STATE_HOME", &home).current_dir(&site.project.path)
    };
    let first = builder(0).start().await;
    assert_eq!(first.report().await["store"], "none", "no client would find it again");
    site.port = first.port();
    drop(first);
    let mut gateway = builder(site.port).start().await;
    assert_eq!(gateway.report().await["store"], "healthy");
    let client = open_in(&gateway, &site.project.path).await;
    let place = home.join(format!("ringfence/gateways/127.0.0.1_{}", site.port));
    assert!(place.join("sessions.db").exists(), "{place:?}");
    gateway.kill().await;
    let gateway = builder(site.port).start().await;
    works_in(&client).await;
    drop(gateway);
    let gateway = builder(site.port).flag("--ephemeral").start().await;
    assert_eq!(gateway.report().await["store"], "none");
    assert_eq!(client.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
}

#[tokio::test]
async fn two_gateways_cannot_keep_their_sessions_in_one_place() {
    let mut site = Site::new("two");
    let mut gateway = site.start_fixture().await;
    let other = site.with_state(Gateway::builder()).port(0);
    let refused = other.try_start().await.unwrap_err();
    assert!(refused.stderr.contains("another gateway keeps its sessions in"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    gateway.kill().await;
    site.start_fixture().await;
}

#[tokio::test]
async fn a_damaged_database_costs_the_sessions_and_nothing_else() {
    let mut site = Site::new("damaged");
    let mut gateway = site.start_fixture().await;
    let client = open_in(&gateway, &site.project.path).await;
    // A gateway that ends leaves one file; after a kill, a log beside it would repair this damage.
    gateway.terminate().await;
    fs::write(site.database(), "no database at all ".repeat(1000)).unwrap();
    let gateway = site.start_fixture().await;
    assert!(
        gateway.log().contains("cannot be read") && gateway.log().contains(".damaged-"),
        "{}",
        gateway.log()
    );
    assert_eq!(client.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
    let client = open_in(&gateway, &site.project.path).await;
    drop(gateway);
    let _gateway = site.start_fixture().await;
    works_in(&client).await;
}

#[tokio::test]
async fn a_fence_can_neither_read_nor_be_given_the_store() {
    let mut site = Site::new("reserved");
    let gateway = site.start(Gateway::built_in()).await;
    let mut client = gateway.client();
    client.open(json!({}), NEWEST).await;
    site.project.write("own", "what the session may read");
    let read = async |path: &std::path::Path| {
        client.call_tool("run_terminal_cmd", json!({"command": format!("cat '{}'", path.display())})).await
    };
    assert!(text_of(&read(&site.project.join("own")).await).contains("what the session may read"));
    let database = site.database();
    assert!(fs::read(&database).is_ok(), "the control: outside it can be read");
    let refused = read(&database).await;
    assert!(!refused.to_string().contains("SQLite") && refused["result"]["isError"] == true, "{refused}");
    let named = gateway.client().with_header("ringfence-workspace", &site.state.path().to_string_lossy());
    let refused = named.post_initialize(&json!(1), json!({}), NEWEST).await;
    assert_eq!(refused.status, 403, "{:?}", refused.body);
    assert_eq!(refused.json()["error"]["data"]["reason"], "scope_refused");
}

/// The directory does not exist before the start.
#[tokio::test]
async fn the_first_gateway_in_a_new_directory_hides_it_too() {
    for strictness in ["strict", "open"] {
        let mut site = Site::new("first-start");
        let above = site.state.path().to_owned();
        fs::write(above.join("beside"), "what the operator lets be read").unwrap();
        let builder = Gateway::built_in().flags(["--read-mode", strictness, "--read"]).flag(&above);
        let gateway = site.start(builder).await;
        let mut client = gateway.client();
        client.open(json!({}), NEWEST).await;
        let read = async |path: &std::path::Path| {
            let command = format!("cat '{}'", path.display());
            client.call_tool("run_terminal_cmd", json!({"command": command})).await
        };
        assert!(
            text_of(&read(&above.join("beside")).await).contains("what the operator lets"),
            "the control"
        );
        let database = site.database();
        assert!(fs::read(&database).unwrap().starts_with(b"SQLite"), "the control: outside it can be read");
        let refused = read(&database).await;
        let is_refused = refused["result"]["isError"] == true && !refused.to_string().contains("SQLite");
        assert!(is_refused, "{strictness}: {refused}");
    }
}

#[tokio::test]
async fn a_directory_that_others_may_use_keeps_no_sessions() {
    let site = Site::new("shared-place");
    let place = site.state.join("sessions");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
    let refused = site.with_state(Gateway::builder()).try_start().await.unwrap_err();
    assert!(refused.stderr.contains("other users may use the directory for sessions"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: ") && refused.stderr.contains("chmod 700"), "{}", refused.stderr);
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o755, "it stays as it is");
    fs::set_permissions(&place, PermissionsExt::from_mode(0o700)).unwrap();
    let gateway = site.with_state(Gateway::builder()).start().await;
    assert_eq!(gateway.report().await["store"], "healthy", "the control");
}

#[tokio::test]
async fn a_full_disk_is_named_and_sessions_go_on() {
    // Only root can mount the small file system, in a namespace of the gateway's own.
    let mut site = Site::new("full-disk");
    let place = site.state.join("sessions");
    fs::create_dir(&place).unwrap();
    let script = format!("mount -t tmpfs -o size=100k,mode=700 none '{}' && exec \"$@\"", place.display());
    let under = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(Into::into).to_vec();
    let gateway = site.start(Gateway::builder().under(under)).await;
    let mut clients = Vec::new();
    for number in 0..200 {
        let mut client = gateway.client();
        client.open(json!({}), NEWEST).await;
        clients.push(client);
        if gateway.report().await["store"]["degraded"].is_string() {
            break;
        }
        assert!(number < 199, "the disk is never full");
    }
    let client = clients.last().unwrap();
    assert_eq!(client.call_tool_for_text("echo", json!({"text": "still here"})).await, "still here");
    assert!(gateway.log().contains("sessions cannot be written to the disk"), "{}", gateway.log());
    let pid = gateway.pid().to_string();
    let mut command = std::process::Command::new("nsenter");
    command.args(["--target", &pid, "--mount", "mount", "-o", "remount,size=4m"]).arg(&place);
    assert!(command.status().unwrap().success());
    wait_until("the store is healthy again", async || gateway.report().await["store"] == "healthy").await;
}
