//! Misbehaviour from the start, by flags on the fixture's command line.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::workspace_dir;

use crate::stdio_server::StdioServer;

#[tokio::test]
async fn it_can_exit_at_start_with_a_text() {
    let mut server = StdioServer::start(["--exit-at-start", "9", "--stderr", "no licence"]);
    assert_eq!(server.read_stderr_to_end().await, "no licence\n");
    assert_eq!(server.exit_status().await.code(), Some(9));
}

#[tokio::test]
async fn it_can_crash_for_the_first_starts() {
    let directory = workspace_dir("crash-first");
    let counter = directory.join("counter");
    let flags = ["--crash-first-n", counter.to_str().unwrap(), "2"];
    for _ in 0..2 {
        assert_eq!(StdioServer::start(flags).exit_status().await.code(), Some(1));
    }
    assert!(StdioServer::start(flags).initialize("2025-11-25").await.is_object());
}

#[tokio::test]
async fn it_can_start_late() {
    let begun = Instant::now();
    StdioServer::start(["--start-delay-ms", "200"]).initialize("2025-11-25").await;
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn its_version_can_be_capped() {
    let mut server = StdioServer::start(["--version-cap", "2025-03-26"]);
    assert_eq!(server.initialize("2025-11-25").await["protocolVersion"], "2025-03-26");
}

#[tokio::test]
async fn it_logs_starts_and_received_lines_verbatim() {
    let directory = workspace_dir("logs");
    let (starts, messages) = (directory.join("starts"), directory.join("messages"));
    let mut server = StdioServer::start([
        "--start-log",
        starts.to_str().unwrap(),
        "--message-log",
        messages.to_str().unwrap(),
    ]);
    let line = r#"{"jsonrpc" : "2.0", "id": 1.50, "method":"ping"} "#;
    server.write_line(line).await;
    assert_eq!(server.read_line().await.unwrap(), r#"{"jsonrpc":"2.0","id":1.50,"result":{}}"#);
    assert_eq!(std::fs::read_to_string(&messages).unwrap(), format!("{line}\n"));
    assert_eq!(std::fs::read_to_string(&starts).unwrap(), format!("{}\n", server.pid()));
}

#[tokio::test]
async fn it_can_read_without_ever_answering() {
    let mut server = StdioServer::start(["--no-initialize-answer"]);
    server.send_request("initialize", json!({})).await;
    server.close_stdin();
    assert_eq!(server.read_line().await, None);
    assert_eq!(server.exit_status().await.code(), Some(0));
}

#[tokio::test]
async fn an_unknown_flag_is_refused() {
    let mut server = StdioServer::start(["--nonsense"]);
    assert_eq!(server.exit_status().await.code(), Some(2));
}
