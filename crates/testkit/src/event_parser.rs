//! An incremental parser of `text/event-stream` that keeps what browsers drop: comments, empty data, `retry`.

use serde_json::Value;

/// One block of lines between two blank lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub id: Option<String>,
    pub event: Option<String>,
    /// `Some("")` for an empty `data` field, `None` if there was no such field.
    pub data: Option<String>,
    pub retry: Option<u64>,
    pub comment: Option<String>,
}

impl SseEvent {
    /// The JSON-RPC message in the data; `None` if there is no data or it is empty.
    pub fn message(&self) -> Option<Value> {
        let data = self.data.as_deref().filter(|data| !data.is_empty())?;
        Some(serde_json::from_str(data).unwrap_or_else(|error| panic!("data is not JSON ({error}): {data}")))
    }
}

#[derive(Debug, Default)]
pub(crate) struct EventParser {
    line: Vec<u8>,
    last_was_carriage_return: bool,
    event: SseEvent,
}

impl EventParser {
    /// Takes the next bytes, split anywhere, and returns the events they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for &byte in bytes {
            let ends_crlf = byte == b'\n' && self.last_was_carriage_return;
            self.last_was_carriage_return = byte == b'\r';
            if ends_crlf {
                continue;
            }
            if byte != b'\n' && byte != b'\r' {
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            events.extend(self.take_line(&String::from_utf8_lossy(&line)));
        }
        events
    }

    fn take_line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != SseEvent::default()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => append_line(&mut self.event.comment, value),
            "data" => append_line(&mut self.event.data, value),
            "id" => self.event.id = Some(value.to_owned()),
            "event" => self.event.event = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            _ => {}
        }
        None
    }
}

fn append_line(text: &mut Option<String>, line: &str) {
    match text {
        Some(text) => {
            text.push('\n');
            text.push_str(line);
        }
        None => *text = Some(line.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{EventParser, SseEvent};

    const STREAM: &str = "id: 1\nretry: 500\ndata: \n\n: keep-alive\n\nevent: message\r\nid: 2\r\ndata: {\"a\":1}\r\n\r\ndata:x\rdata:  y\r\r";

    fn expected() -> Vec<SseEvent> {
        let text = |text: &str| Some(text.to_owned());
        vec![
            SseEvent { id: text("1"), retry: Some(500), data: text(""), ..SseEvent::default() },
            SseEvent { comment: text("keep-alive"), ..SseEvent::default() },
            SseEvent {
                event: text("message"),
                id: text("2"),
                data: text("{\"a\":1}"),
                ..SseEvent::default()
            },
            SseEvent { data: text("x\n y"), ..SseEvent::default() },
        ]
    }

    #[test]
    fn every_kind_of_line_end_and_field_is_parsed() {
        assert_eq!(EventParser::default().feed(STREAM.as_bytes()), expected());
    }

    #[test]
    fn boundaries_of_the_pieces_do_not_matter() {
        for size in 1..STREAM.len() {
            let mut parser = EventParser::default();
            let events: Vec<SseEvent> =
                STREAM.as_bytes().chunks(size).flat_map(|piece| parser.feed(piece)).collect();
            assert_eq!(events, expected(), "pieces of {size} bytes");
        }
    }

    #[test]
    fn an_unfinished_event_is_not_delivered() {
        assert_eq!(EventParser::default().feed(b"data: x\n"), []);
    }
}
