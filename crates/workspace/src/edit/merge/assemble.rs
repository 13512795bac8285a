//! Builds the new file from the kept lines of the old one and the segments of the edit.

use std::ops::Range;

use super::markers::Segment;
use crate::text::{Line, LineEnding};

/// Kept lines keep their bytes. New lines end like most lines of the file. The file ends as before, with or
/// without a line break.
pub(crate) fn assemble<'a>(
    original: &str,
    old: &[Line<'a>],
    segments: &[Segment<'a>],
    spans: &[Range<usize>],
) -> String {
    let ending = LineEnding::dominant(original);
    let mut lines: Vec<Line<'a>> = Vec::with_capacity(old.len());
    let mut kept_from = 0;
    for (segment, span) in segments.iter().zip(spans) {
        lines.extend(&old[kept_from..span.start]);
        let replaced = &old[span.clone()];
        if replaced.is_empty() {
            push_addition(&mut lines, segment, old, ending);
        } else {
            push_segment(&mut lines, segment, replaced, ending);
        }
        kept_from = span.end;
    }
    lines.extend(&old[kept_from..]);
    let ends_with_break = original.is_empty() || original.ends_with('\n');
    finish(&lines, ending, ends_with_break)
}

/// Adds a segment before or after the whole file, with the blank lines around it unless the file already has some
/// there.
fn push_addition<'a>(lines: &mut Vec<Line<'a>>, segment: &Segment<'a>, old: &[Line<'a>], ending: &'a str) {
    let [before, after] = segment.blanks;
    let is_apart = |line: Option<&Line<'_>>| line.is_none_or(Line::is_blank);
    let before = if is_apart(old.last()) { &[] } else { before };
    let after = if is_apart(old.first()) { &[] } else { after };
    let written = [before, segment.lines, after].into_iter().flatten();
    lines.extend(written.map(|line| Line { body: line.body, ending }));
}

/// Adds a segment. Lines at its start and end that equal the replaced ones are kept from the file.
fn push_segment<'a>(
    lines: &mut Vec<Line<'a>>,
    segment: &Segment<'a>,
    replaced: &[Line<'a>],
    ending: &'a str,
) {
    let written = segment.lines;
    let same = |one: &Line<'_>, other: &Line<'_>| one.body == other.body;
    let (has_head, has_tail) = (!segment.from_start, !segment.to_end);
    let both = written.len().min(replaced.len());
    // An anchor keeps the line of the file, even if trailing blanks differ.
    // The last line is the other anchor, unless the segment is a single line.
    let reserved = usize::from(has_tail && !(has_head && written.len() == 1));
    let head = (0..both - reserved)
        .take_while(|&at| (at == 0 && has_head) || same(&written[at], &replaced[at]))
        .count();
    let from_end = |at: usize| (&written[written.len() - 1 - at], &replaced[replaced.len() - 1 - at]);
    let tail = (0..both - head)
        .take_while(|&at| (at == 0 && has_tail) || same(from_end(at).0, from_end(at).1))
        .count();
    lines.extend(&replaced[..head]);
    lines.extend(written[head..written.len() - tail].iter().map(|line| Line { body: line.body, ending }));
    lines.extend(&replaced[replaced.len() - tail..]);
}

fn finish(lines: &[Line<'_>], ending: &str, ends_with_break: bool) -> String {
    // An empty last line without a line break would just be the line break of the line before it.
    let end =
        lines.iter().rposition(|line| ends_with_break || !line.body.is_empty()).map_or(0, |last| last + 1);
    let lines = &lines[..end];
    let mut text = String::with_capacity(lines.iter().map(|line| line.body.len() + 2).sum());
    for (number, line) in lines.iter().enumerate() {
        text.push_str(line.body);
        let is_last = number + 1 == lines.len();
        match (is_last && !ends_with_break, line.ending) {
            (true, _) => {}
            (false, "") => text.push_str(ending),
            (false, own) => text.push_str(own),
        }
    }
    text
}
