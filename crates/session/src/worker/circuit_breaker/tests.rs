//! Tests of the pause that an upstream gets after several calls without an answer.

use std::time::Duration;

use super::*;

/// A breaker that has counted this many unanswered calls in a row.
fn after(unanswered: u32, now: Instant) -> CircuitBreaker {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..unanswered {
        breaker.note_unanswered(now);
    }
    breaker
}

fn refused(breaker: &mut CircuitBreaker, now: Instant) -> Option<(u32, Duration)> {
    match breaker.refusal(now)? {
        StartError::NotAnswering { unanswered, retry_in } => Some((unanswered, retry_in)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_few_unanswered_calls_are_let_pass() {
    let now = Instant::now();
    for unanswered in 0..MAX_UNANSWERED {
        assert_eq!(refused(&mut after(unanswered, now), now), None, "{unanswered}");
    }
}

#[test]
fn several_in_a_row_begin_a_pause() {
    let now = Instant::now();
    let mut breaker = after(MAX_UNANSWERED, now);
    assert_eq!(refused(&mut breaker, now), Some((MAX_UNANSWERED, BREAKER_PAUSE)));
    let rest = Duration::from_secs(10);
    let later = now + BREAKER_PAUSE.checked_sub(rest).unwrap();
    assert_eq!(refused(&mut breaker, later), Some((MAX_UNANSWERED, rest)));
}

#[test]
fn calls_pass_again_after_the_pause() {
    let now = Instant::now();
    let mut breaker = after(MAX_UNANSWERED, now);
    assert_eq!(refused(&mut breaker, now + BREAKER_PAUSE), None);
    assert_eq!(refused(&mut breaker, now), None, "it is closed until another call is left unanswered");
}

#[test]
fn one_more_unanswered_call_after_the_pause_begins_the_next() {
    let now = Instant::now();
    let mut breaker = after(MAX_UNANSWERED, now);
    let later = now + BREAKER_PAUSE;
    assert_eq!(refused(&mut breaker, later), None);
    breaker.note_unanswered(later);
    assert_eq!(refused(&mut breaker, later), Some((MAX_UNANSWERED + 1, BREAKER_PAUSE)));
}

#[test]
fn an_unanswered_call_during_the_pause_makes_it_longer() {
    let now = Instant::now();
    let mut breaker = after(MAX_UNANSWERED, now);
    let later = now + Duration::from_secs(10);
    breaker.note_unanswered(later);
    assert_eq!(refused(&mut breaker, later), Some((MAX_UNANSWERED + 1, BREAKER_PAUSE)));
}

#[test]
fn an_answer_begins_the_count_anew() {
    let now = Instant::now();
    let mut breaker = after(MAX_UNANSWERED, now);
    breaker.note_answer();
    assert_eq!(refused(&mut breaker, now), None);
    for _ in 1..MAX_UNANSWERED {
        breaker.note_unanswered(now);
    }
    assert_eq!(refused(&mut breaker, now), None);
}
