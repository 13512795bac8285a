//! Message text in up to three pieces, so that a large result is passed on without copying it.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;
use std::ops::Range;

/// A shorter text is copied into one buffer: cheaper than three small writes, and the copy does not keep the larger
/// buffer alive that it was cut from.
const COPY_BELOW: usize = 16 * 1024;

/// The text of one message: a head, the spliced part, and the rest.
#[derive(Clone, Debug, Default)]
pub struct Text {
    head: Bytes,
    middle: Bytes,
    tail: Bytes,
}

impl Text {
    /// `source` with the bytes of `range` replaced.
    pub fn spliced(source: &Bytes, range: Range<usize>, replacement: &[u8]) -> Self {
        if source.len() < COPY_BELOW {
            let mut whole = BytesMut::with_capacity(source.len() - range.len() + replacement.len());
            whole.extend_from_slice(&source[..range.start]);
            whole.extend_from_slice(replacement);
            whole.extend_from_slice(&source[range.end..]);
            return whole.freeze().into();
        }
        Self {
            head: source.slice(..range.start),
            middle: Bytes::copy_from_slice(replacement),
            tail: source.slice(range.end..),
        }
    }

    /// The answer to a request, with a result that several answers may share.
    pub fn result(id: &crate::Id, result: Bytes) -> Self {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.as_json());
        Self { head: head.into(), middle: result, tail: Bytes::from_static(b"}") }
    }

    pub fn len(&self) -> usize {
        self.head.len() + self.middle.len() + self.tail.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same in memory of its own, where it may be a small part of a buffer that others have let go of.
    #[must_use]
    pub fn copied(&self) -> Self {
        let mut whole = BytesMut::with_capacity(self.len());
        for piece in [&self.head, &self.middle, &self.tail] {
            whole.extend_from_slice(piece);
        }
        whole.freeze().into()
    }

    /// The pieces in order, without empty ones.
    pub fn into_pieces(self) -> impl Iterator<Item = Bytes> {
        [self.head, self.middle, self.tail].into_iter().filter(|piece| !piece.is_empty())
    }

    /// The text in one buffer, without copying if it already is one.
    pub fn into_bytes(self) -> Bytes {
        if self.middle.is_empty() && self.tail.is_empty() {
            return self.head;
        }
        let mut whole = BytesMut::with_capacity(self.len());
        for piece in self.into_pieces() {
            whole.extend_from_slice(&piece);
        }
        whole.freeze()
    }

    /// The text between a prefix and a suffix, for SSE framing.
    pub(crate) fn framed(self, prefix: &[u8], suffix: &'static [u8]) -> Vec<Bytes> {
        if self.len() < COPY_BELOW {
            let mut whole = BytesMut::with_capacity(prefix.len() + self.len() + suffix.len());
            whole.extend_from_slice(prefix);
            for piece in self.into_pieces() {
                whole.extend_from_slice(&piece);
            }
            whole.extend_from_slice(suffix);
            return vec![whole.freeze()];
        }
        let mut pieces = vec![Bytes::copy_from_slice(prefix)];
        pieces.extend(self.into_pieces());
        pieces.push(Bytes::from_static(suffix));
        pieces
    }
}

impl From<Bytes> for Text {
    fn from(whole: Bytes) -> Self {
        Self { head: whole, ..Self::default() }
    }
}

/// The same JSON on one line, because stdio and SSE both end a message at a line break. Raw line breaks occur only
/// between tokens, never inside a JSON string, so a space means the same.
pub fn compact_newlines(text: Bytes) -> Bytes {
    let Some(first) = memchr2(b'\n', b'\r', &text) else { return text };
    let mut line = BytesMut::from(&text[..]);
    for byte in &mut line[first..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splice_reads_the_same_copied_or_in_pieces() {
        for filler in [10, COPY_BELOW * 2] {
            let source = Bytes::from(format!("ab{}", "x".repeat(filler)));
            let text = Text::spliced(&source, 1..2, b"123");
            let expected = format!("a123{}", "x".repeat(filler));
            assert_eq!(text.len(), expected.len());
            assert_eq!(text.clone().into_bytes(), expected.as_bytes());
            let framed: Vec<u8> = text.framed(b"<", b">").concat();
            assert_eq!(framed, format!("<{expected}>").as_bytes());
        }
    }

    #[test]
    fn only_line_breaks_change() {
        assert_eq!(compact_newlines(Bytes::from_static(b"{\r\n \"a\\n\":\n1}")), &b"{   \"a\\n\": 1}"[..]);
    }
}
