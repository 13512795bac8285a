//! Deadlines of calls, of requests to the client, and of the session itself.

use super::*;
use crate::testing::just_before;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings {
        timeout: SECOND * 10,
        max_timeout: SECOND * 100,
        scope_timeout: SECOND * 5,
        idle_timeout: SECOND * 1000,
        handshake_timeout: SECOND * 50,
        ..Settings::default()
    }
}

/// A client with a call that was sent at the start.
fn with_call() -> (Arc<Client>, Arc<Call>, StreamReader, Instant) {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    client.note_initialized();
    let (call, reader) = call(&client, &request(1, "tools/call", "{}"));
    call.mark_sent(1, start);
    (client, call, reader, start)
}

/// The error of the one overdue call, if there is one.
fn overdue(client: &Client, now: Instant) -> Option<String> {
    let mut calls = client.expire(now).calls;
    assert!(calls.len() < 2);
    calls.pop().map(|(_, error)| error.message)
}

#[test]
fn a_call_is_given_up_when_its_time_is_over() {
    let (client, call, mut reader, start) = with_call();
    assert_eq!(overdue(&client, just_before(start + SECOND * 10)), None);
    let message = overdue(&client, start + SECOND * 10).unwrap();
    assert!(message.contains("no answer and no progress for 10 s (--timeout)"), "{message}");
    assert_eq!(client.context().counters.timeouts.get(), 1);
    assert!(call.is_open() && rest(&mut reader).is_empty(), "answering it is left to the caller");
}

#[test]
fn a_call_that_was_not_sent_has_no_deadline() {
    let client = client(&context_with(settings()));
    let (_call, _reader) = call(&client, &request(1, "tools/call", "{}"));
    assert_eq!(overdue(&client, Instant::now() + SECOND * 1000), None);
}

#[test]
fn a_call_that_was_answered_has_no_deadline() {
    let (client, call, _reader, start) = with_call();
    call.answer(text("{}"), CallOutcome::Ok);
    assert_eq!(overdue(&client, start + SECOND * 1000), None);
}

#[test]
fn progress_extends_the_time_of_a_call_up_to_the_longest() {
    let (client, call, _reader, start) = with_call();
    for seconds in (0..100).step_by(9) {
        call.clock().refresh(start + SECOND * seconds);
        assert_eq!(overdue(&client, start + SECOND * seconds), None, "{seconds}");
    }
    assert_eq!(overdue(&client, just_before(start + SECOND * 100)), None);
    let message = overdue(&client, start + SECOND * 100).unwrap();
    assert!(message.contains("it ran for more than 100 s (--max-timeout)"), "{message}");
}

#[test]
fn time_stands_still_while_an_upstream_asks_the_client() {
    let (client, _call, _reader, start) = with_call();
    let asking = request(1, "elicitation/create", "{}");
    let number = client.accept_request(WorkerId::next(), &asking).unwrap();
    assert_eq!(overdue(&client, start + SECOND * 50), None);
    client.take_answer(&response(number, "{}"));
    assert_eq!(overdue(&client, just_before(start + SECOND * 60)), None, "it counts from the last look");
    assert!(overdue(&client, start + SECOND * 60).is_some());
}

#[test]
fn a_client_that_is_asked_does_not_extend_the_longest_time() {
    let (client, _call, _reader, start) = with_call();
    client.accept_request(WorkerId::next(), &request(1, "elicitation/create", "{}")).unwrap();
    assert!(overdue(&client, start + SECOND * 100).is_some());
}

#[test]
fn the_gateways_own_questions_do_not_stop_the_time() {
    let (client, _call, _reader, start) = with_call();
    client.request_roots(None, RootsPurpose::Lock);
    assert!(overdue(&client, start + SECOND * 10).is_some());
    assert!(client.is_asked_for(RootsPurpose::Lock), "it still waits for the answer");
}

#[test]
fn a_server_may_have_limits_of_its_own() {
    let (client, call, _reader, start) = with_call();
    let own = assignment(WorkerId::next());
    call.assign(Assignment { timeout: SECOND * 20, max_timeout: SECOND * 30, ..own });
    assert_eq!(overdue(&client, start + SECOND * 15), None);
    assert!(overdue(&client, start + SECOND * 20).unwrap().contains("20 s"));
    assert!(overdue(&client, start + SECOND * 30).unwrap().contains("30 s"));
}

#[test]
fn each_overdue_call_is_told_with_its_own_id() {
    let (client, _call, _reader, start) = with_call();
    let (late, _late_reader) = call(&client, &request(2, "tools/call", "{}"));
    late.mark_sent(2, start + SECOND);
    let (early, _early_reader) = call(&client, &request(3, "tools/call", "{}"));
    early.mark_sent(3, start + SECOND * 9);
    let mut ids: Vec<_> = client
        .expire(start + SECOND * 11)
        .calls
        .iter()
        .map(|(call, _)| call.client_id.as_number().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn a_call_that_is_not_answered_soon_makes_its_connection_answer_with_a_stream() {
    use std::task::{Context, Poll, Waker};
    let (client, call, mut reader, _start) = with_call();
    let mut first = || {
        let future = std::pin::pin!(reader.first());
        Future::poll(future, &mut Context::from_waker(Waker::noop()))
    };
    client.expire(just_before(call.began + ANSWERED_SOON));
    assert!(first().is_pending());
    client.expire(call.began + ANSWERED_SOON);
    assert!(matches!(first(), Poll::Ready(crate::First::Late)));
}

#[test]
fn requests_toward_the_client_are_given_up_by_kind() {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    let worker = WorkerId::next();
    client.accept_request(worker, &request(7, "sampling/createMessage", "{}")).unwrap();
    client.request_roots(None, RootsPurpose::Compare);
    client.request_roots(None, RootsPurpose::Lock);
    // The requests were made between `start` and `end`.
    let end = Instant::now();
    assert!(client.expire(just_before(start + SECOND * 5)).server_requests.is_empty());
    let compare = [ServerRequestKind::Roots(RootsPurpose::Compare)];
    assert_eq!(client.expire(end + SECOND * 5).server_requests, compare);
    assert!(client.expire(just_before(start + SECOND * 100)).server_requests.is_empty());
    let given_up = client.expire(end + SECOND * 100).server_requests;
    let upstream = ServerRequestKind::Upstream { worker, id: Id::number(7), progress_token: None };
    assert!(given_up.len() == 2 && given_up.contains(&upstream));
    assert!(matches!(client.take_answer(&response(1, "{}")), Answered::Late));
}

#[test]
fn a_session_that_is_not_used_ends() {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    client.note_initialized();
    assert_eq!(client.expire(just_before(start + SECOND * 1000)).end, None);
    assert_eq!(client.expire(start + SECOND * 1000).end, Some(EndReason::Idle));
}

#[test]
fn a_session_whose_handshake_is_not_finished_ends_sooner() {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    assert_eq!(client.expire(just_before(start + SECOND * 50)).end, None);
    assert_eq!(client.expire(start + SECOND * 50).end, Some(EndReason::NeverInitialized));
}

#[test]
fn a_session_with_a_call_in_flight_is_used() {
    let (client, call, _reader, start) = with_call();
    let later = start + SECOND * 5000;
    assert_eq!(client.expire(later).end, None);
    call.answer(text("{}"), CallOutcome::Ok);
    assert_eq!(client.expire(just_before(later + SECOND * 1000)).end, None, "it counts from the last look");
    assert_eq!(client.expire(later + SECOND * 1000).end, Some(EndReason::Idle));
}

#[test]
fn a_session_whose_stream_is_read_is_used() {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    client.note_initialized();
    let listening = client.listen(None, None).unwrap();
    assert_eq!(client.expire(start + SECOND * 5000).end, None);
    drop(listening);
    assert_eq!(client.expire(start + SECOND * 6000).end, Some(EndReason::Idle));
}

#[test]
fn a_session_with_another_listening_client_is_used() {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    client.note_initialized();
    let other = Instance::named("other").unwrap();
    let _listening = client.listen(Some(&other), None).unwrap();
    assert_eq!(client.expire(start + SECOND * 5000).end, None);
}

#[test]
fn a_client_that_shows_itself_uses_its_session() {
    let start = Instant::now();
    let client = opened_at(&context_with(settings()), start);
    client.note_initialized();
    client.touch();
    // The touch came after `start`, so the idle time is not over yet.
    assert_eq!(client.expire(start + SECOND * 1000).end, None);
}

#[test]
fn no_session_becomes_older_than_it_may() {
    let limit = SECOND * 200;
    let start = Instant::now();
    let client = opened_at(&context_with(Settings { max_age: Some(limit), ..settings() }), start);
    client.note_initialized();
    let _listening = client.listen(None, None).unwrap();
    assert_eq!(client.expire(just_before(start + limit)).end, None);
    assert_eq!(client.expire(start + limit).end, Some(EndReason::Expired), "used or not");
}

#[test]
fn an_ended_session_is_reported_with_its_reason_until_it_is_gone() {
    let (client, _call, _reader, start) = with_call();
    client.end(ended(EndReason::Stopped));
    assert_eq!(client.expire(start).end, Some(EndReason::Stopped));
}

#[test]
fn a_client_that_stopped_listening_seems_gone_after_its_grace() {
    let start = Instant::now();
    let client = opened_at(&context_with(Settings { client_grace: SECOND * 20, ..settings() }), start);
    client.note_initialized();
    let listening = client.listen(None, None).unwrap();
    let last_heard = start + SECOND * 500;
    assert!(!client.expire(last_heard).is_deserted, "it listens");
    drop(listening);
    assert!(!client.expire(just_before(last_heard + SECOND * 20)).is_deserted);
    assert!(client.expire(last_heard + SECOND * 20).is_deserted);
}

#[test]
fn a_client_that_never_listened_is_waited_for_longer() {
    let start = Instant::now();
    let client = opened_at(&context_with(Settings { client_grace: SECOND * 20, ..settings() }), start);
    client.note_initialized();
    assert!(!client.expire(just_before(start + SECOND * 60)).is_deserted);
    assert!(client.expire(start + SECOND * 60).is_deserted);
    let (call, _reader) = call(&client, &request(1, "tools/call", "{}"));
    call.mark_sent(1, start + SECOND * 60);
    assert!(!client.expire(start + SECOND * 61).is_deserted, "a call is in flight");
}

#[test]
fn a_client_that_comes_back_to_its_streams_is_waited_for_longer() {
    let start = Instant::now();
    let client = opened_at(&context_with(Settings { client_grace: SECOND * 20, ..settings() }), start);
    client.note_initialized();
    drop(client.listen(None, None).unwrap());
    let last_heard = start + SECOND * 500;
    client.state.lock().last_used = last_heard;
    assert!(client.expire(last_heard + SECOND * 20).is_deserted, "the control");
    drop(client.listen(None, Some(EventId { stream: 0, sequence: 0 })).unwrap());
    client.state.lock().last_used = last_heard;
    assert!(!client.expire(just_before(last_heard + SECOND * 60)).is_deserted);
    assert!(client.expire(last_heard + SECOND * 60).is_deserted);
}

#[test]
fn a_client_that_was_told_to_come_back_is_waited_for_longer() {
    let start = Instant::now();
    let client = opened_at(&context_with(Settings { client_grace: SECOND * 20, ..settings() }), start);
    client.note_initialized();
    client.listen(None, None).unwrap().park();
    let last_heard = start + SECOND * 500;
    client.state.lock().last_used = last_heard;
    assert!(!client.expire(just_before(last_heard + SECOND * 60)).is_deserted);
    assert!(client.expire(last_heard + SECOND * 60).is_deserted);
    // It comes back, and leaves without being told to.
    drop(client.listen(None, None).unwrap());
    client.state.lock().last_used = last_heard;
    assert!(client.expire(last_heard + SECOND * 20).is_deserted);
}

#[test]
fn what_a_deserted_client_had_in_memory_goes_once_until_it_is_used_again() {
    let start = Instant::now();
    let client = opened_at(&context_with(Settings { client_grace: SECOND * 20, ..settings() }), start);
    client.note_initialized();
    let (call, reader) = call(&client, &request(1, "tools/call", "{}"));
    client.make_resumable(&reader);
    call.answer(text("answer"), CallOutcome::Ok);
    drop(reader);
    let mut listening = client.listen(None, None).unwrap();
    client.deliver(text("read"), Keep::IfRoom, Prefer::Standalone);
    assert_eq!(rest(&mut listening), ["read"]);
    drop(listening);
    client.deliver(text("unread"), Keep::IfRoom, Prefer::Standalone);
    let last_heard = start + SECOND * 500;
    client.state.lock().last_used = last_heard;
    assert!(!client.shed(just_before(last_heard + SECOND * 20)), "it may come back");
    assert!(client.is_of_a_call(1));
    assert!(client.shed(last_heard + SECOND * 20));
    assert!(!client.is_of_a_call(1), "nobody fetched the answer");
    assert_eq!(client.standalone().kept_bytes(), "unread".len());
    assert!(!client.shed(last_heard + SECOND * 30), "nothing is left");
    let mut back = client.listen(None, None).unwrap();
    assert_eq!(rest(&mut back), ["unread"]);
    drop(back);
    client.state.lock().last_used = last_heard + SECOND * 40;
    assert!(client.shed(last_heard + SECOND * 60), "it was there in between");
}
