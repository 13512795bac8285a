//! The normal case: the handshake, answers as JSON and as streams, and the server's own requests.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::wait_until;
use tokio::sync::{Notify, Semaphore};

use crate::conversation::Conversation;
use crate::scripted_server::{Events, SESSION, ScriptedServer, VERSION, document, status};

#[tokio::test]
async fn a_json_answer_arrives_on_one_line_and_later_requests_carry_the_session() {
    let server = ScriptedServer::start(|seen| async move {
        let pretty = serde_json::to_string_pretty(&seen.result(json!({ "tools": [] }))).unwrap();
        (seen.method() == "tools/list").then(|| {
            let mut response = document(&Value::Null);
            *response.body_mut() = pretty.into();
            response
        })
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/list");
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [] } }));
    assert_eq!(client.connection.session_id().as_deref(), Some(SESSION));

    let seen = server.seen();
    let posts: Vec<_> = seen.iter().filter(|seen| seen.verb == "POST").collect();
    assert_eq!(posts[0].header("mcp-session-id"), None);
    assert_eq!(posts[0].header("mcp-protocol-version"), None);
    for later in &posts[1..] {
        assert_eq!(later.header("mcp-session-id"), Some(SESSION));
        assert_eq!(later.header("mcp-protocol-version"), Some(VERSION));
        assert_eq!(later.header("accept"), Some("application/json, text/event-stream"));
        assert_eq!(later.header("content-type"), Some("application/json"));
    }
}

#[tokio::test]
async fn a_stream_brings_messages_and_then_the_answer() {
    let server = ScriptedServer::start(|seen| async move {
        if seen.method() != "tools/call" {
            return None;
        }
        let (mut events, response) = Events::open();
        tokio::spawn(async move {
            events.raw(": hello\r\n\r\nid: a\r\ndata:\r\n\r\n").await;
            events.message(None, &json!({ "jsonrpc": "2.0", "method": "notifications/progress" })).await;
            events.raw("event: other\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"hidden\"}\n\n").await;
            events.raw("data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\ndata: \"result\":{}}\n\n").await;
        });
        Some(response)
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    assert_eq!(client.message().await["method"], "notifications/progress");
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_posted_before_initialize_is_answered_and_initialized_is_taken() {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let server = ScriptedServer::start(move |seen| {
        let gate = Arc::clone(&opened);
        async move {
            if matches!(seen.method(), "initialize" | "notifications/initialized") {
                gate.acquire().await.unwrap().forget();
            }
            None
        }
    })
    .await;
    let mut client = Conversation::open(&server.url);
    client.initialize();
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for id in 1..=20 {
        client.request(id, &format!("call/{id}"));
    }
    wait_until("initialize arrives", async || server.count("POST", "initialize") == 1).await;
    assert_eq!(server.seen().len(), 1);
    gate.add_permits(1);
    assert_eq!(client.message().await["id"], 0);
    let arrived = async || server.count("POST", "notifications/initialized") == 1;
    wait_until("initialized arrives", arrived).await;
    assert_eq!(server.seen().len(), 2);
    gate.add_permits(1);
    let mut open: Vec<u64> = (1..=20).collect();
    for left in (0..20).rev() {
        client.answer_any(&mut open, left).await;
    }
    assert_eq!(server.seen()[2..].iter().filter(|seen| seen.verb == "POST").count(), 20);
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_is_asked_once() {
    let server = ScriptedServer::plain().await;
    let mut client = Conversation::greeted(&server.url).await;
    wait_until("the stream is asked for", async || server.count("GET", "") == 1).await;
    client.request(1, "ping");
    assert!(client.answer(1).await["result"].is_object());
    assert_eq!(server.count("GET", ""), 1);
    assert_eq!(
        server.seen().iter().find(|seen| seen.verb == "GET").unwrap().header("mcp-session-id"),
        Some(SESSION)
    );
}

#[tokio::test]
async fn a_question_of_the_server_reaches_us_and_our_answer_reaches_it() {
    let server = ScriptedServer::start(|seen| async move {
        if seen.verb != "GET" {
            return None;
        }
        let (mut events, response) = Events::open();
        tokio::spawn(async move {
            events.message(None, &json!({ "jsonrpc": "2.0", "id": "q", "method": "roots/list" })).await;
            while events.raw(": alive\n\n").await {
                tokio::task::yield_now().await;
            }
        });
        Some(response)
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    assert_eq!(client.message().await["method"], "roots/list");
    client.send(&json!({ "jsonrpc": "2.0", "id": "q", "result": { "roots": [] } }));
    let answered = async || server.seen().iter().any(|seen| seen.message["result"]["roots"].is_array());
    wait_until("our answer arrives", answered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_run_side_by_side_and_those_beyond_the_bound_wait() {
    let release = Arc::new(Notify::new());
    let released = Arc::clone(&release);
    let server = ScriptedServer::start(move |seen| {
        let released = Arc::clone(&released);
        async move {
            if seen.method() == "tools/call" {
                released.notified().await;
            }
            None
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    for id in 1..=200 {
        client.request(id, "tools/call");
    }
    // A notification overtakes requests that wait for a place.
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    wait_until("as many run as may", async || server.count("POST", "tools/call") == 128).await;
    let overtook = async || server.count("POST", "notifications/roots/list_changed") == 1;
    wait_until("the notification arrives", overtook).await;
    assert_eq!(server.count("POST", "tools/call"), 128);
    let mut open: Vec<u64> = (1..=200).collect();
    for left in (0..200).rev() {
        release.notify_one();
        client.answer_any(&mut open, left).await;
    }
    assert!(open.is_empty());
}

#[tokio::test]
async fn many_notifications_need_few_connections_and_all_arrive() {
    let release = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&release);
    let server = ScriptedServer::start(move |seen| {
        let released = Arc::clone(&released);
        async move {
            if seen.method() == "notifications/a" {
                released.acquire().await.unwrap().forget();
            }
            None
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    for _ in 0..100 {
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/a" }));
    }
    // Calls do not wait for notifications that the server is slow to accept.
    client.request(1, "ping");
    assert_eq!(client.message().await["id"], 1);
    wait_until("some arrive", async || server.count("POST", "notifications/a") == 16).await;
    release.add_permits(100);
    wait_until("all arrive", async || server.count("POST", "notifications/a") == 100).await;
}

#[tokio::test]
async fn a_batch_of_an_old_server_is_taken_apart() {
    let server = ScriptedServer::start(|seen| async move {
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/message" });
        (seen.method() == "ping").then(|| document(&json!([note, seen.result(json!({}))])))
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    assert_eq!(client.message().await["method"], "notifications/message");
    assert_eq!(client.message().await["id"], 1);
}

#[tokio::test]
async fn a_cancelled_call_that_is_never_answered_frees_its_place() {
    let server = ScriptedServer::start(|seen| async move {
        if seen.method() != "tools/call" {
            return None;
        }
        let (mut events, response) = Events::open();
        tokio::spawn(async move { while events.raw(": alive\n\n").await {} });
        Some(response)
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    for id in 1..=128 {
        client.request(id, "tools/call");
    }
    client.request(200, "ping");
    wait_until("all places are taken", async || server.count("POST", "tools/call") == 128).await;
    assert_eq!(server.count("POST", "ping"), 0);
    let params = json!({ "requestId": 5 });
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    assert_eq!(client.message().await["id"], 200);
}

#[tokio::test]
async fn what_comes_before_initialize_is_answered_here() {
    let server = ScriptedServer::plain().await;
    let mut client = Conversation::open(&server.url);
    client.request(7, "server/discover");
    assert_eq!(client.failure(7).await.0, "not_initialized");
    client.greet().await;
    client.request(8, "ping");
    assert!(client.answer(8).await["result"].is_object());
}

#[tokio::test]
async fn a_second_initialize_may_succeed_after_a_first_that_was_refused() {
    let refusals = Arc::new(Semaphore::new(1));
    let server = ScriptedServer::start(move |seen| {
        let refusals = Arc::clone(&refusals);
        async move {
            let refuses = seen.method() == "initialize"
                && refusals.try_acquire().is_ok_and(|permit| {
                    permit.forget();
                    true
                });
            refuses.then(|| status(500))
        }
    })
    .await;
    let mut client = Conversation::open(&server.url);
    client.initialize();
    assert_eq!(client.failure(0).await.0, "upstream_refused");
    client.greet().await;
}
