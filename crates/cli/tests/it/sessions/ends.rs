//! Ended sessions leave no process, no directory and no descriptor behind, however many there were.

use serde_json::json;
use testkit::{Gateway, NEWEST, open_descriptors, process_exists, resident_bytes, wait_until};
use tokio::task::JoinSet;

use super::{Site, echoes};

async fn nothing_is_left(site: &Site, descriptors: usize) {
    let gateway = &site.gateway;
    wait_until("no process is left", async || gateway.descendants().is_empty()).await;
    wait_until("no directory is left", async || site.session_files() == 0).await;
    wait_until("all descriptors are closed", async || open_descriptors(gateway.pid()) <= descriptors).await;
    assert_eq!(gateway.open_sessions().await, 0);
}

/// Opens and ends a session, then counts the descriptors: the baseline includes those that are opened once and kept.
async fn warmed_up(site: &Site) -> usize {
    let client = site.gateway.open().await;
    echoes(&client).await;
    client.delete().await;
    wait_until("no process is left", async || site.gateway.descendants().is_empty()).await;
    wait_until("no directory is left", async || site.session_files() == 0).await;
    open_descriptors(site.gateway.pid())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_two_hundred_sessions_at_once_is_answered_and_leaves_nothing() {
    const SESSIONS: usize = 200;
    let site = Site::start("two-hundred", &[]).await;
    let descriptors = warmed_up(&site).await;
    let mut opening = JoinSet::new();
    for _ in 0..SESSIONS {
        let mut client = site.gateway.client();
        opening.spawn(async move {
            client.open(json!({}), NEWEST).await;
            client
        });
    }
    let clients = opening.join_all().await;
    assert_eq!(site.gateway.open_sessions().await, SESSIONS as u64);
    let mut calls = JoinSet::new();
    for (number, client) in clients.iter().cloned().enumerate() {
        calls.spawn(async move {
            let key = json!({"key": "k", "value": number.to_string()});
            client.call_tool_for_text("state_set", key).await;
            let kept = client.call_tool_for_text("state_get", json!({"key": "k"})).await;
            assert_eq!(kept, number.to_string());
        });
    }
    calls.join_all().await;
    // Each session has a supervisor and a server.
    assert_eq!(site.gateway.descendants().len(), 2 * SESSIONS);
    let mut ending = JoinSet::new();
    for client in clients {
        ending.spawn(async move { assert_eq!(client.delete().await.status, 204) });
    }
    ending.join_all().await;
    nothing_is_left(&site, descriptors).await;
    assert_eq!(site.gateway.counter("stray_answers").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_of_a_thousand_sessions_one_after_the_other_leaves_nothing_and_memory_flat() {
    const ROUNDS: usize = 1000;
    let site = Site::start("thousand", &["--log-level", "warn"]).await;
    let descriptors = warmed_up(&site).await;
    let mut memory = Vec::new();
    for round in 0..ROUNDS {
        let client = site.gateway.open().await;
        echoes(&client).await;
        assert_eq!(client.delete().await.status, 204, "round {round}");
        if round % 100 == 99 {
            memory.push(resident_bytes(site.gateway.pid()));
        }
    }
    nothing_is_left(&site, descriptors).await;
    // The first 500 sessions may fill caches; the rest must not add to the memory.
    let grown = memory[9].saturating_sub(memory[4]);
    assert!(grown < 4 * 1024 * 1024, "500 sessions more made it grow by {grown} bytes: {memory:?}");
    assert_eq!(site.gateway.counter("sessions_ended").await, ROUNDS as u64 + 1);
}

#[tokio::test]
async fn a_gateway_that_is_killed_leaves_no_process_and_the_next_one_removes_its_files() {
    let mut site = Site::start("killed", &[]).await;
    let mut below = Vec::new();
    for _ in 0..3 {
        let client = site.gateway.open().await;
        client.call_tool_for_text("ignore_term", json!({})).await;
        client.call_tool_for_text("spawn_daemon", json!({})).await;
    }
    below.extend(site.gateway.descendants());
    assert!(below.len() >= 9, "a supervisor, a server and a daemon each: {below:?}");
    site.gateway.kill().await;
    wait_until("every process is gone", async || !below.iter().any(|&pid| process_exists(pid))).await;
    assert!(site.session_files() > 0, "the control: no gateway was running to remove them");

    site.gateway = Site::gateway(&site.directory, &[]).await;
    wait_until("the files are gone", async || {
        // The probe of the new gateway has a directory while it runs.
        site.session_files() == 0
    })
    .await;
    echoes(&site.gateway.open().await).await;
}

#[tokio::test]
async fn a_killed_gateway_without_fences_is_swept_up_after_by_the_next() {
    let mut first = Gateway::unfenced().start().await;
    let client = first.open().await;
    client.call_tool_for_text("ignore_term", json!({})).await;
    let pid: u32 = client.call_tool_for_text("pid", json!({})).await.parse().unwrap();
    // The control: a new gateway leaves the processes of a running gateway alone.
    let second = Gateway::unfenced().start().await;
    assert!(process_exists(pid));
    first.kill().await;
    // Any gateway that starts from now on kills the process, even one of another test.
    let third = Gateway::unfenced().start().await;
    wait_until("it is gone", async || !process_exists(pid)).await;
    drop((second, third));
}

#[tokio::test]
async fn every_end_has_its_reason() {
    let flags = ["--idle-timeout", "5", "--handshake-timeout", "5", "--max-session-age", "3600"];
    let site = Site::start("reasons", &flags).await;
    let idle = site.gateway.open().await;
    let unfinished = site.gateway.client();
    let reply = unfinished.post_initialize(&json!(1), json!({}), NEWEST).await;
    assert_eq!(reply.status, 200);
    site.gateway.wait_for_log(r#"reason="idle""#).await;
    site.gateway.wait_for_log(r#"reason="never_initialized""#).await;
    wait_until("both are unknown", async || site.gateway.open_sessions().await == 0).await;
    let reply = idle.post_tool_call(&json!(1), "echo", json!({})).await;
    assert_eq!((reply.status.as_u16(), reply.json()["error"]["code"].as_i64()), (404, Some(-32001)));

    let site = Site::start("age", &["--max-session-age", "5"]).await;
    let client = site.gateway.open().await;
    // The open stream keeps the session in use; it expires all the same.
    let _stream = client.get_stream(None).await;
    site.gateway.wait_for_log(r#"reason="expired""#).await;
}

#[tokio::test]
async fn a_shared_server_rests_when_nobody_uses_it_and_comes_back() {
    for lifecycle in ["shared", "workspace"] {
        let site = Site::start("rest", &["--lifecycle", lifecycle, "--idle-stop", "0.2"]).await;
        let client = site.gateway.open().await;
        echoes(&client).await;
        assert!(!site.gateway.descendants().is_empty());
        // Serves as a clock: when this gateway, which has no sessions, stops its server, the idle time has passed.
        let unused = Site::start("unused", &["--lifecycle", lifecycle, "--idle-stop", "0.2"]).await;
        unused.gateway.open().await.delete().await;
        wait_until("the other rests", async || unused.gateway.descendants().is_empty()).await;
        echoes(&client).await;
        assert!(!site.gateway.descendants().is_empty(), "{lifecycle}: a session sits there");
        client.delete().await;
        wait_until("it rests", async || site.gateway.descendants().is_empty()).await;
        echoes(&site.gateway.open().await).await;
    }
}

#[tokio::test]
async fn a_restarted_server_of_a_session_is_told_again_what_the_client_wanted() {
    let site = Site::start("told-again", &[]).await;
    let client = site.gateway.open().await;
    let uri = "test://watched-resource";
    let subscribed = client.request("resources/subscribe", Some(json!({"uri": uri}))).await;
    assert!(subscribed.get("result").is_some(), "{subscribed}");
    let crashed = client.call_tool("crash", json!({"code": 7, "stderr": "boom"})).await;
    assert_eq!(crashed["error"]["data"]["exit_code"], 7, "{crashed}");
    let mut events = client.get_stream(None).await.into_events();
    assert_eq!(client.call_tool_for_text("notify_resource", json!({"uri": uri})).await, "notified");
    assert_eq!(events.next_message().await.unwrap()["params"]["uri"], uri);
    assert_eq!(site.gateway.counter("worker_restarts").await, 1);
}

#[tokio::test]
async fn a_server_that_exceeds_its_memory_is_stopped_and_the_error_names_the_limit() {
    let site = Site::start("memory", &["--memory", "64M"]).await;
    let client = site.gateway.open().await;
    echoes(&client).await;
    let answer = client.call_tool("big", json!({"bytes": 400 * 1024 * 1024})).await;
    let error = &answer["error"];
    assert_eq!(error["data"]["limit"], "memory", "{answer}");
    assert!(error["message"].as_str().unwrap().contains("--memory"), "{answer}");
    echoes(&client).await;
}

#[tokio::test]
async fn clients_that_leave_during_a_probe_do_not_add_up() {
    let flags = ["--start-timeout", "3600", "--max-sessions", "1"];
    let gateway = Gateway::builder().flags(flags).fixture_flags(["--no-initialize-answer"]).start().await;
    wait_until("the first probe runs", async || !gateway.descendants().is_empty()).await;
    let probe = gateway.descendants();
    for number in 0..20 {
        // Some of the clients have equal capabilities, others differ.
        let capabilities = json!({"roots": {}, "elicitation": {}, "experimental": {"n": number % 5}});
        let leaving =
            tokio::spawn(gateway.client().post_initialize(&json!(1), capabilities, NEWEST).into_future());
        wait_until("it was sent", async || gateway.descendants().len() > probe.len() || number > 0).await;
        leaving.abort();
    }
    // At most two probes run at once, each with a supervisor and a server.
    assert!(gateway.descendants().len() <= 4, "{:?}", gateway.descendants());
}
