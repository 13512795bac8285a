//! Requests to the client: which ones it may get, on which stream, and where its answers go.

use super::*;

fn sampling(id: u64) -> Request {
    request(id, "sampling/createMessage", "{}")
}

#[test]
fn a_client_is_asked_only_what_it_can_answer() {
    let context = context();
    let rows = [("sampling/createMessage", true), ("elicitation/create", false), ("roots/list", false)];
    let capabilities = ClientCapabilities { sampling: true, ..ClientCapabilities::default() };
    let client = Client::new(&context, record(), capabilities, Instant::now());
    for (method, is_allowed) in rows {
        let accepted = client.accept_request(WorkerId::next(), &request(1, method, "{}"));
        assert_eq!(accepted.is_ok(), is_allowed, "{method}");
        if let Err(error) = accepted {
            assert_eq!(error.code, code::METHOD_NOT_FOUND);
        }
    }
}

#[test]
fn requests_are_numbered_anew_for_the_client() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    for (id, number) in [(900, 1), (900, 2)] {
        assert_eq!(client.accept_request(WorkerId::next(), &sampling(id)).unwrap(), number);
        client.send_request(number, &sampling(id));
        assert_eq!(next_json(&mut listening)["id"], number);
    }
}

#[test]
fn an_answer_belongs_to_the_request_with_its_number_once() {
    let client = client(&context());
    let worker = WorkerId::next();
    let number = client.accept_request(worker, &sampling(900)).unwrap();
    let answered = client.take_answer(&response(number, "{}"));
    let Answered::Request(request) = answered else { panic!("{answered:?}") };
    let expected = ServerRequestKind::Upstream { worker, id: Id::number(900), progress_token: None };
    assert_eq!(request.kind, expected);
    assert!(matches!(client.take_answer(&response(number, "{}")), Answered::Late));
    assert!(matches!(client.take_answer(&response(number + 1, "{}")), Answered::Stray));
}

#[test]
fn unanswered_requests_are_bounded() {
    let client = client(&context());
    for id in 0..MAX_SERVER_REQUESTS as u64 {
        client.accept_request(WorkerId::next(), &sampling(id)).unwrap();
    }
    let refused = client.accept_request(WorkerId::next(), &sampling(1)).unwrap_err();
    assert!(refused.message.contains("too many"), "{}", refused.message);
    client.take_answer(&response(1, "{}"));
    assert!(client.accept_request(WorkerId::next(), &sampling(1)).is_ok());
}

#[test]
fn a_request_is_seen_on_a_call_of_the_worker_that_asks() {
    let client = client(&context());
    let _listening = client.listen(None, None).unwrap();
    let worker = WorkerId::next();
    let (own, mut own_reader) = call(&client, &request(1, "tools/call", "{}"));
    own.assign(assignment(worker));
    let (other, mut other_reader) = call(&client, &request(2, "tools/call", "{}"));
    other.assign(assignment(WorkerId::next()));
    let number = client.accept_request(worker, &sampling(5)).unwrap();
    client.send_request(number, &sampling(5));
    assert_eq!((rest(&mut own_reader).len(), rest(&mut other_reader).len()), (1, 0));
}

#[test]
fn a_worker_without_a_call_asks_on_the_newest_call_or_the_standalone_stream() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    let number = client.accept_request(WorkerId::next(), &sampling(5)).unwrap();
    client.send_request(number, &sampling(5));
    assert_eq!(rest(&mut listening).len(), 1);

    let (_call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    let number = client.accept_request(WorkerId::next(), &sampling(6)).unwrap();
    client.send_request(number, &sampling(6));
    assert_eq!((rest(&mut listening).len(), rest(&mut reader).len()), (0, 1));
}

#[test]
fn a_withdrawn_request_is_not_sent_and_its_answer_is_late() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    let number = client.accept_request(WorkerId::next(), &sampling(5)).unwrap();
    client.withdraw_request(number, None);
    client.send_request(number, &sampling(5));
    let notice = next_json(&mut listening);
    assert_eq!(
        (&notice["method"], &notice["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(number))
    );
    assert!(rest(&mut listening).is_empty());
    assert!(matches!(client.take_answer(&response(number, "{}")), Answered::Late));
}

#[test]
fn a_withdrawal_is_told_once_and_in_the_words_given() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    let number = client.accept_request(WorkerId::next(), &sampling(5)).unwrap();
    client.withdraw_request(number, Some(text("own words")));
    client.withdraw_request(number, Some(text("again")));
    assert_eq!(rest(&mut listening), ["own words"]);
}

#[test]
fn a_withdrawal_is_told_elsewhere_if_the_stream_of_the_request_ended() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    let (call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    let number = client.accept_request(WorkerId::next(), &sampling(5)).unwrap();
    client.send_request(number, &sampling(5));
    call.answer(text("answer"), CallOutcome::Ok);
    client.withdraw_request(number, Some(text("withdrawn")));
    assert_eq!(rest(&mut reader).len(), 2, "the request and the answer");
    assert_eq!(rest(&mut listening), ["withdrawn"]);
}

#[test]
fn progress_on_a_request_goes_to_the_worker_whose_token_it_has() {
    let client = client(&context());
    let worker = WorkerId::next();
    let with_token = request(5, "sampling/createMessage", r#"{"_meta":{"progressToken":"t"}}"#);
    let number = client.accept_request(worker, &with_token).unwrap();
    client.accept_request(WorkerId::next(), &sampling(6)).unwrap();
    let token = |text: &str| Id::from_raw(serde_json::from_str(text).unwrap()).unwrap();
    assert_eq!(client.worker_for_progress(&token(r#""t""#)), Some(worker));
    assert_eq!(client.worker_for_progress(&token("7")), None);
    client.take_answer(&response(number, "{}"));
    assert_eq!(client.worker_for_progress(&token(r#""t""#)), None, "it was answered");
}

#[test]
fn the_gateway_asks_for_roots_on_the_given_stream() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    let (call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    client.request_roots(Some(Arc::clone(&call.stream)), RootsPurpose::Lock);
    let asked = next_json(&mut reader);
    assert_eq!((&asked["method"], &asked["id"]), (&json!("roots/list"), &json!(1)));
    assert!(rest(&mut listening).is_empty());
    assert!(client.is_asked_for(RootsPurpose::Lock) && !client.is_asked_for(RootsPurpose::Compare));
}

#[test]
fn questions_that_were_to_lock_the_scope_are_forgotten_together() {
    let client = client(&context());
    for purpose in [RootsPurpose::Lock, RootsPurpose::Compare, RootsPurpose::Lock] {
        client.request_roots(None, purpose);
    }
    client.forget_lock_requests();
    assert!(!client.is_asked_for(RootsPurpose::Lock) && client.is_asked_for(RootsPurpose::Compare));
    assert!(matches!(client.take_answer(&response(3, "{}")), Answered::Late));
}

#[test]
fn a_client_that_the_gateway_spoke_for_may_say_initialize_once() {
    let client = client(&context());
    let params = r#"{"protocolVersion":"2025-06-18","capabilities":{"sampling":{}},"clientInfo":{}}"#;
    let initialize = request(0, "initialize", params);
    assert!(matches!(client.initialize_late(&initialize), Err(Refusal::AlreadyInitialized)));

    client.expect_initialize();
    assert!(client.accept_request(WorkerId::next(), &sampling(1)).is_err(), "it has declared nothing yet");
    let broken = request(0, "initialize", "[]");
    assert!(matches!(client.initialize_late(&broken), Err(Refusal::BadInitialize(_))));
    assert!(client.initialize_late(&initialize).is_ok(), "a broken one does not count");
    assert!(client.accept_request(WorkerId::next(), &sampling(1)).is_ok());
    assert!(matches!(client.initialize_late(&initialize), Err(Refusal::AlreadyInitialized)));
}

#[test]
fn subscriptions_are_remembered_by_server_and_uri() {
    let client = client(&context());
    client.note_subscription("a", "file:///x", true);
    client.note_subscription("a", "file:///x", true);
    client.note_subscription("b", "file:///x", true);
    assert_eq!(client.record().subscriptions.len(), 2);
    client.note_subscription("a", "file:///x", false);
    let left = Subscription { server: "b".to_owned(), uri: "file:///x".to_owned() };
    assert_eq!(client.record().subscriptions.iter().collect::<Vec<_>>(), [&left]);
}
