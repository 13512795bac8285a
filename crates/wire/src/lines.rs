//! The stdio framing: bytes in, whole lines out, with a bound on their length.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::Id;

/// Bytes read at once while lines are short. An idle upstream holds no more than this.
const SMALL_READ: usize = 8 * 1024;
/// A line longer than this is worth a larger pipe.
const LONG_LINE: usize = 64 * 1024;
/// Bytes read at once while a long line arrives.
const LARGE_READ: usize = 1024 * 1024;

/// How much of a dropped line is kept, to find the call that it answers.
const KEPT_HEAD: usize = 512;

/// A line was longer than allowed and was dropped. Reading continues after its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line was longer than {limit} bytes")]
pub struct LineTooLong {
    pub limit: usize,
    head: Bytes,
}

impl LineTooLong {
    fn new(limit: usize, line: &[u8]) -> Self {
        Self { limit, head: Bytes::copy_from_slice(&line[..line.len().min(KEPT_HEAD)]) }
    }

    /// The beginning of the line.
    pub fn head(&self) -> Bytes {
        self.head.clone()
    }

    /// The id of the lost message, if it stands in the part that was kept.
    pub fn leading_id(&self) -> Option<Id> {
        let mut found = None;
        let mut head = serde_json::Deserializer::from_slice(&self.head);
        // The text is cut off, so reading always ends in an error. The id found before it counts.
        let _ = head.deserialize_map(IdFinder { found: &mut found, cut: self.head.as_ptr_range().end });
        found
    }
}

struct IdFinder<'a> {
    found: &'a mut Option<Id>,
    /// Where the text is cut off.
    cut: *const u8,
}

impl<'de> Visitor<'de> for IdFinder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => {
                    let id: &RawValue = map.next_value()?;
                    // A number that the cut ends may be the beginning of a longer one.
                    let is_whole = id.get().as_bytes().as_ptr_range().end != self.cut;
                    *self.found = Id::from_raw(id).ok().filter(|_| is_whole);
                }
                // Only answers count: the id of a request is in the sender's own number space.
                "method" | "params" => {
                    *self.found = None;
                    return Ok(());
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Collects bytes and cuts them into lines.
#[derive(Debug)]
pub struct LineBuffer {
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line break.
    scanned: usize,
    limit: usize,
    /// The rest of a line that was too long is being skipped.
    skipping: bool,
}

impl LineBuffer {
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, limit, skipping: false }
    }

    /// The buffer for the next read. It grows with the line that it holds.
    pub fn space(&mut self) -> &mut BytesMut {
        let wanted = if self.buffer.len() < LONG_LINE { SMALL_READ } else { LARGE_READ };
        if self.buffer.capacity() - self.buffer.len() < wanted / 2 {
            self.buffer.reserve(wanted.max(self.buffer.len()));
        }
        &mut self.buffer
    }

    /// Returns true while a long line arrives, so that the reader may ask for a larger pipe.
    pub fn holds_long_line(&self) -> bool {
        self.buffer.len() > LONG_LINE
    }

    /// Returns the next whole line, without its end (`\n` or `\r\n`), or `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Result<Bytes, LineTooLong>> {
        loop {
            let Some(found) = memchr(b'\n', &self.buffer[self.scanned..]) else {
                self.scanned = self.buffer.len();
                return self.give_up_on_long_line();
            };
            let end = self.scanned + found;
            self.scanned = 0;
            if self.skipping {
                self.buffer.advance(end + 1);
                self.skipping = false;
                continue;
            }
            let mut line = self.buffer.split_to(end + 1);
            if self.buffer.is_empty() && self.buffer.capacity() > SMALL_READ {
                self.buffer = BytesMut::new();
            }
            line.truncate(end);
            if line.last() == Some(&b'\r') {
                line.truncate(end - 1);
            }
            if line.len() > self.limit {
                return Some(Err(LineTooLong::new(self.limit, &line)));
            }
            return Some(Ok(line.freeze()));
        }
    }

    /// The bytes in memory.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
    }

    fn give_up_on_long_line(&mut self) -> Option<Result<Bytes, LineTooLong>> {
        if self.skipping {
            self.buffer.clear();
            self.scanned = 0;
            return None;
        }
        // A carriage return may belong to the end of the line.
        let length = self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer).len();
        if length <= self.limit {
            return None;
        }
        let line = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        self.skipping = true;
        Some(Err(LineTooLong::new(self.limit, &line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limit: usize, chunks: &[&[u8]]) -> Vec<Result<Bytes, LineTooLong>> {
        let mut buffer = LineBuffer::new(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            buffer.space().extend_from_slice(chunk);
            while let Some(line) = buffer.next_line() {
                out.push(line);
            }
        }
        out
    }

    #[test]
    fn lines_are_whole_wherever_the_reads_fall() {
        let whole = b"one\ntwo\r\n\nthree\n";
        let expected: Vec<_> =
            ["one", "two", "", "three"].into_iter().map(|line| Ok(Bytes::from(line))).collect();
        for cut in 0..whole.len() {
            assert_eq!(lines(100, &[&whole[..cut], &whole[cut..]]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_long_line_is_dropped_and_the_next_one_is_read() {
        let long = vec![b'x'; 50];
        let too_long = || Err(LineTooLong::new(10, &long));
        let out = lines(10, &[b"a\n", &long, &long, b"\nb\n"]);
        assert_eq!(out, [Ok(Bytes::from("a")), too_long(), Ok(Bytes::from("b"))]);
        let mut in_one_read = long.clone();
        in_one_read.extend_from_slice(b"\nb\n");
        assert_eq!(lines(10, &[&in_one_read]), [too_long(), Ok(Bytes::from("b"))]);
    }

    #[test]
    fn a_line_of_the_longest_length_is_whole_wherever_its_end_is_cut() {
        for whole in [&b"0123456789\n"[..], b"0123456789\r\n"] {
            for cut in 0..whole.len() {
                assert_eq!(
                    lines(10, &[&whole[..cut], &whole[cut..]]),
                    [Ok(Bytes::from("0123456789"))],
                    "{cut}"
                );
            }
        }
        assert!(lines(10, &[b"0123456789\r", b"x\n"])[0].is_err());
    }

    #[test]
    fn a_skipped_line_does_not_fill_memory() {
        let mut buffer = LineBuffer::new(1000);
        for _ in 0..10_000 {
            buffer.space().extend_from_slice(&[b'x'; 1000]);
            while buffer.next_line().is_some() {}
            assert!(buffer.held() <= 2000);
        }
    }

    #[test]
    fn the_id_of_a_lost_answer_is_found_where_it_leads() {
        let id_of =
            |text: &str| LineTooLong::new(1, text.as_bytes()).leading_id().map(|id| id.as_json().to_owned());
        assert_eq!(id_of(r#"{"jsonrpc":"2.0","id":17,"result":{"a":"xxx"#).as_deref(), Some("17"));
        assert_eq!(id_of(r#"{"result":{"id":3,"a":"xxx"#), None);
        assert_eq!(id_of(r#"{"id":3,"method":"ping","params":"xxx"#), None);
        assert_eq!(id_of(r#"{"id":3,"params":"xxx"#), None);
        assert_eq!(id_of("garbage"), None);
    }

    #[test]
    fn the_first_digits_of_an_id_are_not_the_id() {
        let head = |text: &str| LineTooLong::new(1, text.as_bytes()).leading_id();
        assert_eq!(head(r#"{"jsonrpc":"2.0","id":17"#), None);
        assert_eq!(head(r#"{"jsonrpc":"2.0","id":17,"#), Some(Id::number(17)));
        assert_eq!(head(r#"{"jsonrpc":"2.0","id":17}"#), Some(Id::number(17)));
    }
}
