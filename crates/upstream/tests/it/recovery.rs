//! Failures that the transport recovers from: broken streams, forgotten sessions, busy servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use testkit::wait_until;
use tokio::sync::Notify;
use upstream::http::Incoming;

use crate::conversation::Conversation;
use crate::scripted_server::{Events, ScriptedServer, Seen, status};

#[tokio::test]
async fn a_stream_that_breaks_is_taken_up_after_its_last_event() {
    let heard = Arc::new(Notify::new());
    let notified = Arc::clone(&heard);
    let server = ScriptedServer::start(move |seen| {
        let heard = Arc::clone(&notified);
        async move {
            let (mut events, response) = Events::open();
            match (seen.method(), seen.header("last-event-id")) {
                ("tools/call", _) => tokio::spawn(async move {
                    events.raw("id: e1\nretry: 1\ndata: \n\n").await;
                    events
                        .message(Some("e2"), &json!({ "jsonrpc": "2.0", "method": "notifications/a" }))
                        .await;
                    events.break_off(&heard).await;
                }),
                // The server closes the stream once more without sending a message.
                (_, Some("e2")) => tokio::spawn(async move {
                    _ = events.raw("id: e3\ndata:\n\n").await;
                }),
                (_, Some("e3")) => tokio::spawn(async move {
                    events.message(Some("e4"), &json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).await;
                }),
                _ => return None,
            };
            Some(response)
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    assert_eq!(client.message().await["method"], "notifications/a");
    heard.notify_one();
    assert_eq!(client.message().await["id"], 1);
    assert_eq!(server.count("POST", "tools/call"), 1);
}

#[tokio::test]
async fn resuming_survives_a_server_that_is_away_for_a_while() {
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&failures);
    let server = ScriptedServer::start(move |seen| {
        let failures = Arc::clone(&counted);
        async move {
            let (mut events, response) = Events::open();
            match (seen.method(), seen.header("last-event-id")) {
                ("tools/call", _) => tokio::spawn(async move {
                    events.raw("id: e1\nretry: 1\ndata: \n\n").await;
                }),
                (_, Some(_)) if failures.fetch_add(1, Ordering::SeqCst) < 2 => return Some(status(502)),
                (_, Some(_)) => tokio::spawn(async move {
                    events.message(None, &json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).await;
                }),
                _ => return None,
            };
            Some(response)
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    assert!(client.message().await["result"].is_object());
    assert_eq!(failures.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_that_breaks_without_event_ids_is_answered_with_an_error() {
    let heard = Arc::new(Notify::new());
    let notified = Arc::clone(&heard);
    let server = ScriptedServer::start(move |seen| {
        let heard = Arc::clone(&notified);
        async move {
            (seen.method() == "tools/call").then(|| {
                let (mut events, response) = Events::open();
                tokio::spawn(async move {
                    events.message(None, &json!({ "jsonrpc": "2.0", "method": "notifications/a" })).await;
                    events.break_off(&heard).await;
                });
                response
            })
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    assert_eq!(client.message().await["method"], "notifications/a");
    heard.notify_one();
    let (reason, message) = client.failure(1).await;
    assert_eq!(reason, "upstream_lost");
    assert!(message.ends_with("whether the call took effect is unknown"), "{message}");
    assert_eq!(server.count("POST", "tools/call"), 1);
}

#[tokio::test]
async fn a_stream_that_the_server_does_not_resume_is_answered_with_an_error() {
    let server = ScriptedServer::start(|seen| async move {
        (seen.method() == "tools/call").then(|| {
            let (mut events, response) = Events::open();
            tokio::spawn(async move {
                _ = events.raw("id: 1\nretry: 1\ndata:\n\n").await;
            });
            response
        })
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "tools/call");
    assert_eq!(client.failure(1).await.0, "upstream_lost");
}

#[tokio::test]
async fn the_servers_own_stream_is_taken_up_whenever_it_ends() {
    let server = ScriptedServer::start(|seen| async move {
        if seen.verb != "GET" {
            return None;
        }
        let next = seen.header("last-event-id").map_or(1, |id| id.parse::<u32>().unwrap() + 1);
        let (mut events, response) = Events::open();
        tokio::spawn(async move {
            events.raw("retry: 1\n\n").await;
            let message = json!({ "jsonrpc": "2.0", "method": format!("notifications/{next}") });
            events.message(Some(&next.to_string()), &message).await;
        });
        Some(response)
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    for number in 1..=5 {
        assert_eq!(client.message().await["method"], format!("notifications/{number}"));
    }
}

#[tokio::test]
async fn the_servers_own_stream_begins_anew_if_the_server_does_not_remember_the_last_event() {
    let server = ScriptedServer::start(|seen| async move {
        if seen.verb != "GET" {
            return None;
        }
        if seen.header("last-event-id").is_some() {
            return Some(status(400));
        }
        let (mut events, response) = Events::open();
        tokio::spawn(async move {
            events.raw("retry: 1\n\n").await;
            events.message(Some("1"), &json!({ "jsonrpc": "2.0", "method": "notifications/a" })).await;
        });
        Some(response)
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    for _ in 0..3 {
        assert_eq!(client.message().await["method"], "notifications/a");
    }
}

/// A server that knows only its current session, which a test can make it forget.
async fn forgetful_server() -> (ScriptedServer, Arc<AtomicUsize>) {
    let current = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&current);
    let server = ScriptedServer::start(move |seen: Arc<Seen>| {
        let current = Arc::clone(&shared);
        async move {
            if seen.method() == "initialize" {
                let number = current.fetch_add(1, Ordering::SeqCst) + 1;
                return Some(seen.greeting(&format!("session-{number}")));
            }
            let known = format!("session-{}", current.load(Ordering::SeqCst));
            (seen.header("mcp-session-id") != Some(&known)).then(|| status(404))
        }
    })
    .await;
    (server, current)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_is_renewed_once_and_every_call_is_answered_once() {
    let (server, current) = forgetful_server().await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    assert!(client.answer(1).await["result"].is_object());

    current.fetch_add(1, Ordering::SeqCst);
    for id in 100..200 {
        client.request(id, "tools/call");
    }
    let mut open: Vec<u64> = (100..200).collect();
    let mut renewals = 0;
    while !open.is_empty() {
        match client.next().await {
            Some(Incoming::Renewed) => renewals += 1,
            Some(Incoming::Message(line)) => {
                let message: serde_json::Value = serde_json::from_slice(&line).unwrap();
                assert!(message["result"].is_object(), "{message}");
                assert_eq!(renewals, 1, "an answer before the renewal");
                open.retain(|id| message["id"] != *id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(server.count("POST", "initialize"), 2);
    assert_eq!(server.count("POST", "notifications/initialized"), 2);
    assert_eq!(client.connection.session_id().as_deref(), Some("session-3"));

    // The second `initialize` has the same parameters as the first, another id, and no session.
    let seen = server.seen();
    let greetings: Vec<_> = seen.iter().filter(|seen| seen.method() == "initialize").collect();
    assert_eq!(greetings[0].message["params"], greetings[1].message["params"]);
    assert_eq!(greetings[1].message["id"], "ringfence-renewal-1");
    assert_eq!(greetings[1].header("mcp-session-id"), None);

    client.request(300, "ping");
    assert_eq!(client.message().await["id"], 300);
}

#[tokio::test]
async fn the_early_spelling_of_a_forgotten_session_is_understood() {
    let server = ScriptedServer::start(|seen| async move {
        let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
        let body = json!({ "jsonrpc": "2.0", "id": null, "error": error });
        if seen.method() == "initialize" && seen.message["id"] != 0 {
            return Some(seen.greeting("session-2"));
        }
        let is_stale = seen.method() == "ping" && seen.header("mcp-session-id") != Some("session-2");
        is_stale.then(|| {
            let mut response = crate::scripted_server::document(&body);
            *response.status_mut() = axum::http::StatusCode::BAD_REQUEST;
            response
        })
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    assert_eq!(client.next().await, Some(Incoming::Renewed));
    assert!(client.answer(1).await["result"].is_object());
}

#[tokio::test]
async fn a_call_that_is_refused_in_the_new_session_too_is_not_sent_for_ever() {
    let server =
        ScriptedServer::start(|seen| async move { (seen.method() == "ping").then(|| status(404)) }).await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    assert_eq!(client.next().await, Some(Incoming::Renewed));
    assert_eq!(client.failure(1).await.0, "upstream_refused");
    assert_eq!(server.count("POST", "ping"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_the_second_greeting_is_lost() {
    let server = ScriptedServer::start(|seen| async move {
        let is_second = seen.method() == "initialize" && seen.message["id"] != 0;
        (is_second || seen.method() == "ping").then(|| status(404))
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    let reason = client.lost().await;
    assert!(reason.contains("initializing it again failed"), "{reason}");
    assert!(!client.connection.send(br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#));
}

#[tokio::test]
async fn the_servers_stream_notices_a_forgotten_session_by_itself() {
    let current = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&current);
    let server = ScriptedServer::start(move |seen: Arc<Seen>| {
        let current = Arc::clone(&shared);
        async move {
            if seen.method() == "initialize" {
                let number = current.fetch_add(1, Ordering::SeqCst) + 1;
                return Some(seen.greeting(&format!("session-{number}")));
            }
            if seen.verb != "GET" {
                return None;
            }
            let known = format!("session-{}", current.load(Ordering::SeqCst));
            if seen.header("mcp-session-id") != Some(&known) {
                return Some(status(404));
            }
            let (mut events, response) = Events::open();
            // The first session is forgotten while its stream is open.
            let is_first = current.compare_exchange(1, 2, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            tokio::spawn(async move {
                events.raw("retry: 1\n\n").await;
                while !is_first && events.raw(": alive\n\n").await {
                    tokio::task::yield_now().await;
                }
            });
            Some(response)
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    assert_eq!(client.next().await, Some(Incoming::Renewed));
    assert_eq!(client.connection.session_id().as_deref(), Some("session-3"));
    wait_until("the new stream is open", async || server.count("GET", "") == 3).await;
}

#[tokio::test]
async fn a_busy_server_is_asked_again_after_the_time_that_it_names() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refusals);
    let server = ScriptedServer::start(move |seen| {
        let refusals = Arc::clone(&counted);
        async move {
            let mut busy = match seen.method() {
                "ping" if refusals.fetch_add(1, Ordering::SeqCst) < 2 => status(429),
                "always" | "later" => status(503),
                _ => return None,
            };
            let wait = if seen.method() == "later" { "3600" } else { "0" };
            busy.headers_mut().insert("retry-after", wait.parse().unwrap());
            Some(busy)
        }
    })
    .await;
    let mut client = Conversation::greeted(&server.url).await;
    client.request(1, "ping");
    assert!(client.answer(1).await["result"].is_object());
    assert_eq!(server.count("POST", "ping"), 3);
    client.request(2, "always");
    assert_eq!(client.failure(2).await.0, "upstream_refused");
    assert_eq!(server.count("POST", "always"), 3);
    client.request(3, "later");
    assert!(client.failure(3).await.1.contains("503"));
    assert_eq!(server.count("POST", "later"), 1);
}
