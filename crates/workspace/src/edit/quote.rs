//! Quotes lines of a file in messages: numbered, shortened, and only a few.

use std::fmt::{self, Write as _};

/// Characters of a line that are shown at most.
const MAX_CHARACTERS: usize = 160;

/// Lines that are listed at most.
pub(crate) const MAX_PLACES: usize = 8;

/// A line of a file as it is shown in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Counted from 1.
    pub(crate) line: usize,
    /// Cut if it is long.
    pub(crate) text: String,
}

impl Place {
    /// `index` is counted from 0.
    pub(crate) fn new(index: usize, body: &str) -> Self {
        Self { line: index + 1, text: cut(body) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: `{}`", self.line, self.text)
    }
}

/// Shortens a line for a message.
pub(crate) fn cut(body: &str) -> String {
    match body.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &body[..end]),
        None => body.to_owned(),
    }
}

/// Lists places, one per line, and how many more there are.
pub(crate) fn list(places: &[Place], total: usize) -> String {
    let mut text = String::new();
    for place in places.iter().take(MAX_PLACES) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {place}");
    }
    let shown = places.len().min(MAX_PLACES);
    if total > shown {
        let _ = write!(text, "\n  and {} more", total - shown);
    }
    text
}

/// Lists line numbers, and how many more there are.
pub(crate) fn numbers(lines: &[usize]) -> String {
    let shown: Vec<_> = lines.iter().take(MAX_PLACES).map(ToString::to_string).collect();
    let more = lines.len().saturating_sub(MAX_PLACES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_long_lists_are_cut() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"\u{e4}".repeat(200)).chars().count(), MAX_CHARACTERS + 1);
        let places: Vec<_> = (0..20).map(|index| Place::new(index, "x")).collect();
        let text = list(&places, 20);
        assert_eq!(text.lines().count(), 1 + MAX_PLACES + 1);
        assert!(text.ends_with("and 12 more"), "{text}");
        assert_eq!(numbers(&[1, 2]), "1, 2");
        assert_eq!(numbers(&[1; 10]), "1, 1, 1, 1, 1, 1, 1, 1 and 2 more");
    }
}
