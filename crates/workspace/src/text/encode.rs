//! Encodes a text to bytes, in the style of its file.

use encoding_rs::WINDOWS_1252;
use thiserror::Error;

use super::style::{Encoding, TextStyle};

/// The encoding of the file lacks a character of the new text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "the file is in {}, which has no {character:?} (U+{:04X}, line {line}); write that character in another \
     way, or replace the whole file to have it in UTF-8",
    encoding.name(),
    u32::from(*character)
)]
pub struct EncodeError {
    pub character: char,
    /// Counted from 1, in the text that was to be encoded.
    pub line: usize,
    pub encoding: Encoding,
}

impl EncodeError {
    /// The code of the error for programs.
    pub(crate) const CODE: &'static str = "unencodable";
}

impl TextStyle {
    /// The bytes of a file with this text. Line endings are written as they are.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, EncodeError> {
        let mark: &[u8] = match self.encoding {
            Encoding::Utf8 => b"\xEF\xBB\xBF",
            Encoding::Utf16Le => b"\xFF\xFE",
            Encoding::Utf16Be => b"\xFE\xFF",
            Encoding::Windows1252 => b"",
        };
        let mut bytes = if self.has_bom { mark.to_vec() } else { Vec::new() };
        match self.encoding {
            Encoding::Utf8 => bytes.extend_from_slice(text.as_bytes()),
            Encoding::Utf16Le => bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
            Encoding::Utf16Be => bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
            Encoding::Windows1252 => bytes.extend(windows_1252(text)?),
        }
        Ok(bytes)
    }
}

fn windows_1252(text: &str) -> Result<Vec<u8>, EncodeError> {
    let (bytes, _, has_unmappable) = WINDOWS_1252.encode(text);
    if !has_unmappable {
        return Ok(bytes.into_owned());
    }
    let mut buffer = [0; 4];
    let mut line = 1;
    for character in text.chars() {
        if WINDOWS_1252.encode(character.encode_utf8(&mut buffer)).2 {
            return Err(EncodeError { character, line, encoding: Encoding::Windows1252 });
        }
        line += usize::from(character == '\n');
    }
    unreachable!("one of the characters could not be encoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_character_that_is_lacking_is_named() {
        let style = TextStyle { encoding: Encoding::Windows1252, ..TextStyle::default() };
        let error = style.encode("\u{e9}\nb\u{20ac}\nc\u{1F600}").unwrap_err();
        assert_eq!((error.character, error.line), ('\u{1F600}', 3));
        let message = error.to_string();
        assert!(message.contains("windows-1252") && message.contains("U+1F600, line 3"), "{message}");
        assert_eq!(style.encode("\u{e9}\u{20ac}").unwrap(), b"\xE9\x80");
    }

    #[test]
    fn the_mark_is_written_only_where_there_was_one() {
        let with = |encoding, has_bom| TextStyle { encoding, has_bom, ..TextStyle::default() };
        assert_eq!(with(Encoding::Utf8, false).encode("a").unwrap(), b"a");
        assert_eq!(with(Encoding::Utf8, true).encode("").unwrap(), b"\xEF\xBB\xBF");
        assert_eq!(with(Encoding::Utf16Be, true).encode("a").unwrap(), b"\xFE\xFF\0a");
        assert_eq!(with(Encoding::Utf16Le, false).encode("a").unwrap(), b"a\0");
    }
}
