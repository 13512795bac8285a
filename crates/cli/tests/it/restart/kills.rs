//! A gateway that is killed again and again at moments that a seed chooses: while sessions open, lock, call, stream and
//! end. Whatever a client was told must hold afterwards.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Gateway, MessageLog, NEWEST, RawClient};
use tokio::task::JoinSet;

use super::Site;

const ROUNDS: u64 = 200;

/// More sessions than these are deleted again.
const SESSIONS: usize = 4;

/// What one client was told before the kill.
enum Told {
    /// That it has a session.
    Opened(RawClient),
    /// Nothing; the session may be there or not.
    Nothing,
    /// That its call was answered.
    Answered(String),
    /// That its session is over, or not even that.
    Deleted { session: String, is_certain: bool },
}

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[tokio::test]
async fn load_of_two_hundred_kills_loses_no_session_and_repeats_no_call() {
    let mut site = Site::new("kills");
    let log = MessageLog::new(site.project.join("messages"));
    let builder = || Gateway::builder().fixture_flags(["--message-log", "messages"]);
    let mut dice = Dice(20_261_118);
    let mut sessions: HashMap<String, RawClient> = HashMap::new();
    let (mut answered, mut restored) = (Vec::new(), 0);
    let mut gateway = site.start(builder()).await;
    for round in 0..ROUNDS {
        let mut clients = JoinSet::new();
        clients.spawn(open(gateway.client()));
        let surplus = (sessions.len() > SESSIONS).then(|| sessions.keys().next().cloned()).flatten();
        if let Some(client) = surplus.and_then(|id| sessions.remove(&id)) {
            clients.spawn(delete(client));
        }
        for (place, client) in sessions.values().enumerate() {
            clients.spawn(call(client.clone(), format!("nonce {round} {place}")));
            clients.spawn(stream(client.clone()));
        }
        tokio::time::sleep(Duration::from_millis(dice.below(120))).await;
        gateway.kill().await;
        // Each of them notices that its connection is gone.
        for told in clients.join_all().await {
            match told {
                Told::Opened(client) => {
                    sessions.insert(client.session_id().unwrap().to_owned(), client);
                }
                Told::Answered(nonce) => answered.push(nonce),
                Told::Deleted { session, is_certain } => {
                    gateway = site.start(builder()).await;
                    assert!(!is_certain || !answers(&gateway, &session).await, "round {round}: it is back");
                    gateway.kill().await;
                }
                Told::Nothing => {}
            }
        }
        gateway = site.start(builder()).await;
        for client in sessions.values() {
            let directory = client.call_tool_for_text("working_directory", json!({})).await;
            assert_eq!(directory, site.project.path.to_string_lossy(), "round {round}");
        }
        restored += gateway.counter("sessions_restored").await;
    }
    assert!(restored >= ROUNDS && answered.len() > 50, "{restored} restored, {} answered", answered.len());
    let mut received: HashMap<String, usize> = HashMap::new();
    for message in log.with_method("tools/call") {
        if let Some(text) = message["params"]["arguments"]["text"].as_str() {
            *received.entry(text.to_owned()).or_default() += 1;
        }
    }
    assert!(received.values().all(|times| *times == 1), "a call was sent twice");
    let unheard: Vec<&String> = answered.iter().filter(|nonce| !received.contains_key(*nonce)).collect();
    assert!(unheard.is_empty(), "answered, but never received: {unheard:?}");
}

async fn open(mut client: RawClient) -> Told {
    let sent = client.post_initialize(&json!(1), json!({}), NEWEST).send().await;
    let Some(id) = sent.ok().and_then(|reply| reply.session_id().map(str::to_owned)) else {
        return Told::Nothing;
    };
    client.set_session(Some(&id), Some(NEWEST));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let _ = client.post(initialized.to_string()).send().await;
    Told::Opened(client)
}

async fn call(client: RawClient, nonce: String) -> Told {
    let sent = client.post_tool_call(&json!(nonce), "echo", json!({"text": nonce})).send().await;
    match sent {
        Ok(reply) if reply.status == 200 && !reply.body.is_sse() => {
            assert_eq!(reply.json()["result"]["content"][0]["text"], nonce, "{:?}", reply.body);
            Told::Answered(nonce)
        }
        _ => Told::Nothing,
    }
}

async fn stream(client: RawClient) -> Told {
    let sent = client.post_tool_call(&client.next_id(), "sleep", json!({"ms": 60_000})).send().await;
    if let Ok(reply) = sent
        && reply.body.is_sse()
    {
        let mut events = reply.into_events();
        while events.next().await.is_some() {}
    }
    Told::Nothing
}

async fn delete(client: RawClient) -> Told {
    let session = client.session_id().unwrap().to_owned();
    let sent = client.delete().send().await;
    Told::Deleted { session, is_certain: sent.is_ok_and(|reply| reply.status == 204) }
}

async fn answers(gateway: &Gateway, session: &str) -> bool {
    let mut client = gateway.client();
    client.set_session(Some(session), Some(NEWEST));
    let reply = client.post_request(&Value::from(1), "ping", None).send().await.unwrap();
    reply.status == 200
}
