//! Decodes the bytes of a file, or tells why they are not text.

use encoding_rs::WINDOWS_1252;
use thiserror::Error;

use super::style::{Encoding, LineEnding, TextStyle};

/// In a text of an old encoding, at most one character in this many is a control character. Compressed or
/// encrypted data has about one in nine.
const CHARACTERS_PER_CONTROL: usize = 100;

/// A file's text, and what is needed to write it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// Without the byte order mark; line endings are as in the file.
    pub text: String,
    pub style: TextStyle,
}

/// Why the bytes of a file are not text.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    #[error("it holds NUL bytes")]
    Nul,
    #[error("it begins like UTF-8 text, but is not valid UTF-8")]
    BrokenUtf8,
    #[error("it begins like UTF-16 text, but is not valid UTF-16")]
    BrokenUtf16,
    #[error("it is neither valid UTF-8 nor does it look like text of another encoding")]
    ControlCharacters,
}

impl FileText {
    /// Decodes by the byte order mark; without one as UTF-8, or else as windows-1252 if the bytes look like text.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (text, encoding, has_bom) = match bytes {
            [0xEF, 0xBB, 0xBF, rest @ ..] => {
                let text = std::str::from_utf8(rest).map_err(|_| DecodeError::BrokenUtf8)?;
                (text.to_owned(), Encoding::Utf8, true)
            }
            [0xFF, 0xFE, rest @ ..] => (utf16(rest, u16::from_le_bytes)?, Encoding::Utf16Le, true),
            [0xFE, 0xFF, rest @ ..] => (utf16(rest, u16::from_be_bytes)?, Encoding::Utf16Be, true),
            _ => without_mark(bytes)?,
        };
        if text.contains('\0') {
            return Err(DecodeError::Nul);
        }
        let line_ending = LineEnding::of(&text);
        Ok(Self { text, style: TextStyle { encoding, has_bom, line_ending } })
    }
}

fn without_mark(bytes: &[u8]) -> Result<(String, Encoding, bool), DecodeError> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok((text.to_owned(), Encoding::Utf8, false));
    }
    if bytes.contains(&0) {
        return Err(DecodeError::Nul);
    }
    let controls = bytes.iter().filter(|byte| is_control(**byte)).count();
    if controls * CHARACTERS_PER_CONTROL > bytes.len() {
        return Err(DecodeError::ControlCharacters);
    }
    let (text, _) = WINDOWS_1252.decode_without_bom_handling(bytes);
    Ok((text.into_owned(), Encoding::Windows1252, false))
}

/// Control characters that do not occur in text: all but tab, line feed, form feed, carriage return and escape.
fn is_control(byte: u8) -> bool {
    byte == 0x7F || (byte < 0x20 && !matches!(byte, b'\t' | b'\n' | 0x0C | b'\r' | 0x1B))
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, DecodeError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(DecodeError::BrokenUtf16);
    }
    let units = pairs.iter().map(|pair| unit(*pair));
    char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| DecodeError::BrokenUtf16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bytes: &[u8], text: &str, encoding: Encoding, has_bom: bool) {
        let decoded = FileText::decode(bytes).unwrap();
        assert_eq!(decoded.text, text);
        assert_eq!((decoded.style.encoding, decoded.style.has_bom), (encoding, has_bom));
        assert_eq!(decoded.style.encode(&decoded.text).unwrap(), bytes);
    }

    #[test]
    fn encodings_are_recognised_and_come_back() {
        check(b"", "", Encoding::Utf8, false);
        check("a\u{e4}\n".as_bytes(), "a\u{e4}\n", Encoding::Utf8, false);
        check(b"\xEF\xBB\xBFa\r\n", "a\r\n", Encoding::Utf8, true);
        check(b"\xFF\xFEa\0\n\0", "a\n", Encoding::Utf16Le, true);
        check(b"\xFE\xFF\0a\xD8\x3D\xDE\x00", "a\u{1F600}", Encoding::Utf16Be, true);
        check(b"caf\xE9 \x81 \x80", "caf\u{e9} \u{81} \u{20ac}", Encoding::Windows1252, false);
    }

    #[test]
    fn what_is_no_text_says_why() {
        assert_eq!(FileText::decode(b"a\0b"), Err(DecodeError::Nul));
        assert_eq!(FileText::decode(b"\xEF\xBB\xBF\xFF"), Err(DecodeError::BrokenUtf8));
        assert_eq!(FileText::decode(b"\xFF\xFEa"), Err(DecodeError::BrokenUtf16), "an odd number of bytes");
        assert_eq!(
            FileText::decode(b"\xFE\xFF\xD8\x00\0a"),
            Err(DecodeError::BrokenUtf16),
            "a lone surrogate"
        );
        assert_eq!(FileText::decode(b"\xFF\xFE\0\0a\0\0\0"), Err(DecodeError::Nul), "that is UTF-32");
        assert_eq!(FileText::decode(b"\xC3\x28\x01\x02\x03"), Err(DecodeError::ControlCharacters));
        assert_eq!(FileText::decode(b"\xE9\0"), Err(DecodeError::Nul));
    }

    #[test]
    fn every_byte_of_the_old_encoding_comes_back() {
        let mut bytes: Vec<u8> = (0x80..=0xFF).chain(0x20..0x7F).collect();
        bytes.push(b'\n');
        let decoded = FileText::decode(&bytes).unwrap();
        assert_eq!(decoded.style.encoding, Encoding::Windows1252);
        assert_eq!(decoded.style.encode(&decoded.text).unwrap(), bytes);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let mark = prop::sample::select(vec![&b""[..], b"\xEF\xBB\xBF", b"\xFF\xFE", b"\xFE\xFF"]);
        let any = prop::collection::vec(any::<u8>(), 0..64);
        let old = prop::collection::vec(prop::sample::select(vec![b'a', b'\n', b'\r', 0xE9, 0x81]), 0..64);
        let text = "[a\u{e4}\u{1F600}\r\n]{0,40}".prop_map(String::into_bytes);
        (mark, prop_oneof![any, old, text]).prop_map(|(mark, rest)| [mark, &rest].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn decoded_text_encodes_to_the_same_bytes(bytes in bytes()) {
            if let Ok(decoded) = FileText::decode(&bytes) {
                prop_assert_eq!(decoded.style.encode(&decoded.text).unwrap(), bytes);
            }
        }
    }
}
