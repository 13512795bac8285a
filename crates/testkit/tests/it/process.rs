//! How the fixture ends, what it starts, and where it runs.

use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, getsid, kill_process};
use serde_json::json;
use testkit::{descendants, process_exists, wait_until};

use crate::stdio_server::StdioServer;

fn pid(raw: u32) -> Pid {
    Pid::from_raw(i32::try_from(raw).unwrap()).unwrap()
}

#[tokio::test]
async fn the_end_of_input_ends_the_server() {
    let mut server = StdioServer::initialized().await;
    server.close_stdin();
    assert_eq!(server.exit_status().await.code(), Some(0));
}

#[tokio::test]
async fn a_crash_leaves_its_text_and_no_answer() {
    let mut server = StdioServer::initialized().await;
    server.send_call("crash", &json!({"code": 7, "stderr": "the end"})).await;
    assert_eq!(server.read_line().await, None);
    assert_eq!(server.read_stderr_to_end().await, "the end");
    assert_eq!(server.exit_status().await.code(), Some(7));
}

#[tokio::test]
async fn an_exit_can_come_after_the_answer() {
    let mut server = StdioServer::initialized().await;
    assert_eq!(server.call_for_text("exit_after_answer", json!({"code": 4})).await, "exiting");
    assert_eq!(server.exit_status().await.code(), Some(4));
}

#[tokio::test]
async fn pid_environment_and_directory_are_reported() {
    let mut server = StdioServer::initialized().await;
    let reported = server.call_for_text("pid", json!({})).await;
    assert_eq!(reported, server.pid().to_string());
    let environment = server.call("environment", json!({})).await;
    assert_eq!(environment["structuredContent"]["PATH"], std::env::var("PATH").unwrap());
    let directory = server.call_for_text("working_directory", json!({})).await;
    assert_eq!(directory, std::env::current_dir().unwrap().to_string_lossy());
}

#[tokio::test]
async fn a_spawned_child_is_a_descendant() {
    let mut server = StdioServer::initialized().await;
    let child: u32 = server.call_for_text("spawn_child", json!({})).await.parse().unwrap();
    assert!(descendants(server.pid()).contains(&child));
    kill_process(pid(child), Signal::KILL).unwrap();
    wait_until("the child is gone", async || !process_exists(child)).await;
}

#[tokio::test]
async fn a_spawned_daemon_is_an_orphan_in_a_session_of_its_own() {
    let mut server = StdioServer::initialized().await;
    let daemon: u32 = server.call_for_text("spawn_daemon", json!({})).await.parse().unwrap();
    assert!(process_exists(daemon));
    assert!(!descendants(server.pid()).contains(&daemon));
    assert_eq!(getsid(Some(pid(daemon))).unwrap(), pid(daemon));
    assert_eq!(getpgid(Some(pid(daemon))).unwrap(), pid(daemon));
    kill_process(pid(daemon), Signal::KILL).unwrap();
    wait_until("the daemon is gone", async || !process_exists(daemon)).await;
}

#[tokio::test]
async fn a_stubborn_server_survives_everything_but_sigkill() {
    let mut server = StdioServer::initialized().await;
    assert_eq!(server.call_for_text("ignore_term", json!({})).await, "ignoring");
    let raw_pid = server.pid();
    kill_process(pid(raw_pid), Signal::TERM).unwrap();
    assert_eq!(server.call_for_text("echo", json!({"text": "alive"})).await, "alive");
    server.close_stdin();
    let ended = tokio::time::timeout(Duration::from_millis(300), server.child.wait()).await;
    assert!(ended.is_err(), "it ended: {ended:?}");
    kill_process(pid(raw_pid), Signal::KILL).unwrap();
    server.exit_status().await;
}

#[tokio::test]
async fn a_plain_server_dies_of_sigterm() {
    let mut server = StdioServer::initialized().await;
    kill_process(pid(server.pid()), Signal::TERM).unwrap();
    assert_eq!(server.exit_status().await.code(), None);
}

#[tokio::test]
async fn a_server_that_stopped_reading_neither_answers_nor_ends() {
    let mut server = StdioServer::initialized().await;
    assert_eq!(server.call_for_text("stop_reading", json!({})).await, "no longer reading");
    server.send_call("echo", &json!({"text": "anybody?"})).await;
    let line = tokio::time::timeout(Duration::from_millis(300), server.read_line()).await;
    assert!(line.is_err(), "it answered: {line:?}");
}
