//! The end of a connection: nothing continues once it is closed or dropped.

use std::sync::Arc;

use serde_json::json;
use testkit::{wait_until, within_deadline};
use tokio::sync::watch;
use upstream::http::Incoming;

use crate::conversation::Conversation;
use crate::scripted_server::{Events, ScriptedServer};

/// A server whose streams never end by themselves, and the number of open ones.
async fn endless_server() -> (ScriptedServer, watch::Receiver<usize>) {
    let (open, count) = watch::channel(0_usize);
    let open = Arc::new(open);
    let server = ScriptedServer::start(move |seen| {
        let open = Arc::clone(&open);
        async move {
            if seen.verb != "GET" && seen.method() != "tools/call" {
                return None;
            }
            let (mut events, response) = Events::open();
            open.send_modify(|count| *count += 1);
            tokio::spawn(async move {
                while events.raw("id: 1\nretry: 1\ndata:\n\n").await {
                    tokio::task::yield_now().await;
                }
                open.send_modify(|count| *count -= 1);
            });
            Some(response)
        }
    })
    .await;
    (server, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_connection_ends_every_stream_and_the_session() {
    let (server, mut open) = endless_server().await;
    let mut client = Conversation::greeted(&server.url).await;
    for id in 1..=10 {
        client.request(id, "tools/call");
    }
    within_deadline("all streams are open", open.wait_for(|open| *open == 11)).await.unwrap();
    let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    drop(client.connection);
    assert_eq!(within_deadline("the receiver closes", client.incoming.recv()).await, None);
    within_deadline("all streams are closed", open.wait_for(|open| *open == 0)).await.unwrap();
    wait_until("the session is ended", async || server.count("DELETE", "") == 1).await;
    // The tasks of the ten calls and of the stream end, and none of them reconnects.
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    wait_until("the tasks are gone", async || alive() + 11 <= tasks_before).await;
    assert_eq!(server.count("GET", ""), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_session_before_it_returns() {
    let (server, mut open) = endless_server().await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    within_deadline("all streams are open", open.wait_for(|open| *open == 2)).await.unwrap();
    client.connection.close().await;
    assert_eq!(server.count("DELETE", ""), 1);
    assert_eq!(client.next().await, None);
    assert!(!client.connection.send(br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#));
    within_deadline("all streams are closed", open.wait_for(|open| *open == 0)).await.unwrap();
    drop(client);
    assert_eq!(server.count("DELETE", ""), 1);
}

#[tokio::test]
async fn a_server_that_does_not_let_go_delays_the_end_only_a_little() {
    let server = ScriptedServer::start(|seen| async move {
        if seen.verb == "DELETE" {
            std::future::pending::<()>().await;
        }
        None
    })
    .await;
    let client = Conversation::greeted(&server.url).await;
    within_deadline("close returns", client.connection.close()).await;
}

#[tokio::test]
async fn a_listener_that_stops_reading_stops_the_server_and_harms_nobody() {
    let server = ScriptedServer::start(|seen| async move {
        (seen.method() == "tools/call").then(|| {
            let (mut events, response) = Events::open();
            tokio::spawn(async move {
                for _ in 0..1000 {
                    events.message(None, &json!({ "jsonrpc": "2.0", "method": "notifications/a" })).await;
                }
                events.message(None, &json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).await;
            });
            response
        })
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    wait_until("the call arrives", async || server.count("POST", "tools/call") == 1).await;
    let mut heard = 0;
    while let Some(Incoming::Message(line)) = client.next().await {
        heard += 1;
        if line.starts_with(b"{\"id\"") || line.windows(6).any(|window| window == b"result") {
            break;
        }
    }
    assert_eq!(heard, 1001);
}
