//! Server-sent events: encoding with resumable ids, and an incremental [`Decoder`].

mod decoder;

use std::fmt::{self, Write as _};

use bytes::Bytes;

use crate::Text;

pub use decoder::{Decoder, Event, EventData};

/// Identifies an event within a session: its stream and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: u64,
    pub sequence: u64,
}

impl EventId {
    pub fn parse(text: &str) -> Option<Self> {
        let (stream, sequence) = text.split_once('-')?;
        Some(Self { stream: stream.parse().ok()?, sequence: sequence.parse().ok()? })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream, self.sequence)
    }
}

/// A comment that keeps intermediaries from closing a quiet stream.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// One message as an event. Its text must be on one line.
pub fn message_event(id: EventId, text: Text) -> Vec<Bytes> {
    let mut prefix = String::with_capacity(48);
    // Writing to a String cannot fail.
    let _ = write!(prefix, "event: message\nid: {id}\ndata: ");
    text.framed(prefix.as_bytes(), b"\n\n")
}

/// The first event of a stream: an id from which the client can resume before it has received a message.
pub fn priming_event(id: EventId, retry_milliseconds: u64) -> Bytes {
    format!("id: {id}\nretry: {retry_milliseconds}\ndata: \n\n").into()
}

/// Tells the client how long to wait before it comes back for the rest.
pub fn retry_event(retry_milliseconds: u64) -> Bytes {
    format!("retry: {retry_milliseconds}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::decoder::tests::{message, read};
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Event> {
        read(1000, chunks)
    }

    #[test]
    fn what_is_encoded_is_decoded_wherever_it_is_cut() {
        let id = EventId { stream: 3, sequence: 17 };
        let mut wire = priming_event(EventId { stream: 3, sequence: 0 }, 500).to_vec();
        wire.extend_from_slice(KEEP_ALIVE);
        wire.extend(message_event(id, Bytes::from_static(br#"{"a":"b: c"}"#).into()).concat());
        wire.extend_from_slice(&retry_event(9));
        for cut in 0..wire.len() {
            let events = decode(&[&wire[..cut], &wire[cut..]]);
            assert_eq!(events.len(), 3, "cut at {cut}");
            assert_eq!(
                (events[0].id.as_deref(), events[0].retry, &events[0].data),
                (Some("3-0"), Some(500), &EventData::None)
            );
            assert_eq!(events[1].data, message(r#"{"a":"b: c"}"#));
            assert_eq!(EventId::parse(events[1].id.as_deref().unwrap()), Some(id));
            assert_eq!(events[2].retry, Some(9));
        }
    }

    #[test]
    fn all_line_ends_and_repeated_data_are_understood() {
        let events = decode(&[b"data: a\r\ndata:b\r\n\r\n", b"data: c\r\r", b"event\ndata: d\n\n"]);
        let data: Vec<_> = events.into_iter().map(|event| event.data).collect();
        assert_eq!(data, [message("a\nb"), message("c"), message("d")]);
    }

    #[test]
    fn an_id_that_is_not_ours_is_no_id() {
        for bad in ["", "1", "-", "a-b", "1-2-3", "18446744073709551616-0"] {
            assert_eq!(EventId::parse(bad), None, "{bad}");
        }
    }
}
