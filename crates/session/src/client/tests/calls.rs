//! Calls: each is answered once, by its upstream, by a cancellation or by an error.

use super::*;

#[test]
fn a_call_is_answered_once() {
    let client = client(&context());
    let (call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    assert!(call.is_open());
    call.answer(text("first"), CallOutcome::Ok);
    assert!(!call.is_open());
    call.answer(text("second"), CallOutcome::Error);
    call.fail(&session_ended());
    assert_eq!(rest(&mut reader), ["first"]);
    assert_eq!(client.activity().errors, 0, "an answer that comes too late counts as nothing");
}

#[test]
fn an_error_answers_with_the_id_that_the_client_gave() {
    let client = client(&context());
    let (call, mut reader) = call(&client, &request(77, "tools/call", "{}"));
    call.fail(&ErrorReply::new(-5, "why"));
    let answer = next_json(&mut reader);
    assert_eq!((&answer["id"], &answer["error"]["message"]), (&json!(77), &json!("why")));
}

#[test]
fn an_id_is_free_again_when_its_call_was_answered() {
    let client = client(&context());
    let request = request(1, "tools/call", "{}");
    let (first, _reader) = call(&client, &request);
    assert!(matches!(client.begin_call(&request, false), Err(Refusal::IdInUse(id)) if id == request.id));
    assert!(first.is_open(), "the call that runs is not disturbed");
    first.answer(text("{}"), CallOutcome::Ok);
    assert!(client.begin_call(&request, false).is_ok());
}

#[test]
fn a_number_and_a_text_are_different_ids() {
    let client = client(&context());
    let _number = call(&client, &request(1, "tools/call", "{}"));
    let text = r#"{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{}}"#;
    let wire::Message::Request(text) = crate::testing::message(text) else { panic!("a request") };
    assert!(client.begin_call(&text, false).is_ok());
}

#[test]
fn the_call_of_another_with_the_same_id_is_not_answered_in_its_place() {
    let client = client(&context());
    let request = request(1, "tools/call", "{}");
    let (old, _old_reader) = call(&client, &request);
    old.answer(text("old"), CallOutcome::Ok);
    let (new, mut reader) = call(&client, &request);
    old.answer(text("again"), CallOutcome::Ok);
    assert!(new.is_open() && rest(&mut reader).is_empty());
    new.answer(text("new"), CallOutcome::Ok);
    assert_eq!(rest(&mut reader), ["new"]);
}

#[test]
fn calls_of_one_client_are_bounded() {
    let client = client(&context_with(Settings { max_calls: 2, ..Settings::default() }));
    let (first, _) = call(&client, &request(1, "tools/call", "{}"));
    let _second = call(&client, &request(2, "tools/call", "{}"));
    let third = request(3, "tools/call", "{}");
    assert!(matches!(client.begin_call(&third, false), Err(Refusal::TooManyCalls { limit: 2 })));
    first.answer(text("{}"), CallOutcome::Ok);
    assert!(client.begin_call(&third, false).is_ok());
}

#[test]
fn a_cancelled_call_is_answered_and_handed_to_the_caller() {
    let client = client(&context());
    let (call, mut reader) = call(&client, &request(4, "tools/call", "{}"));
    let cancelled = client.cancel(&Id::number(4)).expect("it was running");
    assert!(Arc::ptr_eq(&cancelled, &call));
    let answer = next_json(&mut reader);
    assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (&json!(4), &json!("cancelled")));
    call.answer(text("late"), CallOutcome::Ok);
    assert!(rest(&mut reader).is_empty());
}

#[test]
fn only_a_running_call_can_be_cancelled_and_only_once() {
    let client = client(&context());
    let (_call, _reader) = call(&client, &request(4, "tools/call", "{}"));
    let (other, mut other_reader) = call(&client, &request(5, "tools/call", "{}"));
    assert!(client.cancel(&Id::number(9)).is_none());
    assert!(client.cancel(&Id::number(4)).is_some());
    assert!(client.cancel(&Id::number(4)).is_none());
    assert!(other.is_open() && rest(&mut other_reader).is_empty());
}

#[test]
fn errors_and_timeouts_count_as_errors_and_nothing_else_does() {
    let context = context();
    let client = client(&context);
    let outcomes = [
        CallOutcome::Ok,
        CallOutcome::ToolError,
        CallOutcome::Error,
        CallOutcome::Timeout,
        CallOutcome::Cancelled,
    ];
    for (outcome, id) in outcomes.into_iter().zip(1..) {
        call(&client, &request(id, "tools/call", "{}")).0.answer(text("{}"), outcome);
    }
    let activity = client.activity();
    assert_eq!((activity.calls, activity.errors, activity.in_flight), (5, 2, 0));
    assert_eq!((context.counters.calls.get(), context.counters.call_errors.get()), (5, 2));
}

#[test]
fn a_call_in_flight_is_counted_until_it_is_answered() {
    let client = client(&context());
    let (call, _reader) = call(&client, &request(1, "tools/call", "{}"));
    assert_eq!(client.activity().in_flight, 1);
    call.answer(text("{}"), CallOutcome::Ok);
    assert_eq!(client.activity().in_flight, 0);
}

#[test]
fn progress_arrives_before_the_answer_on_the_stream_of_its_call() {
    let client = client(&context());
    let (call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    call.deliver_progress(text("progress"));
    call.answer(text("answer"), CallOutcome::Ok);
    call.deliver_progress(text("late"));
    assert_eq!(rest(&mut reader), ["progress", "answer"]);
}

#[test]
fn progress_of_a_call_in_a_batch_goes_to_the_standalone_stream() {
    let client = client(&context());
    let (call, mut reader) = client.begin_call(&request(1, "tools/call", "{}"), true).unwrap();
    let mut listening = client.listen(None, None).unwrap();
    call.deliver_progress(text("progress"));
    call.answer(text("answer"), CallOutcome::Ok);
    assert_eq!(rest(&mut reader), ["answer"]);
    assert_eq!(rest(&mut listening), ["progress"]);
}

#[test]
fn an_answer_without_a_call_is_a_stream_of_its_own() {
    let client = client(&context());
    let mut reader = client.answered(text("pong"));
    assert_eq!(rest(&mut reader), ["pong"]);
    assert_eq!(client.activity().calls, 0);
}

#[test]
fn a_call_belongs_to_the_first_worker_that_gets_it() {
    let client = client(&context());
    let (call, _reader) = call(&client, &request(1, "tools/call", "{}"));
    assert!(call.assignment().is_none());
    let (first, second) = (WorkerId::next(), WorkerId::next());
    call.assign(assignment(first));
    call.assign(assignment(second));
    assert_eq!(call.assignment().unwrap().worker, first);
}

#[test]
fn the_upstreams_id_is_known_once_the_call_was_sent() {
    let client = client(&context());
    let (call, _reader) = call(&client, &request(1, "tools/call", "{}"));
    assert_eq!(call.sent_as(), None);
    call.mark_sent(12, Instant::now());
    assert_eq!(call.sent_as(), Some(12));
}

#[test]
fn a_call_keeps_the_progress_token_and_whether_it_is_a_task() {
    let client = client(&context());
    let (plain, _reader) = call(&client, &request(1, "tools/call", "{}"));
    assert!(plain.progress_token.is_none() && !plain.is_task);
    let params = r#"{"_meta":{"progressToken":"p"},"task":{}}"#;
    let (full, _reader) = call(&client, &request(2, "tools/call", params));
    assert_eq!(full.progress_token.as_deref(), Some(&br#""p""#[..]));
    assert!(full.is_task);
}
