//! When the IDE ends, so do its servers on this machine and its session at the gateway.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::{descendants, process_exists, wait_until};

use super::Connected;

/// Starts servers for the IDE and for another client of its session, and returns all pids below `connect`.
async fn start_servers(connected: &mut Connected) -> Vec<u32> {
    let own = connected.ide.call_for_text("local_pid", json!({})).await;
    let others = connected.colleague().call_tool_for_text("local_pid", json!({})).await;
    connected.ide.call_for_text("filesystem_list_dir", json!({})).await;
    assert_ne!(own, others);
    let pids = descendants(connected.ide.pid());
    for pid in [own, others] {
        assert!(pids.contains(&pid.parse().unwrap()), "{pid} in {pids:?}");
    }
    pids
}

async fn nothing_is_left(connected: &Connected, pids: &[u32]) {
    wait_until("all servers have ended", async || pids.iter().all(|pid| !process_exists(*pid))).await;
    let path = format!("/session/{}", connected.proxy.session_id().unwrap());
    let client = connected.gateway.client();
    wait_until("the session has ended", async || client.get_stream(None).path(&path).await.status == 404)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_ide_ends_all_servers_and_the_session() {
    let mut connected = Connected::start("connect-end").await;
    let pids = start_servers(&mut connected).await;
    connected.ide.process.close_stdin();
    assert_eq!(connected.ide.process.exit_status().await.code(), Some(0));
    nothing_is_left(&connected, &pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_all_servers_and_the_session() {
    let mut connected = Connected::start("connect-signal").await;
    let pids = start_servers(&mut connected).await;
    let pid = Pid::from_raw(i32::try_from(connected.ide.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(connected.ide.process.exit_status().await.code(), Some(0));
    nothing_is_left(&connected, &pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_attachment_ends_what_ran_for_it() {
    let mut connected = Connected::start("connect-detached").await;
    let others: u32 = connected.colleague().call_tool_for_text("local_pid", json!({})).await.parse().unwrap();
    let own: u32 = connected.ide.call_for_text("local_pid", json!({})).await.parse().unwrap();
    connected.proxy.cut_attachments();
    wait_until("what ran for others has ended", async || !process_exists(others)).await;
    assert!(process_exists(own), "the control: what runs for the IDE stays");
    connected.attached().await;
    assert_eq!(connected.ide.call_for_text("local_pid", json!({})).await, own.to_string());
}
