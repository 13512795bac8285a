//! Requests in front of the gate: how they wait, and how each of them leaves.

use super::*;

#[test]
fn requests_wait_in_order_and_are_released_once() {
    let mut bench = Bench::new();
    let sent = [1, 2, 3].map(|id| bench.send(id));
    assert!(sent.iter().all(|sent| sent.actions.is_empty()));
    assert_eq!(released(&bench.step(GateEvent::Locked)), [1, 2, 3]);
    assert!(bench.step(GateEvent::Locked).is_empty());
}

#[test]
fn an_open_gate_passes_each_request_on_at_once() {
    let mut bench = Bench::new();
    bench.step(GateEvent::Locked);
    for id in [7, 8] {
        assert_eq!(released(&bench.send(id).actions), [id]);
    }
    assert!(bench.step(GateEvent::Locked).is_empty(), "none of them was kept");
}

#[test]
fn the_first_answer_about_roots_is_vetted_and_every_other_ignored() {
    let mut bench = Bench::new();
    let actions = bench.step(GateEvent::RootsAnswered(named("file:///first")));
    let [GateAction::Vet(RootsAnswer::Named(uris))] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(uris, &["file:///first"]);
    for _ in 0..2 {
        assert!(matches!(bench.answer_roots()[..], [GateAction::IgnoreLateAnswer]));
    }
    bench.step(GateEvent::Locked);
    assert!(matches!(bench.answer_roots()[..], [GateAction::IgnoreLateAnswer]));
}

#[test]
fn an_answer_without_roots_is_vetted_like_any_other() {
    for answer in [RootsAnswer::None, RootsAnswer::Malformed("no list".to_owned())] {
        let mut bench = Bench::new();
        let actions = bench.step(GateEvent::RootsAnswered(answer));
        assert!(matches!(actions[..], [GateAction::Vet(_)]), "{actions:?}");
    }
}

#[test]
fn a_scope_that_was_named_otherwise_makes_answers_about_roots_late() {
    let mut bench = Bench::new();
    bench.step(GateEvent::Locked);
    assert!(matches!(bench.answer_roots()[..], [GateAction::IgnoreLateAnswer]));
}

#[test]
fn requests_that_come_while_directories_are_vetted_wait_behind_the_others() {
    let mut bench = Bench::initialized();
    let _first = bench.send(1);
    bench.answer_roots();
    let second = bench.send(2);
    assert!(second.actions.is_empty());
    assert_eq!(released(&bench.step(GateEvent::Locked)), [1, 2]);
}

#[test]
fn requests_fail_together_when_the_oldest_has_waited_for_too_long() {
    let mut bench = Bench::new();
    let _sent = [bench.send(1), bench.send_after(DEADLINE / 2, 2)];
    let just_before = DEADLINE.saturating_sub(Duration::from_nanos(1));
    assert!(bench.step_after(just_before, GateEvent::Tick).is_empty());
    assert_eq!(failed(&bench.step_after(DEADLINE, GateEvent::Tick)).0, [1, 2]);
    assert!(bench.step_after(DEADLINE * 2, GateEvent::Tick).is_empty(), "each fails once");
    assert!(bench.step(GateEvent::Locked).is_empty(), "what failed is not released");
}

#[test]
fn a_deadline_names_the_handshake_that_was_not_finished() {
    let mut bench = Bench::new();
    let _sent = bench.send(1);
    assert_eq!(failed(&bench.step_after(DEADLINE, GateEvent::Tick)).1, "initialized");
}

#[test]
fn a_deadline_names_the_stream_that_was_not_there() {
    let mut bench = Bench::initialized();
    let _sent = bench.send_with(1, Duration::ZERO, "{}", true);
    assert_eq!(failed(&bench.step_after(DEADLINE, GateEvent::Tick)).1, "stream");
}

#[test]
fn a_deadline_names_the_roots_that_were_not_told() {
    let mut bench = Bench::initialized();
    let _sent = bench.send(1);
    assert_eq!(failed(&bench.step_after(DEADLINE, GateEvent::Tick)).1, "roots");
}

#[test]
fn a_deadline_is_told_with_its_reason_and_length() {
    let mut bench = Bench::new();
    let _sent = bench.send(1);
    let actions = bench.step_after(DEADLINE, GateEvent::Tick);
    let [GateAction::Fail(_, reply)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(reply.code, code::SERVER_ERROR);
    assert_eq!(reply.data.as_ref().unwrap()["reason"], "scope_timeout");
    assert!(reply.message.contains("not known after 10 s"), "{}", reply.message);
    assert!(reply.message.contains("notifications/initialized"), "{}", reply.message);
}

#[test]
fn the_gates_own_work_is_not_held_against_the_client() {
    let mut bench = Bench::initialized();
    let _sent = bench.send(1);
    bench.answer_roots();
    assert!(bench.step_after(DEADLINE * 10, GateEvent::Tick).is_empty());
    assert_eq!(released(&bench.step(GateEvent::Locked)), [1]);
}

#[test]
fn a_cancelled_request_is_neither_released_nor_failed() {
    let mut bench = Bench::new();
    let sent = [1, 2, 3].map(|id| bench.send(id));
    assert!(bench.step(GateEvent::Cancelled(Arc::clone(&sent[1].call))).is_empty());
    assert_eq!(failed(&bench.step_after(DEADLINE, GateEvent::Tick)).0, [1, 3]);

    let sent = [4, 5].map(|id| bench.send(id));
    assert!(bench.step(GateEvent::Cancelled(Arc::clone(&sent[0].call))).is_empty());
    assert_eq!(released(&bench.step(GateEvent::Locked)), [5]);
}

#[test]
fn cancelling_what_does_not_wait_changes_nothing() {
    let mut bench = Bench::new();
    let (first, _second) = (bench.send(1), bench.send(2));
    let other = Bench::new().send(1);
    bench.step(GateEvent::Cancelled(other.call));
    assert_eq!(released(&bench.step(GateEvent::Locked)), [1, 2], "equal ids are not the same call");
    assert!(bench.step(GateEvent::Cancelled(first.call)).is_empty());
}

#[test]
fn more_requests_than_may_wait_are_refused_one_by_one() {
    let mut bench = Bench::new();
    let sent: Vec<_> = (1..=MAX_WAITING as u64).map(|id| bench.send(id)).collect();
    assert!(sent.iter().all(|sent| sent.actions.is_empty()));
    let refused = bench.send(9999);
    let [GateAction::RefuseOverflow(call)] = &refused.actions[..] else { panic!("{:?}", refused.actions) };
    assert!(Arc::ptr_eq(call, &refused.call));

    bench.step(GateEvent::Cancelled(Arc::clone(&sent[0].call)));
    assert!(bench.send(10_000).actions.is_empty(), "a cancelled one makes room");
    let released = released(&bench.step(GateEvent::Locked));
    assert_eq!((released.len(), released[0], *released.last().unwrap()), (MAX_WAITING, 2, 10_000));
}

#[test]
fn more_bytes_than_may_wait_are_refused_until_some_leave() {
    let half = format!(r#"{{"x":"{}"}}"#, "a".repeat(MAX_OUTBOX_BYTES / 2));
    let mut bench = Bench::new();
    let large = |bench: &mut Bench, id| bench.send_with(id, Duration::ZERO, &half, false);
    let first = large(&mut bench, 1);
    assert!(first.actions.is_empty());
    assert!(matches!(large(&mut bench, 2).actions[..], [GateAction::RefuseOverflow(_)]));
    let small = bench.send(3);
    assert!(small.actions.is_empty(), "a smaller one still fits");

    bench.step(GateEvent::Cancelled(first.call));
    assert!(large(&mut bench, 4).actions.is_empty());
    bench.step_after(DEADLINE, GateEvent::Tick);
    assert!(large(&mut bench, 5).actions.is_empty(), "what failed takes no room either");
}

#[test]
fn the_end_forgets_what_waits_and_opens_nothing() {
    let mut bench = Bench::initialized();
    let _sent = bench.send(1);
    assert!(bench.step(GateEvent::Ended).is_empty(), "the client has its answers already");
    assert!(bench.step(GateEvent::Locked).is_empty());
    assert!(bench.step_after(DEADLINE, GateEvent::Tick).is_empty());
    assert!(matches!(bench.answer_roots()[..], [GateAction::IgnoreLateAnswer]));
}

#[test]
fn each_stage_has_its_word() {
    let mut bench = Bench::new();
    assert_eq!(bench.gate.describe(), "opening");
    bench.step(GateEvent::Initialized);
    assert_eq!(bench.gate.describe(), "awaiting_scope");
    bench.answer_roots();
    assert_eq!(bench.gate.describe(), "locking");
    bench.step(GateEvent::Locked);
    assert_eq!(bench.gate.describe(), "ready");
}
