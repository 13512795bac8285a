//! Tests of the buffer: which messages it keeps, which connection gets them, and whether one reads it.

mod properties;

use bytes::Bytes;

use super::*;
use crate::testing::just_before;

fn text(size: usize) -> Text {
    Bytes::from(vec![b'x'; size]).into()
}

/// A buffer with this many small notifications.
fn filled(count: usize) -> StreamBuffer {
    let mut buffer = StreamBuffer::of_epoch(0);
    for _ in 0..count {
        assert_eq!(buffer.push(text(1), Keep::IfRoom, false), 0);
    }
    buffer
}

/// The sequence numbers that a new connection gets after an event.
fn replay(buffer: &mut StreamBuffer, after: Option<u64>) -> Vec<u64> {
    let (claim, mut position) = buffer.attach(after);
    let mut seen = Vec::new();
    while let Read::Message(delivery) = buffer.read(claim, position) {
        position = delivery.sequence;
        seen.push(position);
    }
    seen
}

#[test]
fn messages_are_counted_from_one() {
    assert_eq!(replay(&mut filled(3), None), [1, 2, 3]);
}

#[test]
fn a_connection_that_names_no_event_continues_after_what_was_handed_out() {
    let mut buffer = filled(2);
    assert_eq!(replay(&mut buffer, None), [1, 2]);
    buffer.push(text(1), Keep::IfRoom, false);
    assert_eq!(replay(&mut buffer, None), [3]);
    assert!(replay(&mut buffer, None).is_empty());
}

#[test]
fn a_connection_that_names_an_event_gets_what_followed_as_often_as_it_likes() {
    let mut buffer = filled(4);
    for _ in 0..2 {
        assert_eq!(replay(&mut buffer, Some(2)), [3, 4]);
        assert_eq!(replay(&mut buffer, Some(0)), [1, 2, 3, 4]);
    }
}

#[test]
fn resuming_from_an_early_event_does_not_hand_out_again_to_others() {
    let mut buffer = filled(3);
    replay(&mut buffer, None);
    let (claim, position) = buffer.attach(Some(0));
    assert!(matches!(buffer.read(claim, position), Read::Message(first) if first.sequence == 1));
    assert!(replay(&mut buffer, None).is_empty());
}

#[test]
fn an_unread_message_waits_for_the_next_connection() {
    let mut buffer = filled(2);
    let (claim, position) = buffer.attach(None);
    assert!(matches!(buffer.read(claim, position), Read::Message(_)));
    assert_eq!(replay(&mut buffer, None), [2]);
}

#[test]
fn a_newer_claim_ends_the_older_even_if_there_is_something_to_read() {
    let mut buffer = filled(1);
    let (old, position) = buffer.attach(None);
    let (new, _) = buffer.attach(None);
    assert!(matches!(buffer.read(old, position), Read::TakenOver));
    assert!(matches!(buffer.read(new, position), Read::Message(_)));
    buffer.end();
    assert!(matches!(buffer.read(old, position), Read::TakenOver), "also after the end");
}

#[test]
fn an_answer_ends_the_stream_and_is_marked() {
    let mut buffer = filled(1);
    buffer.push(text(1), Keep::Always, true);
    assert!(buffer.is_ended());
    let (claim, _) = buffer.attach(None);
    assert!(matches!(buffer.read(claim, 0), Read::Message(first) if !first.is_answer));
    assert!(matches!(buffer.read(claim, 1), Read::Message(last) if last.is_answer));
    assert!(matches!(buffer.read(claim, 2), Read::Ended));
}

#[test]
fn an_ended_stream_takes_nothing_more() {
    for is_answer in [true, false] {
        let mut buffer = filled(1);
        buffer.end();
        assert_eq!(buffer.push(text(9), Keep::Always, is_answer), 0);
        assert_eq!((replay(&mut buffer, Some(0)), buffer.kept_bytes()), (vec![1], 1));
    }
}

#[test]
fn a_stream_that_ended_without_an_answer_still_gives_what_it_holds() {
    let mut buffer = filled(1);
    buffer.end();
    let (claim, _) = buffer.attach(None);
    assert!(matches!(buffer.read(claim, 0), Read::Message(_)));
    assert!(matches!(buffer.read(claim, 1), Read::Ended));
}

#[test]
fn an_open_stream_without_messages_is_empty_and_not_over() {
    let mut buffer = StreamBuffer::of_epoch(0);
    let (claim, position) = buffer.attach(None);
    assert!(matches!(buffer.read(claim, position), Read::Empty));
}

#[test]
fn delivered_messages_make_room_before_any_notification_is_lost() {
    let mut buffer = filled(MAX_STREAM_EVENTS);
    let (claim, _) = buffer.attach(None);
    assert!(matches!(buffer.read(claim, 1), Read::Message(second) if second.sequence == 2));
    for _ in 0..2 {
        assert_eq!(buffer.push(text(1), Keep::IfRoom, false), 0, "one that was delivered goes");
    }
    assert_eq!(buffer.push(text(1), Keep::IfRoom, false), 1, "none was delivered any more");
    assert_eq!(replay(&mut buffer, None)[0], 4, "the oldest notification went");
}

#[test]
fn a_delivered_request_may_be_forgotten() {
    let mut buffer = StreamBuffer::of_epoch(0);
    buffer.push(text(MAX_STREAM_BYTES), Keep::Always, false);
    replay(&mut buffer, None);
    assert_eq!(buffer.push(text(1), Keep::IfRoom, false), 0);
    assert_eq!((replay(&mut buffer, Some(0)), buffer.kept_bytes()), (vec![2], 1));
}

#[test]
fn the_oldest_notification_goes_first_and_requests_stay() {
    let mut buffer = StreamBuffer::of_epoch(0);
    for number in 0..MAX_STREAM_EVENTS {
        let keep = if number < 10 { Keep::Always } else { Keep::IfRoom };
        assert_eq!(buffer.push(text(1), keep, false), 0);
    }
    assert_eq!(buffer.push(text(1), Keep::Always, false), 1);
    let seen = replay(&mut buffer, None);
    assert_eq!(seen.len(), MAX_STREAM_EVENTS);
    assert_eq!(seen[9..11], [10, 12], "the eleventh message was the oldest notification");
}

#[test]
fn requests_that_were_not_delivered_are_kept_beyond_the_bounds() {
    let mut buffer = StreamBuffer::of_epoch(0);
    for _ in 0..MAX_STREAM_EVENTS + 5 {
        assert_eq!(buffer.push(text(1), Keep::Always, false), 0);
    }
    assert_eq!(buffer.push(text(1), Keep::IfRoom, false), 1, "a notification finds no room");
    assert_eq!(replay(&mut buffer, None).len(), MAX_STREAM_EVENTS + 5);
}

#[test]
fn a_notification_that_exceeds_the_bound_by_itself_is_not_kept() {
    let mut buffer = StreamBuffer::of_epoch(0);
    assert_eq!(buffer.push(text(MAX_STREAM_BYTES + 1), Keep::IfRoom, false), 1);
    assert_eq!(buffer.kept_bytes(), 0);
    buffer.push(text(1), Keep::IfRoom, false);
    assert_eq!(replay(&mut buffer, None), [2], "its number is not given again");
}

#[test]
fn lateness_is_news_once() {
    let mut buffer = StreamBuffer::of_epoch(0);
    assert!(!buffer.is_late());
    assert!(buffer.run_late());
    assert!(buffer.is_late() && !buffer.run_late());
}

#[test]
fn a_stream_is_read_from_attach_to_detach() {
    let (mut buffer, now) = (StreamBuffer::of_epoch(0), Instant::now());
    assert!(!buffer.has_reader(now));
    let (claim, _) = buffer.attach(None);
    assert!(buffer.has_reader(now + PARKED_FOR * 100), "for as long as the connection lasts");
    buffer.detach(claim);
    assert!(!buffer.has_reader(now));
}

#[test]
fn a_parked_client_is_expected_for_a_while() {
    let (mut buffer, now) = (StreamBuffer::of_epoch(0), Instant::now());
    let (claim, _) = buffer.attach(None);
    buffer.park(claim, now);
    buffer.detach(claim);
    assert!(buffer.has_reader(just_before(now + PARKED_FOR)));
    assert!(!buffer.has_reader(now + PARKED_FOR));
    buffer.attach(None);
    assert!(buffer.has_reader(now + PARKED_FOR * 2), "it came back");
}

#[test]
fn an_older_connection_cannot_close_the_newer_one() {
    let (mut buffer, now) = (StreamBuffer::of_epoch(0), Instant::now());
    let (old, _) = buffer.attach(None);
    let (new, _) = buffer.attach(None);
    buffer.detach(old);
    buffer.park(old, now);
    assert!(buffer.has_reader(now + PARKED_FOR));
    buffer.detach(new);
    assert!(!buffer.has_reader(now));
}

#[test]
fn a_client_that_seems_to_be_gone_leaves_the_newest_that_it_has_not_had() {
    let mut buffer = filled(3);
    assert_eq!(replay(&mut buffer, None), [1, 2, 3]);
    assert_eq!(buffer.shed(), 0);
    assert_eq!(buffer.kept_bytes(), 0, "it has had these");
    let half = MAX_DESERTED_BYTES / 2;
    for size in [half, half, half, 1] {
        buffer.push(text(size), Keep::IfRoom, false);
    }
    assert_eq!(buffer.shed(), 2);
    assert_eq!(buffer.kept_bytes(), half + 1);
    assert_eq!(replay(&mut buffer, None), [6, 7]);
}

#[test]
fn what_is_kept_for_a_client_that_seems_to_be_gone_holds_no_larger_buffer() {
    let mut buffer = StreamBuffer::of_epoch(0);
    let line = Bytes::from(vec![b'x'; MAX_DESERTED_BYTES * 4]);
    buffer.push(line.slice(..8).into(), Keep::IfRoom, false);
    assert!(!line.is_unique());
    buffer.shed();
    assert!(line.is_unique() && buffer.kept_bytes() == 8);
}
