//! Finds lines of a file that resemble one that was not found. They only appear in error messages: no edit is
//! placed by similarity.

use std::collections::HashMap;

use super::quote::Place;
use crate::text::Line;

/// Lines that are suggested at most.
const MAX_NEAREST: usize = 3;
/// Lines of a file that are compared at most, and bytes of each. A hint is not worth more time.
const MAX_LINES: usize = 20_000;
const MAX_BYTES: usize = 200;

/// The lines that resemble `wanted` most, best first.
pub(crate) fn nearest(lines: &[Line<'_>], wanted: &str) -> Vec<Place> {
    let pattern = Pairs::of(wanted);
    let mut scored: Vec<(u32, usize)> = lines
        .iter()
        .take(MAX_LINES)
        .enumerate()
        .map(|(index, line)| (pattern.likeness(line.body), index))
        .filter(|(score, _)| *score >= 50)
        .collect();
    // Equally similar lines keep the order of the file.
    scored.sort_by_key(|(score, index)| (std::cmp::Reverse(*score), *index));
    scored.iter().take(MAX_NEAREST).map(|(_, index)| Place::new(*index, lines[*index].body)).collect()
}

/// Counts of neighbouring byte pairs, without white space.
struct Pairs {
    counts: HashMap<[u8; 2], u32>,
    total: u32,
}

impl Pairs {
    fn of(text: &str) -> Self {
        let mut counts = HashMap::new();
        let mut total = 0;
        for pair in pairs(text) {
            *counts.entry(pair).or_insert(0) += 1;
            total += 1;
        }
        Self { counts, total }
    }

    /// Similarity from 0 to 100: the share of pairs that both texts have.
    fn likeness(&self, other: &str) -> u32 {
        let other = Self::of(other);
        let common: u32 = other
            .counts
            .iter()
            .map(|(pair, count)| self.counts.get(pair).copied().unwrap_or(0).min(*count))
            .sum();
        (200 * common).checked_div(self.total + other.total).unwrap_or(0)
    }
}

fn pairs(text: &str) -> impl Iterator<Item = [u8; 2]> {
    let mut bytes = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).take(MAX_BYTES);
    let mut last = bytes.next().unwrap_or_default();
    // The first byte also forms a pair, so that lines of one character can resemble each other.
    std::iter::once([0, last]).chain(bytes.map(move |byte| [std::mem::replace(&mut last, byte), byte]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::split_lines;

    #[test]
    fn resembling_lines_are_named_best_first() {
        let lines = split_lines("fn seconds() {\nlet x = 1;\n  fn second( ) {\nother\n");
        let found = nearest(&lines, "fn second() {");
        let numbers: Vec<_> = found.iter().map(|place| place.line).collect();
        assert_eq!(numbers, [3, 1]);
        assert!(nearest(&lines, "zzzzzz").is_empty());
        assert!(nearest(&[], "a").is_empty());
    }
}
