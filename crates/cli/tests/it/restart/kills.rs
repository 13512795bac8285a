//! A gateway that is killed again and again at moments that a seed chooses: while sessions open, lock, call, stream, listen,
//! change their roots and end. Whatever a client was told must hold afterwards, and the servers write down how they live.
//!
//! `KILL_ROUNDS` and `KILL_SEED` choose other numbers than those of the usual run.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Gateway, MessageLog, NEWEST, RawClient};
use tokio::task::JoinSet;

use super::disk_record::Dice;
use super::{Site, open_in};

const ROUNDS: u64 = 200;
const SEED: u64 = 20_261_118;

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
    /// That its session is over because its roots changed, or not even that.
    Changed { client: RawClient, is_certain: bool },
}

/// What clients were told in all rounds.
#[derive(Default)]
struct History {
    sessions: HashMap<String, RawClient>,
    /// The calls that were answered.
    answered: Vec<String>,
    /// Sessions that are over, and the status of later requests.
    over: Vec<(String, u16)>,
    /// The last epoch that each session was told.
    epochs: HashMap<String, u64>,
    restored: u64,
}

impl History {
    fn note(&mut self, told: Told) {
        match told {
            Told::Opened(client) => {
                self.sessions.insert(client.session_id().unwrap().to_owned(), client);
            }
            Told::Answered(nonce) => self.answered.push(nonce),
            Told::Deleted { session, is_certain: true } => self.over.push((session, 404)),
            Told::Changed { client, is_certain: true } => {
                self.over.push((client.session_id().unwrap().to_owned(), 403));
            }
            Told::Deleted { .. } | Told::Changed { .. } | Told::Nothing => {}
        }
    }

    /// Every session answers, from the directory that it always had, one epoch or more later.
    async fn check(&mut self, site: &Site, gateway: &Gateway, round: u64) {
        for (id, client) in &self.sessions {
            let answer = client.call_tool("working_directory", json!({})).await;
            let directory = answer["result"]["content"][0]["text"].as_str();
            assert_eq!(directory, site.project.path.to_str(), "round {round}: {answer}");
            if let Some(epoch) = answer["result"]["_meta"]["io.ringfence/restored"]["epoch"].as_u64() {
                let before = self.epochs.insert(id.clone(), epoch);
                assert!(
                    before.is_none_or(|before| before < epoch),
                    "round {round}: {before:?}, then {epoch}"
                );
            }
        }
        for (id, status) in self.over.drain(..) {
            assert_eq!(status_of(gateway, &id).await, status, "round {round}: it is back");
        }
        self.restored += gateway.counter("sessions_restored").await;
    }
}

fn chosen(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn load_of_two_hundred_kills_loses_no_session_and_repeats_no_call() {
    let (rounds, seed) = (chosen("KILL_ROUNDS", ROUNDS), chosen("KILL_SEED", SEED));
    let mut site = Site::new("kills");
    let log = MessageLog::new(site.project.join("messages"));
    let flags = ["--message-log", "messages", "--life-log", "lives"];
    let builder = || Gateway::builder().fixture_flags(flags);
    let mut dice = Dice(seed);
    let mut history = History::default();
    let mut gateway = site.start(builder()).await;
    for round in 0..rounds {
        let changing = open_in(&gateway, &site.project.path).await;
        let mut clients = JoinSet::new();
        clients.spawn(open(gateway.client()));
        clients.spawn(change_roots(changing));
        let surplus = (history.sessions.len() > SESSIONS).then(|| history.sessions.keys().next().cloned());
        if let Some(client) = surplus.flatten().and_then(|id| history.sessions.remove(&id)) {
            clients.spawn(delete(client));
        }
        for (place, client) in history.sessions.values().enumerate() {
            clients.spawn(call(client.clone(), format!("nonce {round} {place}")));
            clients.spawn(stream(client.clone(), format!("stream {round} {place}")));
            clients.spawn(listen(client.clone()));
        }
        tokio::time::sleep(Duration::from_millis(dice.below(120))).await;
        gateway.kill().await;
        // Each of them notices that its connection is gone.
        clients.join_all().await.into_iter().for_each(|told| history.note(told));
        gateway = site.start(builder()).await;
        history.check(&site, &gateway, round).await;
    }
    assert!(
        history.restored >= rounds && history.answered.len() as u64 > rounds / 4,
        "{} restored",
        history.restored
    );
    check_calls(&log, &history.answered);
    check_lives(&site.project.join("lives"));
}

/// An answered call was made once, and any other at most once.
fn check_calls(log: &MessageLog, answered: &[String]) {
    let mut received: HashMap<String, usize> = HashMap::new();
    for message in log.with_method("tools/call") {
        let arguments = &message["params"]["arguments"];
        if let Some(nonce) = arguments["text"].as_str().or(arguments["nonce"].as_str()) {
            *received.entry(nonce.to_owned()).or_default() += 1;
        }
    }
    let streams = received.keys().filter(|nonce| nonce.starts_with("stream")).count();
    assert!(streams > 0, "the control: calls with a stream reach a server");
    assert!(received.values().all(|times| *times == 1), "a call was sent twice");
    let unheard: Vec<&String> = answered.iter().filter(|nonce| !received.contains_key(*nonce)).collect();
    assert!(unheard.is_empty(), "answered, but never received: {unheard:?}");
}

/// When a server of a session lived, in nanoseconds since 1970.
struct Life {
    from: u128,
    until: u128,
}

/// No two servers of one session live at the same time, and all work in the same directory.
fn check_lives(file: &Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lives: HashMap<String, HashMap<u128, Life>> = HashMap::new();
    let mut inodes = HashSet::new();
    // The last line may be cut.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [session, start, _, at, inode] = words[..] else { panic!("{line}") };
        // Probes have no session, and work in a directory of their own.
        if session == "-" {
            continue;
        }
        let (start, at): (u128, u128) = (start.parse().unwrap(), at.parse().unwrap());
        let of_session = lives.entry(session.to_owned()).or_default();
        of_session.entry(start).or_insert(Life { from: start, until: at }).until = at;
        inodes.insert(inode.to_owned());
    }
    assert_eq!(inodes.len(), 1, "one directory");
    assert!(
        lives.values().any(|lives| lives.len() > 1),
        "the control: sessions have servers one after the other"
    );
    for (session, lives) in lives {
        let mut lives: Vec<Life> = lives.into_values().collect();
        lives.sort_unstable_by_key(|life| life.from);
        let overlaps = lives.windows(2).filter(|pair| pair[1].from <= pair[0].until).count();
        assert_eq!(overlaps, 0, "two servers of {session} at once");
    }
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

async fn stream(client: RawClient, nonce: String) -> Told {
    let arguments = json!({"ms": 60_000, "nonce": nonce});
    let sent = client.post_tool_call(&client.next_id(), "sleep", arguments).send().await;
    if let Ok(reply) = sent
        && reply.body.is_sse()
    {
        let mut events = reply.into_events();
        while events.next().await.is_some() {}
    }
    Told::Nothing
}

async fn listen(client: RawClient) -> Told {
    if let Ok(reply) = client.get_stream(None).send().await
        && reply.body.is_sse()
    {
        let mut events = reply.into_events();
        while events.next().await.is_some() {}
    }
    Told::Nothing
}

/// The gateway ends a session whose roots change, and tells so.
async fn change_roots(client: RawClient) -> Told {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let sent = client.post(changed.to_string()).send().await;
    Told::Changed { client, is_certain: sent.is_ok_and(|reply| reply.status == 403) }
}

async fn delete(client: RawClient) -> Told {
    let session = client.session_id().unwrap().to_owned();
    let sent = client.delete().send().await;
    Told::Deleted { session, is_certain: sent.is_ok_and(|reply| reply.status == 204) }
}

async fn status_of(gateway: &Gateway, session: &str) -> u16 {
    let mut client = gateway.client();
    client.set_session(Some(session), Some(NEWEST));
    client.post_request(&Value::from(1), "ping", None).send().await.unwrap().status.as_u16()
}
