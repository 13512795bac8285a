//! Markers, and the segments of an edit between them.

use super::error::MergeError;
use crate::text::Line;

/// Comment delimiters that may surround a marker, including none.
const COMMENTS: [(&str, &str); 17] = [
    ("{/*", "*/}"),
    ("{#", "#}"),
    ("{-", "-}"),
    ("(*", "*)"),
    ("<%--", "--%>"),
    ("--[[", "]]"),
    (";;", ""),
    ("!", ""),
    ("'", ""),
    ("/*", "*/"),
    ("<!--", "-->"),
    ("//", ""),
    ("--", ""),
    ("#", ""),
    (";", ""),
    ("%", ""),
    ("", ""),
];

/// Consecutive lines of an edit, between markers.
#[derive(Debug)]
pub(crate) struct Segment<'a> {
    /// Without the blank lines next to a marker, which are only layout. Never empty.
    pub(crate) lines: &'a [Line<'a>],
    /// The blank lines after the marker before it, and before the marker after it.
    pub(crate) blanks: [&'a [Line<'a>]; 2],
    /// Nothing of the file is kept before it.
    pub(crate) from_start: bool,
    /// Nothing of the file is kept after it.
    pub(crate) to_end: bool,
}

/// Whether some line of the edit is a marker.
pub(crate) fn has_markers(edit: &str) -> bool {
    edit.lines().any(is_marker)
}

/// Splits an edit into segments. Adjacent markers count as one.
pub(crate) fn segments<'a>(edit: &'a [Line<'a>]) -> Result<Vec<Segment<'a>>, MergeError> {
    let parts: Vec<_> = edit.split(|line| is_marker(line.body)).collect();
    if parts.len() == 1 {
        return Err(MergeError::NoMarkers);
    }
    let last = parts.len() - 1;
    let of_part = |(index, part): (usize, &'a [Line<'a>])| {
        let first = if index == 0 { 0 } else { part.iter().position(|line| !line.is_blank())? };
        let end =
            if index == last { part.len() } else { part.iter().rposition(|line| !line.is_blank())? + 1 };
        let has_text = part.iter().any(|line| !line.is_blank());
        has_text.then(|| Segment {
            lines: &part[first..end],
            blanks: [&part[..first], &part[end..]],
            from_start: index == 0,
            to_end: index == last,
        })
    };
    let segments: Vec<_> = parts.into_iter().enumerate().filter_map(of_part).collect();
    if segments.is_empty() { Err(MergeError::OnlyMarkers) } else { Ok(segments) }
}

/// A whole line that reads `... existing code ...`, alone or as one comment.
fn is_marker(line: &str) -> bool {
    let line = line.trim();
    COMMENTS.iter().any(|(open, close)| {
        let inner = line.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        inner.is_some_and(|inner| is_phrase(inner.trim()))
    })
}

fn is_phrase(text: &str) -> bool {
    let open = text.strip_prefix("...").or_else(|| text.strip_prefix('…'));
    let inner = open.and_then(|rest| rest.strip_suffix("...").or_else(|| rest.strip_suffix('…')));
    inner.is_some_and(|inner| {
        let mut words = inner.split_whitespace();
        let is =
            |word: Option<&str>, wanted: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
        is(words.next(), "existing") && is(words.next(), "code") && words.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::split_lines;

    #[test]
    fn a_marker_is_a_whole_line_in_any_comment() {
        for line in [
            "// ... existing code ...",
            "    # ... existing code ...",
            "-- ... Existing Code ...",
            "; … existing code …",
            "% ...existing code...",
            "/* ... existing code ... */",
            "<!-- ... existing code ... -->",
            "\t{/* ... existing code ... */}  ",
            "... existing code ...",
        ] {
            assert!(has_markers(line), "{line}");
        }
    }

    #[test]
    fn anything_else_is_content() {
        for line in [
            "let s = \"// ... existing code ...\";",
            "x(); // ... existing code ...",
            "// ... existing code",
            "// existing code ...",
            "// ... existing code here ...",
            "//// ... existing code ...",
            "/* ... existing code ...",
            "// ... rest of the code ...",
            "",
        ] {
            assert!(!has_markers(line), "{line}");
        }
    }

    #[test]
    fn segments_know_where_they_end() {
        let lines = split_lines(
            "a\n\n# ... existing code ...\n\n# ... existing code ...\n\nb\n\nc\n\n# ... existing code ...\n\n",
        );
        let segments = segments(&lines).unwrap();
        let seen: Vec<_> = segments
            .iter()
            .map(|segment| (segment.lines.len(), segment.from_start, segment.to_end))
            .collect();
        assert_eq!(seen, [(1, true, false), (3, false, false)]);
        assert_eq!(segments[1].lines[0].body, "b");
    }
}
