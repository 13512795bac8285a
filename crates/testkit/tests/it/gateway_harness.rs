//! The gateway harness, with shell scripts in the gateway's place.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use testkit::{Gateway, WorkspaceDir, descendants, process_exists, wait_until, workspace_dir};

const ANNOUNCE: &str = r#"echo 'starting up'
echo '{"event":"listening","url":"http://127.0.0.1:1/mcp"}'
"#;

fn script(directory: &WorkspaceDir, text: &str) -> PathBuf {
    let path = directory.join("gateway.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_gateway_is_started_with_its_flags_and_watched() {
    let directory = workspace_dir("harness");
    let binary = script(&directory, &format!("{ANNOUNCE}echo \"got $* $MARK\" >&2\nexec sleep 1000"));
    let mut gateway = Gateway::builder()
        .binary(binary)
        .flags(["--extra", "1"])
        .command(["up", "stream"])
        .env("MARK", "marked")
        .start()
        .await;
    assert_eq!(gateway.url(), "http://127.0.0.1:1/mcp");
    let line = gateway.wait_for_log("got").await;
    assert_eq!(line, "got serve --json --host 127.0.0.1 --port 0 --extra 1 -- up stream marked");
    assert_eq!(gateway.terminate().await.code(), None);
    assert!(!process_exists(gateway.pid()));
}

#[tokio::test]
async fn a_gateway_that_refuses_is_reported() {
    let directory = workspace_dir("harness");
    let binary = script(&directory, "echo 'no such flag' >&2\nexit 2");
    let failed = Gateway::builder().binary(binary).try_start().await.unwrap_err();
    assert_eq!((failed.status.code(), failed.stderr.as_str()), (Some(2), "no such flag\n"));
}

#[tokio::test]
async fn dropping_a_gateway_kills_everything_below_it() {
    let directory = workspace_dir("harness");
    let binary = script(&directory, &format!("setsid sleep 1000 &\n{ANNOUNCE}sleep 1000"));
    let gateway = Gateway::builder().binary(binary).start().await;
    let pid = gateway.pid();
    wait_until("both children run", async || descendants(pid).len() == 2).await;
    let below = descendants(pid);
    drop(gateway);
    wait_until("all are gone", async || {
        !process_exists(pid) && below.iter().all(|child| !process_exists(*child))
    })
    .await;
}
