//! Tests of the reasons that are kept for ended sessions.

use super::*;
use identity::{Principal, SessionId, SessionKey};

#[test]
fn the_reason_is_kept_for_a_bounded_time_and_number() {
    let stones = Tombstones::default();
    let key = || SessionKey { principal: Principal::anonymous(), id: SessionId::random() }.record_key();
    let first = key();
    stones.add(first, ErrorReply::new(-1, "why"));
    assert_eq!(stones.find(&first).unwrap().message, "why");
    assert!(stones.find(&key()).is_none());
    assert!(stones.find_at(&first, Instant::now() + KEPT_TOMBSTONES_FOR).is_none());
    for _ in 0..MAX_TOMBSTONES * 2 {
        stones.add(key(), ErrorReply::new(-1, "other"));
    }
    assert_eq!(stones.0.lock().len(), MAX_TOMBSTONES);
}

fn key(principal: &Principal) -> RecordKey {
    SessionKey { principal: principal.clone(), id: SessionId::random() }.record_key()
}

#[test]
fn the_reason_is_for_the_principal_whose_session_it_was() {
    let stones = Tombstones::default();
    let id = SessionId::random();
    let of = |name| SessionKey { principal: Principal::named(name).unwrap(), id }.record_key();
    stones.add(of("me"), ErrorReply::new(-1, "why"));
    assert!(stones.find(&of("you")).is_none());
    assert!(stones.find(&of("me")).is_some());
}

#[test]
fn a_reason_can_be_heard_more_than_once() {
    let (stones, key) = (Tombstones::default(), key(&Principal::anonymous()));
    stones.add(key, ErrorReply::new(-1, "why"));
    for _ in 0..3 {
        assert_eq!(stones.find(&key).unwrap().message, "why");
    }
}

#[test]
fn the_first_reason_counts() {
    let (stones, key) = (Tombstones::default(), key(&Principal::anonymous()));
    for words in ["first", "second"] {
        stones.add(key, ErrorReply::new(-1, words));
    }
    assert_eq!(stones.find(&key).unwrap().message, "first");
}

#[test]
fn the_oldest_reason_goes_first() {
    let stones = Tombstones::default();
    let keys: Vec<_> = (0..=MAX_TOMBSTONES).map(|_| key(&Principal::anonymous())).collect();
    for key in &keys {
        stones.add(*key, ErrorReply::new(-1, "why"));
    }
    assert!(stones.find(&keys[0]).is_none());
    assert!(stones.find(&keys[1]).is_some() && stones.find(&keys[MAX_TOMBSTONES]).is_some());
}

#[test]
fn old_reasons_take_no_room() {
    let stones = Tombstones::default();
    for _ in 0..10 {
        stones.add(key(&Principal::anonymous()), ErrorReply::new(-1, "why"));
    }
    assert!(stones.find_at(&key(&Principal::anonymous()), Instant::now() + KEPT_TOMBSTONES_FOR).is_none());
    assert!(stones.0.lock().is_empty());
}

#[test]
fn the_reasons_of_an_earlier_gateway_are_known_for_the_rest_of_their_time() {
    let today = Timestamp::now().as_second();
    let keys: Vec<_> = (0..4).map(|_| key(&Principal::anonymous())).collect();
    let row = |place: usize, left: i64, body: &str| EndRow {
        key: keys[place],
        until: today + left,
        body: body.to_owned(),
    };
    let why = serde_json::to_string(&ErrorReply::new(-1, "why")).unwrap();
    let stones = Tombstones::of(vec![
        row(0, 200, &why),
        row(1, -1, &why),
        row(2, 100, "nonsense"),
        row(3, 1 << 40, &why),
    ]);
    assert_eq!(stones.find(&keys[0]).unwrap().message, "why");
    assert!(stones.find(&keys[1]).is_none() && stones.find(&keys[2]).is_none());
    let later = |seconds| Instant::now() + Duration::from_secs(seconds);
    assert!(stones.find_at(&keys[3], later(290)).is_some(), "no clock makes it last longer");
    assert!(stones.find_at(&keys[0], later(201)).is_none() && stones.find_at(&keys[3], later(301)).is_none());
}
