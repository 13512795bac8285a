//! Exact search and replacement.

use thiserror::Error;

use super::quote::{Place, cut, numbers};
use crate::text::{Line, split_lines};

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) old: String,
    pub(crate) new: String,
    /// Replace every occurrence. Otherwise there must be exactly one.
    pub(crate) all: bool,
}

/// A text after its replacements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) text: String,
    /// The line in which each occurrence began, counted from 1, in the text before that replacement.
    pub(crate) places: Vec<usize>,
}

/// Why nothing was replaced.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum ReplaceError {
    #[error(
        "the text to search for is empty; to add to a file, search for a line next to the place and repeat it"
    )]
    EmptySearch,
    #[error("the text to search for and its replacement are the same, so there is nothing to change")]
    NoChange,
    #[error("the text to search for is not in the file. {}", hint(near.as_ref()))]
    NotFound { near: Option<NearMiss> },
    #[error(
        "the text to search for is in the file {} times, beginning in lines {}; add lines around it until it is \
         there once, or replace all occurrences",
        lines.len(),
        numbers(lines)
    )]
    NotUnique { lines: Vec<usize> },
}

/// What a less exact search would have found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NearMiss {
    /// The lines match, but end differently (CRLF or LF).
    LineEndings(Place),
    /// Only indentation, trailing blanks or other white space differ.
    Whitespace(Place),
    /// Only the first lines match.
    FirstLine { found: Place, expected: String, actual: Option<Place> },
}

impl ReplaceError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::EmptySearch => "empty_search",
            Self::NoChange => "no_change",
            Self::NotFound { .. } => "not_found_in_file",
            Self::NotUnique { .. } => "not_unique",
        }
    }
}

/// Replaces `old`, which must occur exactly once, by `new`; with `all`, every occurrence from left to right. Both
/// texts are literal.
pub(crate) fn replace(original: &str, old: &str, new: &str, all: bool) -> Result<Replaced, ReplaceError> {
    if old.is_empty() {
        return Err(ReplaceError::EmptySearch);
    }
    if old == new {
        return Err(ReplaceError::NoChange);
    }
    let offsets: Vec<usize> = original.match_indices(old).map(|(at, _)| at).collect();
    if offsets.is_empty() {
        return Err(ReplaceError::NotFound { near: near_miss(original, old) });
    }
    // A text that overlaps itself has several places even where only one can be replaced: `aa` in `aaa`.
    let starts = if all { offsets } else { overlapping(original, old) };
    let places = line_numbers(original, &starts);
    if starts.len() > 1 && !all {
        return Err(ReplaceError::NotUnique { lines: places });
    }
    Ok(Replaced { text: original.replace(old, new), places })
}

/// Makes several replacements, each in the result of the previous one. If one fails, returns its index and the
/// reason.
pub(crate) fn replace_many(original: &str, edits: &[Edit]) -> Result<Replaced, (usize, ReplaceError)> {
    let mut result = Replaced { text: original.to_owned(), places: Vec::new() };
    for (index, edit) in edits.iter().enumerate() {
        let next = replace(&result.text, &edit.old, &edit.new, edit.all).map_err(|error| (index, error))?;
        result.text = next.text;
        result.places.extend(next.places);
    }
    Ok(result)
}

/// The offsets of all occurrences, including overlapping ones.
fn overlapping(text: &str, needle: &str) -> Vec<usize> {
    let step = needle.chars().next().map_or(1, char::len_utf8);
    let mut starts = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(needle) {
        starts.push(from + at);
        from += at + step;
    }
    starts
}

/// The line of each offset. The offsets must be sorted.
fn line_numbers(text: &str, offsets: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let mut number = |offset: &usize| {
        line += text[from..*offset].bytes().filter(|byte| *byte == b'\n').count();
        from = *offset;
        line
    };
    offsets.iter().map(&mut number).collect()
}

fn near_miss(original: &str, old: &str) -> Option<NearMiss> {
    let (lines, wanted) = (split_lines(original), split_lines(old));
    let unified = |text: &str| text.replace("\r\n", "\n");
    if let Some(at) = unified(original).find(&unified(old)) {
        let line = unified(original)[..at].matches('\n').count();
        return Some(NearMiss::LineEndings(Place::new(line, lines[line].body)));
    }
    let first = wanted.iter().position(|line| !line.is_blank())?;
    let wanted = &wanted[first..];
    let found = (0..lines.len()).find(|at| matches_loosely(&lines[*at..], wanted));
    if let Some(at) = found {
        return Some(NearMiss::Whitespace(Place::new(at, lines[at].body)));
    }
    first_line(&lines, wanted)
}

/// Compares line by line, ignoring white space within lines but not blank lines.
fn matches_loosely(lines: &[Line<'_>], wanted: &[Line<'_>]) -> bool {
    let same = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| text.chars().filter(|letter| !letter.is_whitespace()));
        one.eq(other)
    };
    lines.len() >= wanted.len() && lines.iter().zip(wanted).all(|(line, wanted)| same(line.body, wanted.body))
}

/// The place where the most wanted lines match in a row, at least the first.
fn first_line(lines: &[Line<'_>], wanted: &[Line<'_>]) -> Option<NearMiss> {
    let agreeing = |at: usize| {
        lines[at..]
            .iter()
            .zip(wanted)
            .take_while(|(line, wanted)| line.body.trim() == wanted.body.trim())
            .count()
    };
    let (count, at) = (0..lines.len()).map(|at| (agreeing(at), at)).rev().max_by_key(|(count, _)| *count)?;
    let expected = cut(wanted.get(count)?.body);
    let actual = lines.get(at + count).map(|line| Place::new(at + count, line.body));
    (count > 0).then(|| NearMiss::FirstLine { found: Place::new(at, lines[at].body), expected, actual })
}

fn hint(near: Option<&NearMiss>) -> String {
    match near {
        None => "Read the file again: not even its first line is there".into(),
        Some(NearMiss::LineEndings(place)) => {
            format!("It would match at {place} but for the line endings (CRLF or LF): use those of the file")
        }
        Some(NearMiss::Whitespace(place)) => {
            format!("It would match at {place} but for white space: copy indentation and blanks exactly")
        }
        Some(NearMiss::FirstLine { found, expected, actual: Some(actual) }) => {
            format!(
                "It begins to match at {found}, but then `{expected}` was expected where the file has {actual}"
            )
        }
        Some(NearMiss::FirstLine { found, expected, actual: None }) => {
            format!("It begins to match at {found}, but then `{expected}` was expected where the file ends")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn a() {\n    x();\n}\n\nfn b() {\n    x();\n}\n";

    #[test]
    fn the_only_occurrence_is_replaced_literally() {
        let replaced = replace(FILE, "fn b()", "fn $& \\1()", false).unwrap();
        assert_eq!(replaced.text, FILE.replace("fn b()", "fn $& \\1()"));
        assert_eq!(replaced.places, [5]);
    }

    #[test]
    fn several_occurrences_must_be_asked_for() {
        let error = replace(FILE, "    x();", "y", false).unwrap_err();
        assert_eq!(error, ReplaceError::NotUnique { lines: vec![2, 6] });
        assert!(error.to_string().contains("2 times, beginning in lines 2, 6"), "{error}");
        let all = replace(FILE, "x()", "y()", true).unwrap();
        assert_eq!((all.text, all.places), (FILE.replace("x()", "y()"), vec![2, 6]));
    }

    #[test]
    fn what_overlaps_itself_is_not_unique_and_goes_from_left_to_right() {
        assert_eq!(replace("aaa", "aa", "b", false).unwrap_err().code(), "not_unique");
        assert_eq!(replace("aaa", "aa", "b", true).unwrap().text, "ba");
        assert_eq!(replace("äää", "ää", "b", false).unwrap_err().code(), "not_unique");
    }

    #[test]
    fn nothing_to_search_or_to_change_is_refused() {
        assert_eq!(replace(FILE, "", "x", true).unwrap_err().code(), "empty_search");
        assert_eq!(replace(FILE, "x", "x", true).unwrap_err().code(), "no_change");
    }

    fn near(original: &str, old: &str) -> String {
        let error = replace(original, old, "new", false).unwrap_err();
        assert_eq!(error.code(), "not_found_in_file");
        error.to_string()
    }

    #[test]
    fn a_miss_says_how_near_it_was() {
        assert!(near("a\r\nb\r\n", "a\nb").contains("line 1: `a` but for the line endings"));
        assert!(near(FILE, "fn b() {\n  x();\n}").contains("line 5: `fn b() {` but for white space"));
        assert!(near(FILE, "x() ;").contains("line 2: `    x();` but for white space"));
        let partly = near(FILE, "fn b() {\n    z();\n}");
        assert!(partly.contains("`    z();` was expected where the file has line 6: `    x();`"), "{partly}");
        assert!(near("a", "a\nb").contains("where the file ends"));
        assert!(near(FILE, "unknown").contains("not even its first line"));
        assert!(near("", "unknown").contains("not even its first line"));
    }

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old: old.into(), new: new.into(), all: false }
    }

    #[test]
    fn several_replacements_are_all_or_nothing() {
        let done =
            replace_many(FILE, &[edit("fn a", "fn c"), edit("fn c() {\n    x", "fn c() {\n    z")]).unwrap();
        assert_eq!(done.text, FILE.replacen("fn a() {\n    x", "fn c() {\n    z", 1));
        assert_eq!(done.places, [1, 1]);
        let failed = replace_many(FILE, &[edit("fn a", "fn c"), edit("fn a", "fn d")]).unwrap_err();
        assert_eq!((failed.0, failed.1.code()), (1, "not_found_in_file"));
        assert_eq!(replace_many(FILE, &[]).unwrap().text, FILE);
    }
}
