//! Thousands of stored sessions, and clocks that jump while no gateway runs.

use std::collections::HashSet;

use identity::{Principal, RecordKey, SessionId, SessionKey};
use serde_json::{Value, json};
use store::{Change, SessionRow, Store};
use testkit::{Gateway, GatewayBuilder, NEWEST, RawClient, text_of, wait_until};

use super::{Site, open_in, works_in};

const MANY: usize = 10_000;
/// So many more were not used for longer than sessions are kept.
const OLD: usize = 500;

/// What a stored session that waits for its client may take in memory.
const MOST_BYTES_EACH: u64 = 8 * 1024;

fn builder() -> GatewayBuilder {
    Gateway::builder()
}

fn key_of(id: SessionId) -> RecordKey {
    SessionKey { principal: Principal::anonymous(), id }.record_key()
}

/// Changes every row of the store of a gateway that does not run.
fn rewrite(site: &Site, change: impl Fn(&mut Value)) {
    let (store, loaded) = Store::open(&site.state.join("sessions")).unwrap();
    for row in loaded.sessions {
        let mut body: Value = serde_json::from_str(&row.body).unwrap();
        change(&mut body);
        store.note(Change::Session(SessionRow { key: row.key, body: body.to_string() }));
    }
    store.close();
}

/// Moves the times of all records, as if the clock of the machine had been set the other way.
fn shift(site: &Site, fields: &[&str], hours: i64) {
    rewrite(site, |body| {
        for field in fields {
            let time: jiff::Timestamp = body[field].as_str().unwrap().parse().unwrap();
            let moved = jiff::Timestamp::from_second(time.as_second() + hours * 3600).unwrap();
            body[field] = moved.to_string().into();
        }
    });
}

fn resident_bytes(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn client_of(gateway: &Gateway, id: SessionId) -> RawClient {
    let mut client = gateway.client();
    client.set_session(Some(&id.expose()), Some(NEWEST));
    client
}

/// Adds sessions like the one that is there. Returns their ids, those that are too old to be kept last.
fn fill(site: &Site) -> Vec<SessionId> {
    let (store, loaded) = Store::open(&site.state.join("sessions")).unwrap();
    let pattern: Value = serde_json::from_str(&loaded.sessions[0].body).unwrap();
    let ids: Vec<SessionId> = (0..MANY + OLD).map(|_| SessionId::random()).collect();
    for (number, id) in ids.iter().enumerate() {
        let mut body = pattern.clone();
        body["handle"] = id.handle().to_string().into();
        if number >= MANY {
            body["last_used"] = "2026-01-01T00:00:00Z".into();
        }
        store.note(Change::Session(SessionRow { key: key_of(*id), body: body.to_string() }));
    }
    store.close();
    ids
}

#[tokio::test]
async fn load_of_ten_thousand_stored_sessions_is_listed_expired_and_answered() {
    let mut site = Site::new("many");
    let mut gateway = site.start(builder()).await;
    let client = open_in(&gateway, &site.project.path).await;
    gateway.terminate().await;
    let mut gateway = site.start(builder()).await;
    gateway.wait_for_probe().await;
    let before = resident_bytes(&gateway);
    gateway.kill().await;
    let ids = fill(&site);
    let gateway = site.start(builder().env("XDG_CACHE_HOME", site.state.join("caches"))).await;
    gateway.wait_for_probe().await;
    wait_until("the old ones are gone", async || {
        gateway.report().await["stored_sessions"] == json!(MANY + 1)
    })
    .await;
    let each = resident_bytes(&gateway).saturating_sub(before) / MANY as u64;
    assert!(each <= MOST_BYTES_EACH, "{each} bytes for each session");
    let token = gateway.operator_token(&site.state.join("caches"));
    let operator = gateway.client().with_header("authorization", &format!("Bearer {token}"));
    let listed = operator.get_stream(None).path("/sessions").await;
    let listed = listed.json()["sessions"].as_array().unwrap().clone();
    let handles: HashSet<&str> = listed.iter().map(|session| session["session"].as_str().unwrap()).collect();
    assert_eq!((listed.len(), handles.len()), (MANY + 1, MANY + 1));
    assert!(listed.iter().all(|session| session["state"] == "stored"));
    for id in ids[..MANY].iter().step_by(MANY / 8) {
        assert_eq!(text_of(&works_in(&client_of(&gateway, *id)).await), site.project.path.to_string_lossy());
    }
    let old = client_of(&gateway, *ids.last().unwrap());
    assert_eq!(old.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await.status, 404);
    works_in(&client).await;
}

#[tokio::test]
async fn a_clock_that_was_set_back_ends_no_session_and_repeats_no_id() {
    let mut site = Site::new("clock-back");
    let limits = || builder().flags(["--idle-timeout", "3600", "--max-session-age", "7200"]);
    let mut gateway = site.start(limits()).await;
    let client = open_in(&gateway, &site.project.path).await;
    let mut seen = HashSet::new();
    for epoch in 1..=2 {
        gateway.terminate().await;
        // The records are of tomorrow.
        shift(&site, &["opened", "last_used"], 24);
        gateway = site.start(limits()).await;
        let back = works_in(&client).await;
        assert_eq!(back["result"]["_meta"]["io.ringfence/restored"]["epoch"], epoch, "{back}");
        let mut events =
            client.post_tool_call(&client.next_id(), "sleep", json!({"ms": 300})).await.into_events();
        while let Some(event) = events.next().await {
            assert!(seen.insert(event.id.clone().unwrap()), "{:?} came twice", event.id);
        }
    }
    assert!(seen.len() >= 4);
}

#[tokio::test]
async fn a_clock_that_was_set_forward_ends_what_is_idle_or_too_old_by_it() {
    for (field, status) in [(Some("last_used"), 404), (Some("opened"), 404), (None, 200)] {
        let mut site = Site::new("clock-forward");
        let limits = || builder().flags(["--idle-timeout", "3600", "--max-session-age", "7200"]);
        let mut gateway = site.start(limits()).await;
        let client = open_in(&gateway, &site.project.path).await;
        gateway.terminate().await;
        shift(&site, field.as_slice(), -3);
        let gateway = site.start(limits()).await;
        let answer = client.post_tool_call(&json!(1), "echo", json!({"text": "x"})).await;
        assert_eq!(answer.status, status, "{field:?}");
        assert_eq!(gateway.report().await["stored_sessions"], 0);
    }
}
