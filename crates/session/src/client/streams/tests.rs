//! Tests of which streams a session keeps for clients that resume.

use bytes::Bytes;

use super::*;
use crate::testing::just_before;

fn streams() -> Streams {
    Streams::new(&Arc::default(), 0)
}

/// Adds the stream of a call that was answered with this many bytes.
fn add_ended(streams: &mut Streams, bytes: usize, now: Instant) -> u64 {
    let stream = streams.for_call(false);
    streams.make_resumable(&stream);
    stream.answer(Bytes::from(vec![b'x'; bytes]).into());
    streams.call_ended(stream.number, now);
    stream.number
}

#[test]
fn streams_of_calls_are_numbered_after_the_standalone_one() {
    let mut streams = streams();
    assert_eq!(streams.with_number(STANDALONE).unwrap().number, 0);
    assert_eq!([1, 2].map(|_| streams.for_call(false).number), [1, 2]);
}

#[test]
fn ended_streams_are_forgotten_when_they_are_old() {
    let (mut streams, now) = (streams(), Instant::now());
    let number = add_ended(&mut streams, 1, now);
    streams.forget_old(just_before(now + ENDED_STREAM_AGE));
    assert!(streams.is_of_a_call(number));
    streams.forget_old(now + ENDED_STREAM_AGE);
    assert!(!streams.is_of_a_call(number));
}

#[test]
fn the_oldest_ended_streams_are_forgotten_when_they_are_many() {
    let (mut streams, now) = (streams(), Instant::now());
    let numbers: Vec<_> = (0..MAX_ENDED_STREAMS + 3).map(|_| add_ended(&mut streams, 1, now)).collect();
    let kept: Vec<_> = numbers.iter().copied().filter(|number| streams.is_of_a_call(*number)).collect();
    assert_eq!(kept, numbers[3..]);
}

#[test]
fn the_oldest_ended_streams_are_forgotten_when_they_are_large() {
    let (mut streams, now) = (streams(), Instant::now());
    let [first, second, third] = [0; 3].map(|_| add_ended(&mut streams, MAX_ENDED_BYTES / 2, now));
    let kept = [first, second, third].map(|number| streams.is_of_a_call(number));
    assert_eq!(kept, [false, true, true]);
}

#[test]
fn streams_of_running_calls_are_never_forgotten() {
    let (mut streams, now) = (streams(), Instant::now());
    let running: Vec<_> = (0..MAX_ENDED_STREAMS * 2).map(|_| streams.for_call(false)).collect();
    for stream in &running {
        streams.make_resumable(stream);
    }
    add_ended(&mut streams, MAX_ENDED_BYTES + 1, now);
    streams.forget_old(now + ENDED_STREAM_AGE * 10);
    assert!(running.iter().all(|stream| streams.is_of_a_call(stream.number)));
}

#[test]
fn a_call_that_was_answered_before_its_stream_was_kept_grows_old_too() {
    let (mut streams, now) = (streams(), Instant::now());
    let stream = streams.for_call(false);
    stream.answer(Bytes::from_static(b"{}").into());
    streams.make_resumable(&stream);
    streams.forget_old(now);
    assert!(streams.is_of_a_call(stream.number), "its age counts from here");
    streams.forget_old(now + ENDED_STREAM_AGE);
    assert!(!streams.is_of_a_call(stream.number));
}

#[test]
fn the_end_of_a_call_whose_stream_is_not_kept_is_no_matter() {
    let mut streams = streams();
    let stream = streams.for_call(false);
    streams.call_ended(stream.number, Instant::now());
    assert!(streams.with_number(stream.number).is_none());
}

#[test]
fn a_session_is_read_while_any_of_its_streams_is() {
    let (mut streams, now) = (streams(), Instant::now());
    assert!(!streams.is_read(now));
    let stream = streams.for_call(false);
    streams.make_resumable(&stream);
    let reader = stream.attach(None);
    assert!(streams.is_read(now), "a call that may be resumed");
    drop(reader);
    let other = Instance::named("other").unwrap();
    let reader = streams.listen(Some(&other), false, now).unwrap().attach(None);
    assert!(streams.is_read(now), "another client");
    drop(reader);
    let _reader = streams.listen(None, true, now).unwrap().attach(None);
    assert!(streams.is_read(now), "the client itself");
}

#[test]
fn what_belongs_to_no_call_goes_to_the_first_client_that_listens() {
    let (mut streams, now) = (streams(), Instant::now());
    assert_eq!(streams.standalone(now).number, STANDALONE, "kept there if none does");
    let other = streams.listen(Some(&Instance::named("other").unwrap()), false, now).unwrap();
    let _other = other.attach(None);
    assert_eq!(streams.standalone(now).number, other.number);
    let _own = streams.listen(None, true, now).unwrap().attach(None);
    assert_eq!(streams.standalone(now).number, STANDALONE);
}

#[test]
fn the_end_forgets_all_streams_but_the_standalone_one() {
    let (mut streams, now) = (streams(), Instant::now());
    let call = streams.for_call(false);
    streams.make_resumable(&call);
    let other = streams.listen(Some(&Instance::named("other").unwrap()), false, now).unwrap();
    streams.end_all();
    assert!(call.is_ended() && other.is_ended());
    assert!(streams.with_number(call.number).is_none() && streams.with_number(other.number).is_none());
    assert!(streams.with_number(STANDALONE).unwrap().is_ended());
}
