//! Decodes server-sent events incrementally, with a bound on the length of a message.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;

/// Longest event id that is kept; a longer one counts as absent.
const MAX_FIELD: usize = 1024;

/// One event, ended by an empty line.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    pub data: EventData,
    pub id: Option<String>,
    /// Milliseconds to wait before reconnecting.
    pub retry: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum EventData {
    /// The event has no data, or its name is not `message`.
    None,
    Message(Bytes),
    /// The data was longer than a message may be and was dropped.
    TooLong,
}

/// Turns received bytes into events, wherever the reads fall.
#[derive(Debug)]
pub struct Decoder {
    max_message: usize,
    received: BytesMut,
    /// How much of `received` is known to hold no line end.
    searched: usize,
    at_start: bool,
    after_carriage_return: bool,
    /// The rest of the current line is dropped.
    skips_line: bool,
    fields: Fields,
}

#[derive(Debug, Default)]
struct Fields {
    any: bool,
    data: Option<BytesMut>,
    is_too_long: bool,
    is_other: bool,
    id: Option<String>,
    retry: Option<u64>,
}

impl Decoder {
    pub fn new(max_message: usize) -> Self {
        Self {
            max_message,
            received: BytesMut::new(),
            searched: 0,
            at_start: true,
            after_carriage_return: false,
            skips_line: false,
            fields: Fields::default(),
        }
    }

    /// Adds received bytes. Call [`Decoder::next_event`] until it returns `None`.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Returns the next complete event.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                if let Some(event) = std::mem::take(&mut self.fields).into_event() {
                    return Some(event);
                }
            } else {
                self.fields.take_line(line, self.max_message);
            }
        }
        None
    }

    /// Returns the next whole line without its end. A line that is too long for any message is dropped as it arrives,
    /// and its event marked.
    fn next_line(&mut self) -> Option<BytesMut> {
        loop {
            if self.after_carriage_return && !self.received.is_empty() {
                self.after_carriage_return = false;
                if self.received[0] == b'\n' {
                    self.received.advance(1);
                }
            }
            let Some(found) = memchr2(b'\n', b'\r', &self.received[self.searched..]) else {
                self.searched = self.received.len();
                self.drop_long_line();
                return None;
            };
            let mut line = self.received.split_to(self.searched + found);
            self.searched = 0;
            self.after_carriage_return = self.received[0] == b'\r';
            self.received.advance(1);
            let is_first = std::mem::replace(&mut self.at_start, false);
            if std::mem::replace(&mut self.skips_line, false) {
                continue;
            }
            if self.is_too_long(line.len()) {
                self.fields.lose_line(without_mark(&line, is_first));
                continue;
            }
            line.advance(line.len() - without_mark(&line, is_first).len());
            return Some(line);
        }
    }

    fn drop_long_line(&mut self) {
        if self.is_too_long(self.received.len()) {
            if !std::mem::replace(&mut self.skips_line, true) {
                self.fields.lose_line(without_mark(&self.received, self.at_start));
            }
            self.received.clear();
            self.searched = 0;
        }
    }

    /// The name of the field, its colon and a space come on top of the message.
    fn is_too_long(&self, line: usize) -> bool {
        line > self.max_message.saturating_add(MAX_FIELD)
    }

    /// The bytes in memory.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.received.len() + self.fields.data.as_ref().map_or(0, BytesMut::len)
    }
}

/// A line without the byte order mark that a stream may begin with.
fn without_mark(line: &[u8], is_first: bool) -> &[u8] {
    if is_first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line }
}

impl Fields {
    /// Notes that data is missing, if the line that was dropped began with its name. Comments may be of any length.
    fn lose_line(&mut self, start: &[u8]) {
        if start.starts_with(b"data:") {
            self.mark_too_long();
        }
    }

    fn take_line(&mut self, mut line: BytesMut, max_message: usize) {
        let colon = memchr::memchr(b':', &line).unwrap_or(line.len());
        let mut value = line.split_off(colon);
        let has_space = value.get(1) == Some(&b' ');
        value.advance(value.len().min(if has_space { 2 } else { 1 }));
        match &line[..] {
            b"data" => self.add_data(value, max_message),
            b"event" => self.is_other = !matches!(&value[..], b"" | b"message"),
            b"id" => {
                // The standard ignores ids with NUL. This also ignores ids that a header cannot carry back.
                let fits =
                    value.len() <= MAX_FIELD && value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f);
                self.id = std::str::from_utf8(&value).ok().filter(|_| fits).map(str::to_owned);
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.retry = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            }
            // A comment or an unknown field.
            _ => return,
        }
        self.any = true;
    }

    fn add_data(&mut self, value: BytesMut, max_message: usize) {
        let held = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if self.is_too_long || held + value.len() > max_message {
            return self.mark_too_long();
        }
        match &mut self.data {
            // Almost always the only line of data; it is not copied.
            None => self.data = Some(value),
            Some(data) => {
                data.extend_from_slice(b"\n");
                data.extend_from_slice(&value);
            }
        }
    }

    fn mark_too_long(&mut self) {
        self.any = true;
        self.is_too_long = true;
        self.data = None;
    }

    fn into_event(self) -> Option<Event> {
        if !self.any {
            return None;
        }
        let data = match self.data {
            _ if self.is_other => EventData::None,
            _ if self.is_too_long => EventData::TooLong,
            Some(data) if !data.is_empty() => EventData::Message(data.freeze()),
            _ => EventData::None,
        };
        Some(Event { data, id: self.id, retry: self.retry })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::sse) fn read(max_message: usize, chunks: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::new(max_message);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk);
            events.extend(std::iter::from_fn(|| decoder.next_event()));
        }
        events
    }

    pub(in crate::sse) fn message(text: &'static str) -> EventData {
        EventData::Message(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn events_are_the_same_wherever_they_are_cut_and_however_lines_end() {
        let text = "\u{feff}id: 1\nretry: 500\ndata: \n\n: comment\n\nevent: message\nid: 2\ndata: {\"a\":\ndata:1}\n\n\
                    event: ping\ndata: x\n\ndata: y\n\n";
        for end in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', end);
            let bytes = text.as_bytes();
            for cut in 0..bytes.len() {
                // A CR alone already ends the last line.
                let events = read(100, &[&bytes[..cut], &bytes[cut..]]);
                let data: Vec<_> = events.iter().map(|event| &event.data).collect();
                let expected = [EventData::None, message("{\"a\":\n1}"), EventData::None, message("y")];
                assert_eq!(data, expected.iter().collect::<Vec<_>>(), "cut at {cut} with {end:?}");
                assert_eq!((events[0].id.as_deref(), events[0].retry), (Some("1"), Some(500)));
                assert_eq!(events[1].id.as_deref(), Some("2"));
            }
        }
    }

    #[test]
    fn what_is_too_long_is_passed_over_and_said() {
        let long = "x".repeat(5000);
        let text = format!("id: 7\ndata: {long}\n\ndata: {}\ndata: b\n\ndata: ok\n\n", "a".repeat(9));
        for size in [1, 7, 4096, text.len()] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let events = read(10, &chunks);
            let data: Vec<_> = events.iter().map(|event| &event.data).collect();
            assert_eq!(data, [&EventData::TooLong, &EventData::TooLong, &message("ok")], "{size}");
            assert_eq!(events[0].id.as_deref(), Some("7"));
        }
    }

    #[test]
    fn a_long_comment_costs_no_message_wherever_the_reads_fall() {
        let long = "x".repeat(5000);
        let text = format!("\u{feff}: {long}\ndata: a\n: {long}\nid: {long}\n\n: {long}\n\n");
        for size in [1, 4096, text.len()] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(read(10, &chunks), [Event { data: message("a"), id: None, retry: None }], "{size}");
        }
        let text = format!("\u{feff}data: {long}\n\n");
        for size in [1, 4096, text.len()] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(read(10, &chunks)[0].data, EventData::TooLong, "{size}");
        }
    }

    #[test]
    fn memory_stays_bounded_in_an_endless_line() {
        let mut decoder = Decoder::new(10);
        for _ in 0..1000 {
            decoder.feed(&[b'x'; 500]);
            assert_eq!(decoder.next_event(), None);
            assert!(decoder.held() <= 10 + MAX_FIELD + 500);
        }
    }

    #[test]
    fn odd_fields_do_no_harm() {
        let events = read(100, &[b"id: a\x01b\nretry: -1\nwhat: ever\ndata\n\ndata: z\nid: \xff\n\n"]);
        assert_eq!(events[0], Event { data: EventData::None, id: None, retry: None });
        assert_eq!(events[1], Event { data: message("z"), id: None, retry: None });
    }
}
