//! The end: every call is answered, every stream ends, and nothing new begins.

use super::*;

#[test]
fn the_end_answers_every_call_in_flight() {
    let client = client(&context());
    let mut readers: Vec<_> = (1..=3).map(|id| call(&client, &request(id, "tools/call", "{}")).1).collect();
    assert!(client.end(ended(EndReason::Deleted)));
    for (reader, id) in readers.iter_mut().zip(1..) {
        let answer = next_json(reader);
        assert_eq!(
            (&answer["id"], &answer["error"]["data"]["reason"]),
            (&json!(id), &json!("session_ended"))
        );
        assert!(rest(reader).is_empty());
    }
    assert_eq!((client.activity().in_flight, client.activity().errors), (0, 3));
}

#[test]
fn a_reason_for_the_client_is_the_answer_to_its_calls() {
    let client = client(&context());
    let (call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    let error = Some(ErrorReply::new(-7, "roots changed"));
    client.end(SessionEnd { reason: EndReason::RootsChangeRejected, error });
    assert_eq!(next_json(&mut reader)["error"]["message"], "roots changed");
    call.answer(text("late"), CallOutcome::Ok);
    assert!(rest(&mut reader).is_empty());
}

#[test]
fn a_session_ends_once_and_for_the_first_reason() {
    let client = client(&context());
    assert!(!client.has_ended() && client.ended().is_none());
    assert!(client.end(ended(EndReason::Deleted)));
    assert!(!client.end(ended(EndReason::Idle)));
    assert!(client.has_ended());
    assert_eq!(client.ended().unwrap().reason, EndReason::Deleted);
    assert_eq!(client.record().end.as_ref().unwrap().reason, EndReason::Deleted);
}

#[test]
fn the_end_ends_every_stream() {
    use std::task::{Context, Poll, Waker};
    let client = client(&context());
    let mut own = client.listen(None, None).unwrap();
    let mut other = client.listen(Some(&Instance::named("other").unwrap()), None).unwrap();
    let (call, mut of_call) = call(&client, &request(1, "tools/call", "{}"));
    client.make_resumable(&of_call);
    client.end(ended(EndReason::Deleted));
    assert_eq!(rest(&mut of_call).len(), 1, "its answer");
    for reader in [&mut own, &mut other, &mut of_call] {
        let next = reader.poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next, Poll::Ready(crate::Next::End)), "{next:?}");
    }
    assert!(!call.is_open());
}

#[test]
fn nothing_begins_after_the_end() {
    let client = client(&context());
    let (_call, reader) = call(&client, &request(1, "tools/call", "{}"));
    client.end(ended(EndReason::Deleted));
    let again = client.begin_call(&request(2, "tools/call", "{}"), false);
    assert!(matches!(again, Err(Refusal::SessionNotFound)), "{again:?}");
    let asked = client.accept_request(WorkerId::next(), &request(1, "sampling/createMessage", "{}"));
    assert_eq!(asked.unwrap_err().data.unwrap()["reason"], "session_ended");
    client.make_resumable(&reader);
    assert!(!client.is_of_a_call(reader.stream_number()));
}

#[test]
fn a_client_that_calls_after_the_end_hears_the_reason() {
    let client = client(&context());
    let error = Some(ErrorReply::new(-7, "why"));
    client.end(SessionEnd { reason: EndReason::ScopeRefused, error });
    let refused = client.begin_call(&request(2, "tools/call", "{}"), false);
    assert!(matches!(refused, Err(Refusal::Terminated(reply)) if reply.message == "why"));
}

#[test]
fn a_client_that_listens_after_the_end_reads_a_stream_that_is_over() {
    use std::task::{Context, Poll, Waker};
    let client = client(&context());
    client.end(ended(EndReason::Deleted));
    for window in [None, Some(Instance::named("other").unwrap())] {
        let mut reader = client.listen(window.as_ref(), None).unwrap();
        let next = reader.poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next, Poll::Ready(crate::Next::End)), "{next:?}");
    }
}

#[test]
fn answers_of_the_client_after_the_end_are_late() {
    let client = client(&context());
    let asked = request(1, "sampling/createMessage", "{}");
    let number = client.accept_request(WorkerId::next(), &asked).unwrap();
    client.end(ended(EndReason::Deleted));
    assert!(matches!(client.take_answer(&response(number, "{}")), Answered::Late));
}

#[test]
fn a_cancellation_after_the_end_finds_nothing() {
    let client = client(&context());
    let (_call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    client.end(ended(EndReason::Deleted));
    assert!(client.cancel(&Id::number(1)).is_none());
    assert_eq!(rest(&mut reader).len(), 1, "one answer");
}
