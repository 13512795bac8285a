//! The properties of a file that its text does not show: encoding, byte order mark and line endings.

use std::borrow::Cow;

use super::lines::breaks;

/// A character encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Utf8,
    Utf16Le,
    Utf16Be,
    /// The usual encoding of old files that are not UTF-8. Every byte is a character.
    Windows1252,
}

impl Encoding {
    /// The name in the WHATWG encoding standard.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Utf16Le => "UTF-16LE",
            Self::Utf16Be => "UTF-16BE",
            Self::Windows1252 => "windows-1252",
        }
    }
}

/// How the lines of a text end. A carriage return alone does not end a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnding {
    /// There is no line break at all.
    None,
    Lf,
    Crlf,
    /// Some lines end in one way, some in the other.
    Mixed,
}

impl LineEnding {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lf => "LF",
            Self::Crlf => "CRLF",
            Self::Mixed => "mixed",
        }
    }

    pub fn of(text: &str) -> Self {
        let (crlf, lf) = count(text);
        match (crlf, lf) {
            (0, 0) => Self::None,
            (0, _) => Self::Lf,
            (_, 0) => Self::Crlf,
            _ => Self::Mixed,
        }
    }

    /// The ending for a new line of the text: that of most of its lines.
    pub fn dominant(text: &str) -> &'static str {
        let (crlf, lf) = count(text);
        if crlf > lf { "\r\n" } else { "\n" }
    }
}

/// How many lines end in CRLF, and how many in LF alone.
fn count(text: &str) -> (usize, usize) {
    let bytes = text.as_bytes();
    let (mut crlf, mut all) = (0, 0);
    for at in breaks(text) {
        all += 1;
        crlf += usize::from(at > 0 && bytes[at - 1] == b'\r');
    }
    (crlf, all - crlf)
}

/// What is needed to turn a text back into the bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    pub encoding: Encoding,
    pub has_bom: bool,
    pub line_ending: LineEnding,
}

impl TextStyle {
    /// Converts new text to the line endings of the file. Leaves it unchanged if those are mixed or unknown.
    pub fn adapt(self, text: &str) -> Cow<'_, str> {
        match self.line_ending {
            LineEnding::Lf if text.contains("\r\n") => Cow::Owned(text.replace("\r\n", "\n")),
            LineEnding::Crlf if count(text).1 > 0 => Cow::Owned(to_crlf(text)),
            LineEnding::None | LineEnding::Mixed | LineEnding::Lf | LineEnding::Crlf => Cow::Borrowed(text),
        }
    }
}

impl Default for TextStyle {
    /// The style of a new file.
    fn default() -> Self {
        Self { encoding: Encoding::Utf8, has_bom: false, line_ending: LineEnding::None }
    }
}

fn to_crlf(text: &str) -> String {
    let mut adapted = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        match line.strip_suffix('\n') {
            Some(body) if !body.ends_with('\r') => {
                adapted.push_str(body);
                adapted.push_str("\r\n");
            }
            _ => adapted.push_str(line),
        }
    }
    adapted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(line_ending: LineEnding) -> TextStyle {
        TextStyle { line_ending, ..TextStyle::default() }
    }

    #[test]
    fn line_endings_are_told_apart() {
        assert_eq!(LineEnding::of(""), LineEnding::None);
        assert_eq!(LineEnding::of("a\rb"), LineEnding::None);
        assert_eq!(LineEnding::of("a\n"), LineEnding::Lf);
        assert_eq!(LineEnding::of("\n"), LineEnding::Lf);
        assert_eq!(LineEnding::of("a\r\nb\r\n"), LineEnding::Crlf);
        assert_eq!(LineEnding::of("a\r\nb\n"), LineEnding::Mixed);
    }

    #[test]
    fn most_lines_decide_what_a_new_line_ends_with() {
        assert_eq!(LineEnding::dominant("a\r\nb\r\nc\n"), "\r\n");
        assert_eq!(LineEnding::dominant("a\r\nb\n"), "\n");
        assert_eq!(LineEnding::dominant(""), "\n");
    }

    #[test]
    fn text_takes_on_the_endings_of_a_uniform_file() {
        assert_eq!(style(LineEnding::Crlf).adapt("a\nb\r\nc"), "a\r\nb\r\nc");
        assert_eq!(style(LineEnding::Crlf).adapt("\n\n"), "\r\n\r\n");
        assert_eq!(style(LineEnding::Lf).adapt("a\r\nb\n\rc"), "a\nb\n\rc");
        for kept in [LineEnding::Mixed, LineEnding::None] {
            assert_eq!(style(kept).adapt("a\r\nb\n"), "a\r\nb\n");
        }
        assert!(matches!(style(LineEnding::Crlf).adapt("a\r\n"), Cow::Borrowed(_)));
    }
}
