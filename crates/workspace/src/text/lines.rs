//! Counts the lines of a text and cuts out ranges with their endings, numbered from 1.

/// One line and its ending: `\n`, `\r\n`, or nothing at the end of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) body: &'a str,
    pub(crate) ending: &'a str,
}

impl<'a> Line<'a> {
    fn of(text: &'a str) -> Self {
        let body = text.strip_suffix('\n').map_or(text, |body| body.strip_suffix('\r').unwrap_or(body));
        Self { body, ending: &text[body.len()..] }
    }

    /// Whether the line is only white space.
    pub(crate) fn is_blank(&self) -> bool {
        self.body.trim().is_empty()
    }
}

/// Splits a text into lines. A last line without an ending counts; nothing after the last ending does not.
pub(crate) fn split_lines(text: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let mut begin = 0;
    for at in breaks(text) {
        lines.push(Line::of(&text[begin..=at]));
        begin = at + 1;
    }
    if begin < text.len() {
        lines.push(Line::of(&text[begin..]));
    }
    lines
}

/// A text, seen as lines.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    text: &'a str,
    total: usize,
}

/// Consecutive lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSlice<'a> {
    /// The lines with their endings, as in the text.
    pub text: &'a str,
    /// The first and the last line, counted from 1; `None` if there are no lines.
    pub range: Option<(usize, usize)>,
}

impl<'a> Lines<'a> {
    pub fn of(text: &'a str) -> Self {
        let ends_within_a_line = !text.is_empty() && !text.ends_with('\n');
        Self { text, total: breaks(text).count() + usize::from(ends_within_a_line) }
    }

    /// The number of lines; 0 for an empty text.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The lines from `start` to `end`, counted from 1, both included. The range is cut to the text and may end up
    /// empty.
    pub fn slice(&self, start: usize, end: usize) -> LineSlice<'a> {
        let (first, last) = (start.max(1), end.min(self.total));
        if first > last {
            return LineSlice { text: "", range: None };
        }
        let begin = end_of(self.text, first - 1);
        let rest = &self.text[begin..];
        let text = if last == self.total { rest } else { &rest[..end_of(rest, last + 1 - first)] };
        LineSlice { text, range: Some((first, last)) }
    }
}

/// The offsets of the line feeds.
pub(super) fn breaks(text: &str) -> memchr::Memchr<'_> {
    memchr::memchr_iter(b'\n', text.as_bytes())
}

/// The length in bytes of the first `lines` lines.
fn end_of(text: &str, lines: usize) -> usize {
    match lines.checked_sub(1) {
        None => 0,
        Some(last) => breaks(text).nth(last).map_or(text.len(), |at| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_and_without_a_last_ending() {
        for (text, total) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2), ("a\r\nb\r\n", 2)] {
            assert_eq!(Lines::of(text).total(), total, "{text:?}");
            assert_eq!(split_lines(text).len(), total, "{text:?}");
        }
    }

    #[test]
    fn a_slice_keeps_endings_and_is_clamped() {
        let lines = Lines::of("one\r\ntwo\nthree");
        let slice = |start, end| (lines.slice(start, end).text, lines.slice(start, end).range);
        assert_eq!(slice(1, 1), ("one\r\n", Some((1, 1))));
        assert_eq!(slice(2, 3), ("two\nthree", Some((2, 3))));
        assert_eq!(slice(0, 99), ("one\r\ntwo\nthree", Some((1, 3))));
        assert_eq!(slice(4, 9), ("", None));
        assert_eq!(slice(3, 2), ("", None));
        assert_eq!(Lines::of("").slice(1, 1), LineSlice { text: "", range: None });
    }

    #[test]
    fn a_line_is_apart_from_its_ending() {
        let lines = split_lines("a\r\n \rb\n\r\nc");
        let parts: Vec<_> = lines.iter().map(|line| (line.body, line.ending)).collect();
        assert_eq!(parts, [("a", "\r\n"), (" \rb", "\n"), ("", "\r\n"), ("c", "")]);
    }
}
