//! Headers are secrets: they go to one server, and nowhere else.

use axum::response::Response;
use serde_json::json;
use upstream::http::{Connection, Endpoint};

use crate::conversation::Conversation;
use crate::scripted_server::{ScriptedServer, status};

const SECRET: &str = "Bearer hush-hush";

fn redirect(code: u16, to: &str) -> Response {
    let mut response = status(code);
    response.headers_mut().insert("location", to.parse().unwrap());
    response
}

#[tokio::test]
async fn headers_go_with_every_request() {
    let server = ScriptedServer::plain().await;
    let mut client =
        Conversation::open_with(&server.url, &[("Authorization", SECRET), ("Mcp-Session-Id", "fake")]);
    client.greet().await;
    client.request(1, "ping");
    client.answer(1).await;
    client.connection.close().await;
    let seen = server.seen();
    assert!(seen.iter().any(|seen| seen.verb == "DELETE"));
    for seen in &seen {
        assert_eq!(seen.header("authorization"), Some(SECRET));
    }
    // The protocol's own headers override the configured ones.
    assert!(seen[1..].iter().all(|seen| seen.header("mcp-session-id") == Some("session-1")));
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_refused_and_nothing_is_sent_there() {
    let elsewhere = ScriptedServer::plain().await;
    for code in [301, 302, 303, 307, 308] {
        let target = elsewhere.url.clone();
        let server = ScriptedServer::start(move |seen| {
            let target = target.clone();
            async move { (seen.method() == "tools/call").then(|| redirect(code, &target)) }
        })
        .await;
        let mut client = Conversation::open_with(&server.url, &[("Authorization", SECRET)]);
        client.greet().await;
        client.request(1, "tools/call");
        assert_eq!(client.failure(1).await.0, "upstream_redirected");
    }
    let target = elsewhere.url.clone();
    let server = ScriptedServer::start(move |_| {
        let target = target.clone();
        async move { Some(redirect(307, &target)) }
    })
    .await;
    let mut client = Conversation::open_with(&server.url, &[("Authorization", SECRET)]);
    client.initialize();
    assert!(client.lost().await.contains("redirects"));
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_if_it_keeps_the_method() {
    let server = ScriptedServer::start(|seen| async move {
        let is_first = seen.header("x-path") == Some("/mcp");
        match seen.method() {
            "moved" if is_first => Some(redirect(307, "/new")),
            "changed" if is_first => Some(redirect(303, "/new")),
            _ => None,
        }
    })
    .await;
    let mut client = Conversation::open_with(&server.url, &[("Authorization", SECRET)]);
    client.greet().await;
    client.request(1, "moved");
    assert_eq!(client.answer(1).await["result"]["echo"], "moved");
    let seen = server.seen();
    let last = seen.iter().rfind(|seen| seen.method() == "moved").unwrap();
    assert_eq!((last.header("x-path"), last.header("authorization")), (Some("/new"), Some(SECRET)));
    client.request(2, "changed");
    assert_eq!(client.failure(2).await.0, "upstream_redirected");
}

#[tokio::test]
async fn nothing_secret_is_printed() {
    let endpoint = Endpoint {
        url: "https://user:hush-hush@example.com/mcp?key=hush-hush".to_owned(),
        headers: vec![("Authorization".to_owned(), SECRET.to_owned())],
        max_message: 1,
        connect_timeout: std::time::Duration::from_secs(1),
    };
    let (connection, _incoming) = Connection::open(endpoint.clone());
    let printed = format!("{endpoint:?} {connection:?}");
    assert!(printed.contains("Authorization") && printed.contains("example.com"), "{printed}");
    assert!(!printed.contains("hush-hush"), "{printed}");
}

#[tokio::test]
async fn too_much_is_refused_and_not_kept() {
    let server = ScriptedServer::start(|seen| async move {
        match seen.method() {
            "initialize" => std::future::pending().await,
            _ => None,
        }
    })
    .await;
    let client = Conversation::open(&server.url);
    client.initialize();
    let line = json!({ "jsonrpc": "2.0", "method": "notifications/a" }).to_string();
    let taken = (0..10_000).take_while(|_| client.connection.send(line.as_bytes())).count();
    assert!((1000..10_000).contains(&taken), "{taken}");
}
