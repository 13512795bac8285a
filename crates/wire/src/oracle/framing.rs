//! Events and lines: the same wherever the reads fall, and never more in memory than the limit allows. The references
//! here see the whole text at once.

use bytes::Bytes;

use super::Pieces;
use crate::sse::{Decoder, Event, EventData, EventId, message_event};
use crate::{LineBuffer, LineTooLong, Message, Text};

/// As in the decoder: the longest id, and what a line may have beside its message.
const MAX_FIELD: usize = 1024;

pub(super) fn check_events(max_message: usize, pieces: Pieces<'_>) {
    let mut decoder = Decoder::new(max_message);
    let mut events = Vec::new();
    for read in pieces.reads {
        decoder.feed(read);
        events.extend(std::iter::from_fn(|| decoder.next_event()));
        assert!(decoder.held() <= 2 * max_message + MAX_FIELD, "{} bytes are held", decoder.held());
    }
    assert_eq!(events, expected_events(max_message, pieces.whole));
}

/// A message is the same after it was an event.
pub(super) fn check_event_of(text: Text) {
    let id = EventId { stream: 7, sequence: u64::MAX };
    let expected = text.clone().into_bytes();
    let mut decoder = Decoder::new(expected.len());
    decoder.feed(&message_event(id, text).concat());
    let Some(event) = decoder.next_event() else { panic!("an event was lost") };
    assert_eq!(event.data, EventData::Message(expected));
    assert_eq!(event.id.as_deref().and_then(EventId::parse), Some(id));
    assert_eq!(decoder.next_event(), None);
}

#[derive(Default)]
struct ExpectedEvent<'a> {
    has_field: bool,
    is_other: bool,
    has_long_line: bool,
    data: Vec<&'a [u8]>,
    id: Option<String>,
    retry: Option<u64>,
}

fn expected_events(max_message: usize, whole: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut current = ExpectedEvent::default();
    for (number, line) in ended_lines(whole).into_iter().enumerate() {
        let is_long = line.len() > max_message + MAX_FIELD;
        let line = if number == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            let ended = std::mem::take(&mut current);
            events.extend(ended.has_field.then(|| ended.finish(max_message)));
        } else {
            current.take(line, is_long);
        }
    }
    events
}

/// The lines that have an end, which is a line feed, a carriage return or both.
fn ended_lines(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.push(&rest[..end]);
        let length = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + length..];
    }
    lines
}

impl<'a> ExpectedEvent<'a> {
    fn take(&mut self, line: &'a [u8], is_long: bool) {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                self.data.push(value);
                self.has_long_line |= is_long;
            }
            // Too long to mean anything.
            _ if is_long => return,
            b"event" => self.is_other = !matches!(value, b"" | b"message"),
            b"id" => {
                let is_sendable =
                    value.len() <= MAX_FIELD && value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f);
                self.id = std::str::from_utf8(value).ok().filter(|_| is_sendable).map(str::to_owned);
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            _ => return,
        }
        self.has_field = true;
    }

    fn finish(self, max_message: usize) -> Event {
        let data = self.data.join(&b'\n');
        let data = match data {
            _ if self.is_other => EventData::None,
            data if self.has_long_line || data.len() > max_message => EventData::TooLong,
            data if data.is_empty() => EventData::None,
            data => EventData::Message(data.into()),
        };
        Event { data, id: self.id, retry: self.retry }
    }
}

pub(super) fn check_lines(limit: usize, pieces: Pieces<'_>) {
    let mut buffer = LineBuffer::new(limit);
    let mut lines = Vec::new();
    for read in pieces.reads {
        buffer.space().extend_from_slice(read);
        lines.extend(std::iter::from_fn(|| buffer.next_line()));
        assert!(buffer.held() <= limit + 1, "{} bytes are held", buffer.held());
    }
    let expected = expected_lines(limit, pieces.whole);
    assert_eq!(lines.len(), expected.len());
    for (line, (expected, is_ended)) in lines.iter().zip(expected) {
        match line {
            Ok(line) => {
                assert!(is_ended && line == expected && line.len() <= limit);
            }
            Err(too_long) => check_lost_line(too_long, expected, limit),
        }
    }
}

/// The lines, each with whether it has an end. The last one counts without an end once it is too long.
fn expected_lines(limit: usize, whole: &[u8]) -> Vec<(&[u8], bool)> {
    let mut lines: Vec<(&[u8], bool)> = whole.split(|byte| *byte == b'\n').map(|line| (line, true)).collect();
    let last = lines.pop();
    for (line, _) in &mut lines {
        *line = line.strip_suffix(b"\r").unwrap_or(line);
    }
    let is_too_long = |line: &[u8]| line.strip_suffix(b"\r").unwrap_or(line).len() > limit;
    lines.extend(last.filter(|(line, _)| is_too_long(line)).map(|(line, _)| (line, false)));
    lines
}

/// A line that is lost is too long, and is taken for the answer to no other call than the one that it answers.
fn check_lost_line(too_long: &LineTooLong, line: &[u8], limit: usize) {
    assert!(line.len() > limit);
    assert_eq!(too_long.limit, limit);
    assert!(line.starts_with(&too_long.head()) || too_long.head().ends_with(b"\r"));
    match (too_long.leading_id(), Message::parse(Bytes::copy_from_slice(line))) {
        (Some(id), Ok(Message::Response(response))) => assert_eq!(id, response.id),
        (Some(_), Ok(Message::Notification(_))) => panic!("a notification answers nothing"),
        _ => {}
    }
}
