//! Tests of what is written of a session, and of what is read again.

use std::collections::BTreeSet;

use identity::{Principal, SessionId};

use super::*;
use crate::record::SessionEnd;
use crate::session_context::Author;
use crate::testing::{record, request};

fn full_record() -> SessionRecord {
    let mut full = record();
    full.initialize =
        Arc::new(request(4, "initialize", r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{}}}"#));
    full.answer = Some(r#"{"protocolVersion":"2025-06-18"}"#.to_owned());
    full.version = Some(Version::V2025_06_18);
    full.instance = Instance::named("window-1").unwrap();
    full.is_instance_named = true;
    full.contexts.wanted.insert("files".to_owned(), ExecutionContext::Remote);
    full.contexts.takes_local = false;
    let subscription = |server: &str| Subscription { server: server.to_owned(), uri: "a://b".to_owned() };
    full.subscriptions = BTreeSet::from([subscription("one"), subscription("two")]);
    full.log_level = Some(LogLevel::Warning);
    full.epoch = 6;
    let said = serde_json::from_str(r#"{"name": "a name", "labels": {"k": "v"}, "note": "a note"}"#).unwrap();
    full.context.update(&said, Author::Agent, Timestamp::now()).unwrap();
    full.context.note_agent("test/1", Timestamp::now());
    full
}

fn again(stored: &StoredSession) -> StoredSession {
    StoredSession::read(&stored.to_text()).unwrap()
}

#[test]
fn a_record_is_the_same_after_a_restart_one_epoch_later() {
    let before = full_record();
    let stored = StoredSession::of(&before, Timestamp::now()).unwrap();
    assert_eq!(again(&stored), stored);
    let after = again(&stored).to_record(before.key.clone()).unwrap();
    assert_eq!(after.epoch, 7);
    let plain = |record: &SessionRecord| {
        let initialize = record.initialize.with_id(&record.initialize.id).into_bytes();
        let rest = SessionRecord { epoch: 0, initialize: Arc::new(request(0, "x", "{}")), ..record.clone() };
        (initialize, format!("{rest:?}"))
    };
    assert_eq!(plain(&after), plain(&before));
}

#[test]
fn the_session_id_is_not_written() {
    let record = full_record();
    let text = StoredSession::of(&record, Timestamp::now()).unwrap().to_text();
    assert!(text.contains(&record.key.id.handle().to_string()), "the control");
    assert!(!text.contains(&record.key.id.expose()));
    assert!(text.len() < 4096, "{}", text.len());
}

#[test]
fn a_session_that_its_client_never_heard_of_or_that_is_over_is_not_written() {
    let unheard = SessionRecord { answer: None, ..full_record() };
    assert_eq!(StoredSession::of(&unheard, Timestamp::now()), None);
    let end = Some(SessionEnd { reason: EndReason::Deleted, error: None });
    assert_eq!(StoredSession::of(&SessionRecord { end, ..full_record() }, Timestamp::now()), None);
}

#[test]
fn what_a_newer_program_wrote_is_told_from_what_is_damaged() {
    let text = StoredSession::of(&full_record(), Timestamp::now()).unwrap().to_text();
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    assert_ne!(newer, text);
    assert!(matches!(StoredSession::read(&newer), Err(StoredError::Newer(2))));
    for damaged in ["", "{}", &text[..text.len() / 2], r#"{"format":1}"#] {
        assert!(matches!(StoredSession::read(damaged), Err(StoredError::Unreadable(_))), "{damaged}");
    }
    let with_other_keys = text.replacen('{', r#"{"later":[1],"#, 1);
    assert!(StoredSession::read(&with_other_keys).is_ok());
}

#[test]
fn a_record_that_means_nothing_is_no_session() {
    let stored = StoredSession::of(&full_record(), Timestamp::now()).unwrap();
    let key = || SessionKey { principal: Principal::anonymous(), id: SessionId::random() };
    assert!(stored.to_record(key()).is_some());
    for bad in [
        StoredSession { initialize: "nonsense".to_owned(), ..stored.clone() },
        StoredSession { initialize: r#"{"jsonrpc":"2.0","method":"x"}"#.to_owned(), ..stored.clone() },
        StoredSession { instance: String::new(), ..stored.clone() },
    ] {
        assert!(bad.to_record(key()).is_none());
    }
}

#[test]
fn time_goes_on_while_no_gateway_runs() {
    let settings = Settings {
        idle_timeout: Duration::from_secs(100),
        max_age: Some(Duration::from_secs(1000)),
        ..Settings::default()
    };
    let now = Timestamp::now();
    let before = |seconds: u64| now.checked_sub(Duration::from_secs(seconds)).unwrap();
    let mut stored = StoredSession::of(&full_record(), before(99)).unwrap();
    stored.opened = before(999);
    assert_eq!(stored.end_by(now, &settings), None);
    stored.last_used = before(100);
    assert_eq!(stored.end_by(now, &settings), Some(EndReason::Idle));
    stored.opened = before(1000);
    assert_eq!(stored.end_by(now, &settings), Some(EndReason::Expired));
    // A clock that was set back ends nothing.
    stored.opened = now.checked_add(Duration::from_secs(5000)).unwrap();
    stored.last_used = stored.opened;
    assert_eq!(stored.end_by(now, &settings), None);
}
