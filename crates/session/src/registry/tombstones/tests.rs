//! Tests of the reasons that are kept for ended sessions.

use super::*;
use identity::{Principal, SessionId};

#[test]
fn the_reason_is_kept_for_a_bounded_time_and_number() {
    let stones = Tombstones::default();
    let key = || SessionKey { principal: Principal::anonymous(), id: SessionId::random() };
    let first = key();
    stones.add(first.clone(), ErrorReply::new(-1, "why"));
    assert_eq!(stones.find(&first).unwrap().message, "why");
    assert!(stones.find(&key()).is_none());
    assert!(stones.find_at(&first, Instant::now() + KEPT_FOR).is_none());
    for _ in 0..MAX_TOMBSTONES * 2 {
        stones.add(key(), ErrorReply::new(-1, "other"));
    }
    assert_eq!(stones.0.lock().len(), MAX_TOMBSTONES);
}

fn key(principal: &Principal) -> SessionKey {
    SessionKey { principal: principal.clone(), id: SessionId::random() }
}

#[test]
fn the_reason_is_for_the_principal_whose_session_it_was() {
    let stones = Tombstones::default();
    let mine = key(&Principal::named("me").unwrap());
    stones.add(mine.clone(), ErrorReply::new(-1, "why"));
    let theirs = SessionKey { principal: Principal::named("you").unwrap(), ..mine };
    assert!(stones.find(&theirs).is_none());
}

#[test]
fn a_reason_can_be_heard_more_than_once() {
    let (stones, key) = (Tombstones::default(), key(&Principal::anonymous()));
    stones.add(key.clone(), ErrorReply::new(-1, "why"));
    for _ in 0..3 {
        assert_eq!(stones.find(&key).unwrap().message, "why");
    }
}

#[test]
fn the_first_reason_counts() {
    let (stones, key) = (Tombstones::default(), key(&Principal::anonymous()));
    for words in ["first", "second"] {
        stones.add(key.clone(), ErrorReply::new(-1, words));
    }
    assert_eq!(stones.find(&key).unwrap().message, "first");
}

#[test]
fn the_oldest_reason_goes_first() {
    let stones = Tombstones::default();
    let keys: Vec<_> = (0..=MAX_TOMBSTONES).map(|_| key(&Principal::anonymous())).collect();
    for key in &keys {
        stones.add(key.clone(), ErrorReply::new(-1, "why"));
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
    assert!(stones.find_at(&key(&Principal::anonymous()), Instant::now() + KEPT_FOR).is_none());
    assert!(stones.0.lock().is_empty());
}
