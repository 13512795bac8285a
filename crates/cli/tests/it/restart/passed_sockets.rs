//! Sockets that a service manager passes: they outlive the gateway, so no connection is refused.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use testkit::{FailedStart, Gateway, RawClient, workspace_dir};
use tokio::task::JoinSet;

use super::{Site, open_in, upgraded, works_in};

const ROUNDS: usize = 20;

fn listener(address: &str) -> TcpListener {
    TcpListener::bind(address).unwrap()
}

async fn refused(sockets: &[impl std::os::fd::AsFd], flags: &[&str]) -> String {
    let started = Gateway::builder().flags(flags).passing(sockets).try_start().await;
    let FailedStart { stderr, status, .. } = started.expect_err("it does not start");
    assert!(stderr.contains("hint: ") && status.code() == Some(2), "{stderr}");
    stderr
}

#[tokio::test]
async fn load_of_twenty_restarts_on_a_passed_socket_refuses_no_connection() {
    let site = Site::new("passed");
    let socket = listener("127.0.0.1:0");
    let start = async || site.with_state(Gateway::builder()).passing(&[&socket]).start().await;
    let mut gateway = start().await;
    assert_eq!(gateway.port(), socket.local_addr().unwrap().port());
    let client = open_in(&gateway, &site.project.path).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        let (client, is_over) = (gateway.open().await, Arc::clone(&is_over));
        clients.spawn(call_until(client, is_over));
    }
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            gateway.kill().await;
        } else {
            assert!(gateway.terminate().await.success(), "{}", gateway.log());
        }
        gateway = start().await;
        works_in(&client).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let answered: usize = clients.join_all().await.into_iter().sum();
    assert!(answered > ROUNDS, "{answered}");
    // What was passed once is passed on.
    upgraded(&gateway).await;
    works_in(&client).await;
    gateway.kill().await;
    let refused = tokio::net::TcpStream::connect(socket.local_addr().unwrap()).await;
    assert!(refused.is_ok(), "it waits for the next gateway");
    drop(socket);
}

/// A connection that a killed gateway had accepted may break; but each is accepted by one.
async fn call_until(client: RawClient, is_over: Arc<AtomicBool>) -> usize {
    let mut answered = 0;
    while !is_over.load(Ordering::Relaxed) {
        match client.post_tool_call(&client.next_id(), "echo", json!({"text": "x"})).send().await {
            Ok(reply) if reply.status == 200 => answered += 1,
            Ok(reply) => assert_eq!(reply.status, 503, "{:?}", reply.body),
            Err(error) => assert!(!format!("{error:?}").contains("ConnectionRefused"), "{error:?}"),
        }
    }
    answered
}

#[tokio::test]
async fn sockets_of_both_families_are_served_and_passed_on() {
    let state = workspace_dir("both-families");
    let sockets = [listener("127.0.0.1:0"), listener("[::1]:0")];
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let gateway = Gateway::builder().env("XDG_STATE_HOME", state.path()).passing(&sockets).start().await;
    let directory = format!("ringfence/gateways/127.0.0.1_{}/sessions.db", addresses[0].port());
    assert!(state.join(directory).is_file(), "the state is that of the first address");
    for _ in 0..2 {
        for address in addresses {
            let mut client = RawClient::new(format!("http://{address}/mcp"));
            client.open(json!({}), testkit::NEWEST).await;
            let text = client.call_tool_for_text("environment", json!({})).await;
            assert!(text.contains("RINGFENCE_SCOPE") && !text.contains("LISTEN_"), "{text}");
        }
        upgraded(&gateway).await;
    }
}

#[tokio::test]
async fn an_address_that_is_not_that_of_the_socket_is_refused() {
    let socket = listener("127.0.0.1:0");
    let port = socket.local_addr().unwrap().port().to_string();
    for flags in [["--port", "1"], ["--host", "::1"]] {
        let stderr = refused(&[&socket], &flags).await;
        assert!(stderr.contains("which is not --"), "{stderr}");
    }
    let same = ["--host", "127.0.0.1", "--port", &port, "--ephemeral"];
    Gateway::builder().flags(same).passing(&[&socket]).start().await;
}

#[tokio::test]
async fn what_is_no_listening_tcp_socket_is_refused() {
    let directory = workspace_dir("passed-unix");
    std::env::set_current_dir(directory.path()).unwrap();
    let unix = UnixListener::bind("socket").unwrap();
    assert!(refused(&[&unix], &[]).await.contains("a unix socket"));
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(refused(&[&datagrams], &[]).await.contains("a datagram socket"));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(refused(&[&file], &[]).await.contains("no socket"));
}

#[tokio::test]
async fn the_rules_for_an_address_are_those_of_the_socket() {
    let socket = listener("0.0.0.0:0");
    let started = Gateway::builder().flag("--ephemeral").passing(&[&socket]).try_start().await;
    let stderr = started.expect_err("it does not start").stderr;
    assert!(stderr.contains("--auth-token-file"), "{stderr}");
}

#[tokio::test]
async fn variables_for_another_process_are_ignored() {
    let builder = Gateway::builder().env("LISTEN_PID", "1").env("LISTEN_FDS", "1");
    let gateway = builder.env("LISTEN_FDNAMES", "x").start().await;
    let text = gateway.open().await.call_tool_for_text("environment", json!({})).await;
    assert!(!text.contains("LISTEN_"), "{text}");
}
