//! Tests of streams and their readers, polled by hand.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::settings::{MAX_STREAM_BYTES, MAX_STREAM_EVENTS};

fn stream() -> Arc<Stream> {
    Stream::new(1, false, &Arc::default())
}

fn text(content: &str) -> Text {
    bytes::Bytes::copy_from_slice(content.as_bytes()).into()
}

fn read_all(reader: &mut StreamReader) -> Vec<String> {
    let mut context = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    while let Poll::Ready(Next::Message(delivery)) = reader.poll_next(&mut context) {
        out.push(String::from_utf8(delivery.text.into_bytes().to_vec()).unwrap());
    }
    out
}

fn poll(reader: &mut StreamReader) -> Poll<Next> {
    reader.poll_next(&mut Context::from_waker(Waker::noop()))
}

fn poll_first(reader: &mut StreamReader) -> Poll<First> {
    pin!(reader.first()).poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts how often a connection is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wakes {
    /// Makes a reader wait, with this as its waker.
    fn wait_on(self: &Arc<Self>, reader: &mut StreamReader) {
        let waker = Waker::from(Arc::clone(self));
        assert!(reader.poll_next(&mut Context::from_waker(&waker)).is_pending());
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed_and_nothing_twice() {
    let stream = stream();
    let mut first = stream.attach(None);
    stream.push(text("a"), Keep::IfRoom);
    stream.push(text("b"), Keep::IfRoom);
    assert_eq!(read_all(&mut first), ["a", "b"]);
    drop(first);
    stream.answer(text("c"));
    assert_eq!(read_all(&mut stream.attach(Some(1))), ["b", "c"], "resumed after the first message");
    assert!(read_all(&mut stream.attach(None)).is_empty(), "all of it was delivered by now");
}

#[test]
fn a_newer_connection_takes_over_and_the_older_cannot_disturb_it() {
    let stream = stream();
    let mut old = stream.attach(None);
    let mut new = stream.attach(None);
    stream.push(text("a"), Keep::IfRoom);
    assert!(matches!(poll(&mut old), Poll::Ready(Next::TakenOver)));
    drop(old);
    assert!(stream.has_reader(Instant::now()));
    assert_eq!(read_all(&mut new), ["a"]);
}

#[test]
fn a_full_stream_loses_notifications_and_never_the_answer() {
    let stream = stream();
    stream.push(text("request"), Keep::Always);
    for number in 0..MAX_STREAM_EVENTS * 4 {
        stream.push(text(&number.to_string()), Keep::IfRoom);
    }
    stream.push(text(&"x".repeat(MAX_STREAM_BYTES)), Keep::Always);
    stream.answer(text("answer"));
    let seen = read_all(&mut stream.attach(None));
    assert_eq!(seen.first().unwrap(), "request");
    assert_eq!(seen.last().unwrap(), "answer");
    assert_eq!(
        usize::try_from(stream.counters.dropped_notifications.get()).unwrap(),
        MAX_STREAM_EVENTS * 4 + 3 - seen.len()
    );
}

#[test]
fn nothing_follows_the_answer() {
    let stream = stream();
    stream.answer(text("answer"));
    stream.push(text("late"), Keep::Always);
    assert_eq!(read_all(&mut stream.attach(None)), ["answer"]);
}

#[test]
fn a_parked_stream_still_counts_as_read() {
    let stream = stream();
    let reader = stream.attach(None);
    reader.park();
    assert!(stream.has_reader(Instant::now()));
    drop(stream.attach(None));
    assert!(!stream.has_reader(Instant::now()));
}

#[test]
fn a_waiting_connection_is_woken_by_each_kind_of_message() {
    let ways: [fn(&Stream); 3] =
        [|stream| stream.push(text("a"), Keep::IfRoom), |stream| stream.answer(text("a")), Stream::end];
    for way in ways {
        let (stream, wakes) = (stream(), Arc::new(Wakes::default()));
        let mut reader = stream.attach(None);
        wakes.wait_on(&mut reader);
        way(&stream);
        assert_eq!(wakes.count(), 1);
        assert!(poll(&mut reader).is_ready());
    }
}

#[test]
fn a_waiting_connection_hears_at_once_that_it_was_taken_over() {
    let (stream, wakes) = (stream(), Arc::new(Wakes::default()));
    let mut old = stream.attach(None);
    wakes.wait_on(&mut old);
    let _new = stream.attach(None);
    assert_eq!(wakes.count(), 1);
    assert!(matches!(poll(&mut old), Poll::Ready(Next::TakenOver)));
}

#[test]
fn a_connection_that_does_not_wait_is_not_woken() {
    let (stream, wakes) = (stream(), Arc::new(Wakes::default()));
    let mut reader = stream.attach(None);
    wakes.wait_on(&mut reader);
    stream.push(text("a"), Keep::IfRoom);
    stream.push(text("b"), Keep::IfRoom);
    assert_eq!(wakes.count(), 1, "it has not come back since the first message");
}

#[test]
fn a_first_message_that_takes_long_is_called_late_once_it_is() {
    let (stream, wakes) = (stream(), Arc::new(Wakes::default()));
    let mut reader = stream.attach(None);
    assert!(poll_first(&mut reader).is_pending());
    wakes.wait_on(&mut reader);
    stream.run_late();
    assert_eq!(wakes.count(), 1);
    assert!(matches!(poll_first(&mut reader), Poll::Ready(First::Late)));
    wakes.wait_on(&mut reader);
    stream.run_late();
    assert_eq!(wakes.count(), 1, "the connection knows that already");
}

#[test]
fn a_first_message_counts_even_on_a_late_stream() {
    let stream = stream();
    let mut reader = stream.attach(None);
    stream.run_late();
    stream.answer(text("a"));
    let first = poll_first(&mut reader);
    let Poll::Ready(First::Arrived(Next::Message(delivery))) = first else { panic!("{first:?}") };
    assert!(delivery.is_answer);
}

#[test]
fn next_gives_the_messages_and_then_the_end() {
    let stream = stream();
    let mut reader = stream.attach(None);
    stream.push(text("a"), Keep::IfRoom);
    stream.end();
    let mut next = || pin!(reader.next()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(next(), Poll::Ready(Next::Message(_))));
    assert!(matches!(next(), Poll::Ready(Next::End)));
    assert!(matches!(next(), Poll::Ready(Next::End)), "and stays there");
}

#[test]
fn a_reader_knows_its_stream_and_position() {
    let stream = Stream::new(7, false, &Arc::default());
    stream.push(text("a"), Keep::IfRoom);
    let mut reader = stream.attach(None);
    assert_eq!((reader.stream_number(), reader.position()), (7, 0));
    read_all(&mut reader);
    assert_eq!(reader.position(), 1);
    assert_eq!(stream.attach(Some(5)).position(), 5);
}

#[test]
fn requests_go_only_where_the_client_will_see_them() {
    let now = Instant::now();
    let batched = Stream::new(1, true, &Arc::default());
    let _reader = batched.attach(None);
    assert!(!batched.takes_requests(now), "it takes an answer alone");

    let stream = stream();
    assert!(!stream.takes_requests(now), "no connection reads it");
    let reader = stream.attach(None);
    assert!(stream.takes_requests(now));
    drop(reader);
    assert!(!stream.takes_requests(now), "its connection closed");
    let _reader = stream.attach(None);
    stream.end();
    assert!(!stream.takes_requests(now), "it is over");
}
