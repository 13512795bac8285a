//! Limits on sessions and calls, and the answers once they are exceeded.

use serde_json::json;
use testkit::{NEWEST, RawClient, Reply, wait_until};
use tokio::task::JoinSet;

use super::{Site, echoes};

async fn initialize(client: &RawClient) -> Reply {
    client.post_initialize(&json!(1), json!({}), NEWEST).await
}

fn is_refused(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{:?}", reply.body);
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!(seconds >= 1);
    assert_eq!(reply.json()["error"]["code"], -32000);
}

#[tokio::test]
async fn sessions_beyond_the_limit_are_refused_until_one_ends() {
    let site = Site::start("sessions", &["--max-sessions", "2"]).await;
    let first = site.gateway.open().await;
    let _second = site.gateway.open().await;
    is_refused(&initialize(&site.gateway.client()).await, 503);
    assert_eq!(first.delete().await.status, 204);
    assert_eq!(initialize(&site.gateway.client()).await.status, 200);
}

#[tokio::test]
async fn one_window_cannot_take_the_places_of_others() {
    let site = Site::start("windows", &["--max-sessions-per-instance", "1"]).await;
    let window = |name: &str| site.gateway.client().with_header("ringfence-instance", name);
    assert_eq!(initialize(&window("a")).await.status, 200);
    is_refused(&initialize(&window("a")).await, 429);
    assert_eq!(initialize(&window("b")).await.status, 200, "the control: another window");

    let site = Site::start("principals", &["--max-sessions-per-principal", "1"]).await;
    let window = |name: &str| site.gateway.client().with_header("ringfence-instance", name);
    assert_eq!(initialize(&window("a")).await.status, 200);
    is_refused(&initialize(&window("b")).await, 429);
}

#[tokio::test]
async fn calls_beyond_the_rate_are_refused_with_a_time_and_the_session_goes_on() {
    for flag in ["--calls-per-second", "--instance-calls-per-second"] {
        let site = Site::start("rate", &[flag, "2"]).await;
        let client = site.gateway.open().await;
        let mut calls = JoinSet::new();
        for id in 0..20 {
            let call = client.post_tool_call(&json!(id), "echo", json!({"text": "x"}));
            calls.spawn(call.into_future());
        }
        let replies = calls.join_all().await;
        let refused: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 429).collect();
        assert!(!refused.is_empty() && refused.len() < 20, "{flag}: {} of 20 were refused", refused.len());
        is_refused(refused[0], 429);
        assert_eq!(refused[0].json()["error"]["data"]["reason"], "rate_limited");
        wait_until("it may call again", async || {
            client.post_tool_call(&client.next_id(), "echo", json!({"text": "x"})).await.status == 200
        })
        .await;
    }
}

#[tokio::test]
async fn calls_of_one_session_at_once_are_limited() {
    let site = Site::start("in-flight", &["--max-calls", "1"]).await;
    let client = site.gateway.open().await;
    let running = client.post_tool_call(&json!(1), "sleep", json!({"ms": 3_600_000})).await;
    is_refused(&client.post_tool_call(&json!(2), "echo", json!({"text": "x"})).await, 429);
    // The control: another session has its own limit.
    echoes(&site.gateway.open().await).await;
    drop(running);
}
