//! When and on which stream the client is asked for its roots.

use super::*;
use crate::settings::PARKED_FOR;

#[test]
fn the_client_is_not_asked_before_its_handshake_is_finished() {
    let mut bench = Bench::new();
    let _listening = bench.standalone.attach(None);
    assert!(bench.send(1).actions.is_empty());
    assert!(bench.step(GateEvent::Listening).is_empty());
    assert!(bench.step_after(ASK_AGAIN_AFTER, GateEvent::Tick).is_empty());
}

#[test]
fn the_oldest_waiting_request_is_asked_on() {
    let mut bench = Bench::new();
    let _listening = bench.standalone.attach(None);
    let _sent = [5, 6].map(|id| bench.send(id));
    assert_eq!(asked_on(&bench.step(GateEvent::Initialized)), Some(5));
}

#[test]
fn without_a_waiting_request_the_standalone_stream_is_asked_on() {
    let mut bench = Bench::new();
    let _listening = bench.standalone.attach(None);
    assert_eq!(asked_on(&bench.step(GateEvent::Initialized)), Some(0));
}

#[test]
fn the_first_stream_that_the_client_opens_is_asked_on() {
    let mut bench = Bench::initialized();
    assert_eq!(asked_on(&bench.send(3).actions), Some(3), "a request");
    let mut bench = Bench::initialized();
    let _listening = bench.standalone.attach(None);
    assert_eq!(asked_on(&bench.step(GateEvent::Listening)), Some(0), "the standalone stream");
}

#[test]
fn a_stream_for_an_answer_alone_is_not_asked_on() {
    let mut bench = Bench::initialized();
    assert!(bench.send_with(1, Duration::ZERO, "{}", true).actions.is_empty());
    assert_eq!(asked_on(&bench.send(2).actions), Some(2));
}

#[test]
fn a_request_whose_connection_closed_is_not_asked_on() {
    let mut bench = Bench::new();
    drop(bench.send(1).reader);
    let _read = bench.send(2);
    assert_eq!(asked_on(&bench.step(GateEvent::Initialized)), Some(2));
}

#[test]
fn a_client_that_was_told_to_come_back_is_asked_where_it_will() {
    let mut bench = Bench::new();
    bench.send(1).reader.park();
    assert_eq!(asked_on(&bench.step(GateEvent::Initialized)), Some(1));

    let mut bench = Bench::new();
    bench.send(1).reader.park();
    // It parked a moment after the start; twice the time makes sure that it has passed.
    assert_eq!(asked_on(&bench.step_after(PARKED_FOR * 2, GateEvent::Initialized)), None);
}

#[test]
fn one_question_at_a_time_as_long_as_its_stream_is_read() {
    let mut bench = Bench::initialized();
    let first = bench.send(1);
    assert_eq!(asked_on(&first.actions), Some(1));
    assert!(bench.send(2).actions.is_empty());
    for event in [GateEvent::Initialized, GateEvent::Listening, GateEvent::Tick] {
        assert!(bench.step(event).is_empty());
    }
}

#[test]
fn a_request_that_waits_for_long_is_asked_on_too() {
    let mut bench = Bench::initialized();
    let _sent = [1, 2].map(|id| bench.send(id));
    let just_before = ASK_AGAIN_AFTER.saturating_sub(Duration::from_nanos(1));
    assert!(bench.step_after(just_before, GateEvent::Tick).is_empty());
    assert_eq!(asked_on(&bench.step_after(ASK_AGAIN_AFTER, GateEvent::Tick)), Some(2));
    let later = ASK_AGAIN_AFTER * 2;
    assert!(bench.step_after(later, GateEvent::Tick).is_empty(), "every waiting request was asked on");
}

#[test]
fn a_client_with_one_stream_is_asked_once() {
    let mut bench = Bench::with_one_stream();
    bench.step(GateEvent::Initialized);
    let _sent = [1, 2].map(|id| bench.send(id));
    assert!(bench.step_after(ASK_AGAIN_AFTER * 5, GateEvent::Tick).is_empty());
}

#[test]
fn a_question_whose_stream_closed_is_asked_again_at_once() {
    let mut bench = Bench::initialized();
    let (first, _second) = (bench.send(1), bench.send(2));
    drop(first.reader);
    assert_eq!(asked_on(&bench.step(GateEvent::Tick)), Some(2));
}

#[test]
fn a_question_whose_stream_ended_is_asked_again_on_the_next_one() {
    let mut bench = Bench::initialized();
    let first = bench.send(1);
    first.call.stream.answer(bytes::Bytes::from_static(b"{}").into());
    bench.step(GateEvent::Cancelled(first.call));
    let _listening = bench.standalone.attach(None);
    assert_eq!(asked_on(&bench.step(GateEvent::Listening)), Some(0));
}

#[test]
fn a_client_is_asked_three_times_at_most() {
    let mut bench = Bench::initialized();
    let asked: Vec<_> = (1..=5).filter_map(|id| asked_on(&bench.send(id).actions)).collect();
    assert_eq!(asked, [1, 2, 3], "each stream closed at once");
    assert!(bench.step_after(ASK_AGAIN_AFTER, GateEvent::Tick).is_empty());
}

#[test]
fn a_client_that_tries_again_after_the_deadline_is_asked_again() {
    let mut bench = Bench::initialized();
    for id in 1..=3 {
        drop(bench.send(id).reader);
    }
    assert_eq!(failed(&bench.step_after(DEADLINE, GateEvent::Tick)).0, [1, 2, 3]);
    assert_eq!(asked_on(&bench.send_after(DEADLINE, 4).actions), Some(4));
}

#[test]
fn no_client_is_asked_after_an_answer_or_a_lock() {
    for event in [GateEvent::RootsAnswered(RootsAnswer::None), GateEvent::Locked, GateEvent::Ended] {
        let mut bench = Bench::new();
        let _listening = bench.standalone.attach(None);
        bench.step(event);
        assert_eq!(asked_on(&bench.step(GateEvent::Initialized)), None);
        assert_eq!(asked_on(&bench.step(GateEvent::Listening)), None);
        assert_eq!(asked_on(&bench.step_after(ASK_AGAIN_AFTER, GateEvent::Tick)), None);
    }
}
