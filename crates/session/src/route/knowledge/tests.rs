//! Tests of what a session knows about one of its servers.

use super::*;

const PAUSE: Duration = Duration::from_secs(10);

fn catalogue(instructions: &str) -> Catalogue {
    Catalogue { instructions: Some(instructions.to_owned()), ..Catalogue::default() }
}

fn known(instructions: &str) -> Knowledge {
    Knowledge::new(Some(Arc::new(catalogue(instructions))))
}

fn said(knowledge: &Knowledge) -> Option<&str> {
    knowledge.catalogue()?.instructions.as_deref()
}

/// A server that the last look found in trouble.
fn troubled(now: Instant) -> Knowledge {
    let mut knowledge = Knowledge::default();
    assert!(knowledge.begin_look(PAUSE, now));
    knowledge.looked(Err("broken".to_owned()), now);
    knowledge
}

#[test]
fn a_server_that_is_known_needs_no_look() {
    assert!(!known("x").begin_look(PAUSE, Instant::now()));
}

#[test]
fn one_look_at_a_time() {
    let now = Instant::now();
    let mut knowledge = Knowledge::default();
    assert!(knowledge.begin_look(PAUSE, now));
    assert!(!knowledge.begin_look(PAUSE, now + PAUSE * 2));
    knowledge.looked(Err("broken".to_owned()), now);
    assert!(knowledge.begin_look(PAUSE, now + PAUSE));
}

#[test]
fn a_look_finds_what_the_server_offers() {
    let now = Instant::now();
    let mut knowledge = Knowledge::default();
    knowledge.begin_look(PAUSE, now);
    knowledge.looked(Ok(Arc::new(catalogue("x"))), now);
    assert_eq!((said(&knowledge), knowledge.trouble()), (Some("x"), None));
    assert!(!knowledge.begin_look(PAUSE, now + PAUSE * 2));
}

#[test]
fn trouble_is_left_alone_for_a_while() {
    let now = Instant::now();
    let mut knowledge = troubled(now);
    assert_eq!(knowledge.trouble(), Some("broken"));
    assert!(!knowledge.begin_look(PAUSE, now + PAUSE.checked_sub(Duration::from_millis(1)).unwrap()));
    assert!(knowledge.begin_look(PAUSE, now + PAUSE));
}

#[test]
fn a_look_that_succeeds_ends_trouble() {
    let now = Instant::now();
    let mut knowledge = troubled(now);
    knowledge.begin_look(PAUSE, now + PAUSE);
    knowledge.looked(Ok(Arc::new(catalogue("x"))), now + PAUSE);
    assert_eq!((said(&knowledge), knowledge.trouble()), (Some("x"), None));
}

#[test]
fn trouble_keeps_what_was_known() {
    let now = Instant::now();
    let mut knowledge = known("x");
    knowledge.looked(Err("broken".to_owned()), now);
    assert_eq!((said(&knowledge), knowledge.trouble()), (Some("x"), Some("broken")));
    assert!(knowledge.begin_look(PAUSE, now + PAUSE), "a known server in trouble is looked at again");
}

#[test]
fn trouble_that_is_forgiven_is_looked_into_at_once() {
    let now = Instant::now();
    let mut knowledge = troubled(now);
    knowledge.forgive();
    assert_eq!(knowledge.trouble(), Some("broken"), "until a look has shown better");
    assert!(knowledge.begin_look(PAUSE, now));
}

#[test]
fn forgiving_a_server_without_trouble_changes_nothing() {
    let mut knowledge = known("x");
    knowledge.forgive();
    assert_eq!(knowledge.trouble(), None);
    assert!(!knowledge.begin_look(PAUSE, Instant::now()));
}

#[test]
fn a_forgotten_server_is_looked_at_anew() {
    let now = Instant::now();
    for mut knowledge in [known("x"), troubled(now)] {
        knowledge.forget();
        assert_eq!((said(&knowledge), knowledge.trouble()), (None, None));
        assert!(knowledge.begin_look(PAUSE, now));
    }
}

#[test]
fn the_lists_of_the_sessions_own_worker_win_over_a_look_that_ends_later() {
    let now = Instant::now();
    let mut knowledge = Knowledge::default();
    knowledge.begin_look(PAUSE, now);
    assert!(knowledge.refreshed(Some(catalogue("own"))));
    knowledge.looked(Ok(Arc::new(catalogue("probe"))), now);
    assert_eq!(said(&knowledge), Some("own"));
}

#[test]
fn equal_lists_keep_their_identity() {
    let mut knowledge = known("x");
    let before = Arc::clone(knowledge.catalogue().unwrap());
    assert!(!knowledge.refreshed(Some(catalogue("x"))));
    assert!(Arc::ptr_eq(&before, knowledge.catalogue().unwrap()));
    assert!(knowledge.refreshed(Some(catalogue("y"))));
    assert_eq!(said(&knowledge), Some("y"));
}

#[test]
fn lists_that_could_not_be_had_change_nothing() {
    let mut knowledge = troubled(Instant::now());
    assert!(!knowledge.refreshed(None));
    assert_eq!(knowledge.trouble(), Some("broken"));
}

#[test]
fn lists_of_the_sessions_own_worker_end_trouble() {
    let now = Instant::now();
    let mut knowledge = known("x");
    knowledge.looked(Err("broken".to_owned()), now);
    assert!(knowledge.refreshed(Some(catalogue("x"))), "the lists are the same, but they can be used now");
    assert_eq!(knowledge.trouble(), None);
}

#[test]
fn a_change_during_a_refresh_asks_for_exactly_one_more() {
    let mut knowledge = known("x");
    assert!(knowledge.begin_refresh());
    assert!(!knowledge.begin_refresh());
    assert!(!knowledge.begin_refresh());
    assert!(knowledge.end_refresh(), "they have changed since");
    assert!(!knowledge.begin_refresh(), "the second one runs");
    assert!(knowledge.end_refresh());
    assert!(!knowledge.end_refresh());
    assert!(knowledge.begin_refresh(), "none runs");
}
