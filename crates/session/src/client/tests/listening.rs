//! Which stream a listening client reads, which it can resume, and where messages without a call go.

use super::*;

fn window(name: &str) -> Instance {
    Instance::named(name).unwrap()
}

/// A client whose session was opened by the window `opener`.
fn of_window(opener: &str) -> Arc<Client> {
    let record = SessionRecord { instance: window(opener), is_instance_named: true, ..record() };
    Client::new(&context(), record, ClientCapabilities::default(), Instant::now())
}

/// Resumes a stream after an event.
fn resume(client: &Client, stream: u64, sequence: u64) -> Result<StreamReader, Refusal> {
    client.listen(None, Some(EventId { stream, sequence }))
}

#[test]
fn the_opener_reads_the_sessions_own_stream() {
    assert_eq!(client(&context()).listen(None, None).unwrap().stream_number(), 0);
    assert_eq!(of_window("a").listen(Some(&window("a")), None).unwrap().stream_number(), 0);
}

#[test]
fn a_client_that_listens_again_takes_its_stream_over() {
    let client = of_window("a");
    let mut first = client.listen(Some(&window("a")), None).unwrap();
    let mut second = client.listen(Some(&window("a")), None).unwrap();
    client.deliver(text("news"), Keep::IfRoom, Prefer::Standalone);
    assert!(rest(&mut first).is_empty());
    assert_eq!(rest(&mut second), ["news"]);
}

#[test]
fn every_other_window_has_a_stream_of_its_own_and_comes_back_to_it() {
    let client = of_window("a");
    let b = client.listen(Some(&window("b")), None).unwrap().stream_number();
    let c = client.listen(Some(&window("c")), None).unwrap().stream_number();
    assert!(b != 0 && c != 0 && b != c);
    assert_eq!(client.listen(Some(&window("b")), None).unwrap().stream_number(), b);
}

#[test]
fn an_unnamed_client_of_a_named_session_reads_its_stream_while_it_is_vacant() {
    let client = of_window("a");
    let vacant = client.listen(None, None).unwrap();
    assert_eq!(vacant.stream_number(), 0);
    drop(vacant);
    let _opener = client.listen(Some(&window("a")), None).unwrap();
    assert_ne!(client.listen(None, None).unwrap().stream_number(), 0);
}

#[test]
fn listening_clients_are_bounded_and_one_that_left_makes_room() {
    let client = of_window("opener");
    let mut listening: Vec<_> =
        (0..8).map(|n| client.listen(Some(&window(&format!("w{n}"))), None).unwrap()).collect();
    let ninth = window("ninth");
    let refused = client.listen(Some(&ninth), None);
    assert!(matches!(refused, Err(Refusal::TooManyListeners { limit: 9 })), "{refused:?}");
    assert!(client.listen(Some(&window("opener")), None).is_ok(), "the opener always has its place");

    let left = listening.remove(3).stream_number();
    assert!(client.listen(Some(&ninth), None).is_ok());
    assert!(matches!(resume(&client, left, 0), Err(Refusal::UnknownEvent)));
}

#[test]
fn a_stream_of_a_call_can_be_resumed_if_its_client_knows_the_events() {
    let client = client(&context());
    let (call, reader) = call(&client, &request(1, "tools/call", "{}"));
    let number = reader.stream_number();
    assert!(!client.is_of_a_call(number));
    assert!(matches!(resume(&client, number, 0), Err(Refusal::UnknownEvent)));

    client.make_resumable(&reader);
    assert!(client.is_of_a_call(number));
    call.deliver_progress(text("progress"));
    call.answer(text("answer"), CallOutcome::Ok);
    for (after, expected) in [(0, &["progress", "answer"][..]), (1, &["answer"]), (2, &[])] {
        assert_eq!(rest(&mut resume(&client, number, after).unwrap()), expected);
    }
}

#[test]
fn the_standalone_stream_can_be_resumed_and_is_of_no_call() {
    let client = client(&context());
    for news in ["a", "b", "c"] {
        client.deliver(text(news), Keep::IfRoom, Prefer::Standalone);
    }
    assert_eq!(rest(&mut client.listen(None, None).unwrap()), ["a", "b", "c"]);
    assert_eq!(rest(&mut resume(&client, 0, 1).unwrap()), ["b", "c"]);
    assert!(!client.is_of_a_call(0));
}

#[test]
fn an_event_of_an_unknown_stream_is_refused() {
    let client = client(&context());
    assert!(matches!(resume(&client, 99, 0), Err(Refusal::UnknownEvent)));
}

#[test]
fn news_reach_every_listening_client_and_one_that_comes_back() {
    let client = of_window("a");
    let mut a = client.listen(Some(&window("a")), None).unwrap();
    let mut b = client.listen(Some(&window("b")), None).unwrap();
    drop(client.listen(Some(&window("c")), None).unwrap());
    client.deliver(text("news"), Keep::IfRoom, Prefer::Standalone);
    assert_eq!((rest(&mut a), rest(&mut b)), (vec!["news".to_owned()], vec!["news".to_owned()]));
    assert_eq!(rest(&mut client.listen(Some(&window("c")), None).unwrap()), ["news"]);
}

#[test]
fn a_message_that_needs_an_answer_reaches_one_listening_client() {
    let client = of_window("a");
    let mut b = client.listen(Some(&window("b")), None).unwrap();
    let mut c = client.listen(Some(&window("c")), None).unwrap();
    client.deliver(text("question"), Keep::Always, Prefer::Standalone);
    assert_eq!((rest(&mut b).len(), rest(&mut c).len()), (1, 0));
}

#[test]
fn what_belongs_to_a_call_goes_to_the_newest_one_that_is_read() {
    let client = client(&context());
    let mut listening = client.listen(None, None).unwrap();
    let (_first, mut first) = call(&client, &request(1, "tools/call", "{}"));
    let (_second, mut second) = call(&client, &request(2, "tools/call", "{}"));
    let (_left, left) = call(&client, &request(3, "tools/call", "{}"));
    let _batched = client.begin_call(&request(4, "tools/call", "{}"), true).unwrap();
    drop(left);
    client.deliver(text("log"), Keep::IfRoom, Prefer::Call);
    let seen = [&mut listening, &mut first, &mut second].map(|reader| rest(reader).len());
    assert_eq!(seen, [0, 0, 1]);
}

#[test]
fn without_a_call_the_standalone_stream_is_used_and_without_that_a_call() {
    let client = client(&context());
    client.deliver(text("kept"), Keep::IfRoom, Prefer::Call);
    let mut listening = client.listen(None, None).unwrap();
    assert_eq!(rest(&mut listening), ["kept"], "kept for a client that listens later");

    drop(listening);
    let (_call, mut reader) = call(&client, &request(1, "tools/call", "{}"));
    client.deliver(text("news"), Keep::IfRoom, Prefer::Standalone);
    assert_eq!(rest(&mut reader), ["news"], "the call is what the client reads");
}
