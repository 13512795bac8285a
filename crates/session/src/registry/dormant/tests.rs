//! Tests of which stored sessions stay and which go.

use std::time::Duration;

use store::{CallRow, SessionRow};

use super::*;
use crate::testing::record;

const MINUTE: Duration = Duration::from_secs(60);

fn minutes_ago(minutes: i64) -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() - 60 * minutes).unwrap()
}

/// Sessions that were last used so many minutes ago.
fn dormant(ages: &[i64]) -> Dormant {
    let rows = ages.iter().enumerate().map(|(number, minutes)| {
        let mut record = record();
        record.answer = Some("{}".to_owned());
        record.opened = minutes_ago(minutes + 1);
        let stored = StoredSession::of(&record, minutes_ago(*minutes)).unwrap();
        SessionRow { key: key(number), body: stored.to_text() }
    });
    Dormant::of(Loaded { sessions: rows.collect(), ..Loaded::default() }).0
}

fn key(number: usize) -> RecordKey {
    RecordKey::from_bytes([u8::try_from(number).unwrap(); 32])
}

#[test]
fn those_that_were_not_used_for_the_longest_make_room() {
    let dormant = dormant(&[3, 9, 1, 7]);
    assert_eq!(dormant.make_room(0), []);
    assert_eq!(dormant.make_room(1), [key(1)]);
    assert_eq!(dormant.make_room(PAGE + 1), [key(3), key(0)], "each takes a page");
    assert_eq!(dormant.count(), 1);
    assert_eq!(dormant.make_room(u64::MAX), [key(2)]);
    assert_eq!(dormant.make_room(u64::MAX), []);
}

#[test]
fn the_answers_that_are_kept_for_a_session_count_as_its_own() {
    let mut record = record();
    record.answer = Some("{}".to_owned());
    let sessions = [9, 3].map(|minutes| StoredSession::of(&record, minutes_ago(minutes)).unwrap().to_text());
    let rows = sessions.into_iter().enumerate().map(|(number, body)| SessionRow { key: key(number), body });
    let body = format!(r#"{{"id":1,"method":"tools/call","answer":"{}"}}"#, "x".repeat(100_000));
    let calls = vec![CallRow { session: key(0), stream: 7, body }];
    let loaded = Loaded { sessions: rows.collect(), calls, ..Loaded::default() };
    let dormant = Dormant::of(loaded).0;
    assert_eq!(dormant.make_room(90_000), [key(0)]);
}

#[test]
fn a_trial_takes_nothing_out() {
    let dormant = dormant(&[3, 9, 1]);
    let ages = |unused_for, keep| -> Vec<RecordKey> {
        dormant.prune(unused_for, keep, |_| ()).into_iter().map(|(key, ())| key).collect()
    };
    assert_eq!(ages(2 * MINUTE, true), [key(1), key(0)]);
    assert_eq!(dormant.count(), 3);
    assert_eq!(ages(2 * MINUTE, false), [key(1), key(0)]);
    assert_eq!(ages(2 * MINUTE, false), []);
    assert_eq!(ages(Duration::ZERO, false), [key(2)]);
}

#[test]
fn a_clock_that_was_ahead_neither_ends_a_session_nor_keeps_it_for_ever() {
    let dormant = dormant(&[-1_000_000, 3]);
    let settings =
        Settings { idle_timeout: MINUTE, max_age: Some(Duration::from_secs(1800)), ..Settings::default() };
    let now = Timestamp::now();
    assert_eq!(dormant.expire(now, &settings), [(key(1), EndReason::Idle)], "only the other one");
    let later = |minutes: i64| Timestamp::from_second(now.as_second() + 60 * minutes).unwrap();
    assert_eq!(dormant.expire(later(-60), &settings), [], "nor does one that is behind");
    assert_eq!(dormant.expire(later(2), &settings), [(key(0), EndReason::Idle)]);
}

#[test]
fn the_longest_age_counts_even_if_the_session_is_used() {
    let dormant = dormant(&[0, 31]);
    let settings = Settings { idle_timeout: 90 * MINUTE, max_age: Some(30 * MINUTE), ..Settings::default() };
    assert_eq!(dormant.expire(Timestamp::now(), &settings), [(key(1), EndReason::Expired)]);
}
