//! Finds the lines of the file that each segment of an edit replaces.

use std::ops::Range;

use super::anchors::{Index, Point, Ranges};
use super::error::{MergeError, Side};
use super::last_line;
use super::markers::Segment;
use crate::edit::nearest::nearest;
use crate::edit::quote::{MAX_PLACES, Place, cut};
use crate::text::Line;

/// The lines that each segment replaces. The ranges are sorted and do not overlap.
pub(crate) fn place(old: &[Line<'_>], segments: &[Segment<'_>]) -> Result<Vec<Range<usize>>, MergeError> {
    let file = File { old, index: Index::of(old), segments };
    let mut points = Vec::new();
    for number in 0..segments.len() {
        points.extend(file.points_of(number)?);
    }
    let ranges = Ranges::of(&points).map_err(|(number, after)| file.out_of_order(&points[number], after))?;
    let mut spans: Vec<_> = segments.iter().map(|segment| file.widest(segment)).collect();
    for (number, point) in points.iter().enumerate() {
        let span = &mut spans[point.segment];
        let candidates = ranges.candidates(number, point);
        let place = match (candidates, point.side) {
            ([only], _) => Some(*only),
            (_, Side::First) => None,
            (_, Side::Last) => last_line::settle(
                old,
                span.start,
                segments[point.segment].lines,
                has_head(segments, point),
                candidates,
            ),
        };
        let place = place.ok_or_else(|| file.ambiguous(point, candidates))?;
        match point.side {
            Side::First => span.start = place,
            Side::Last => span.end = place + 1,
        }
        // A segment of one line replaces just that line.
        if point.side == Side::First && !segments[point.segment].to_end {
            span.end = place + 1;
        }
    }
    Ok(spans)
}

fn has_head(segments: &[Segment<'_>], point: &Point<'_>) -> bool {
    !segments[point.segment].from_start
}

struct File<'a> {
    old: &'a [Line<'a>],
    index: Index<'a>,
    segments: &'a [Segment<'a>],
}

impl<'a> File<'a> {
    /// The widest range that a segment can replace. One at an edge whose anchor is not in the file goes before or
    /// after the whole file.
    fn widest(&self, segment: &Segment<'_>) -> Range<usize> {
        let [first, last] = ends(segment);
        match (segment.from_start, segment.to_end) {
            (true, _) if self.index.places(last).is_empty() => 0..0,
            (_, true) if self.index.places(first).is_empty() => self.old.len()..self.old.len(),
            _ => 0..self.old.len(),
        }
    }

    /// The lines of a segment that must occur in the file: those next to a marker.
    fn points_of(&self, number: usize) -> Result<Vec<Point<'_>>, MergeError> {
        let segment = &self.segments[number];
        let [first, last] = ends(segment).map(|body| self.index.places(body));
        let point = |side, places| Point { segment: number, side, places };
        match (segment.from_start, segment.to_end) {
            (true, _) if last.is_empty() => self.check_is_new(number, Side::Last).map(|()| vec![]),
            (_, true) if first.is_empty() => self.check_is_new(number, Side::First).map(|()| vec![]),
            (true, _) => Ok(vec![point(Side::Last, last)]),
            (_, true) => Ok(vec![point(Side::First, first)]),
            _ => match (first, last) {
                ([], []) => Err(self.not_found(number)),
                ([], last) => Err(self.one_end(number, Side::First, last)),
                (first, []) => Err(self.one_end(number, Side::Last, first)),
                _ if segment.lines.len() == 1 => Ok(vec![point(Side::First, first)]),
                _ => Ok(vec![point(Side::First, first), point(Side::Last, last)]),
            },
        }
    }

    /// A segment at an edge of the file whose inner end is new is added there and replaces nothing. Refuses one
    /// that looks like a change to existing lines.
    fn check_is_new(&self, number: usize, missing: Side) -> Result<(), MergeError> {
        let known = self.segments[number].lines.iter().find_map(|line| match self.index.places(line.body) {
            [only] if !line.is_blank() => Some(*only),
            _ => None,
        });
        known.map_or(Ok(()), |at| Err(self.one_sided(number, missing, at, 1)))
    }

    fn show(&self, at: usize) -> Place {
        Place::new(at, self.old[at].body)
    }

    fn anchor(&self, segment: usize, side: Side) -> &'a str {
        let [first, last] = ends(&self.segments[segment]);
        match side {
            Side::First => first,
            Side::Last => last,
        }
    }

    fn not_found(&self, number: usize) -> MergeError {
        let [first, last] = [Side::First, Side::Last].map(|side| self.anchor(number, side));
        let anchor = if first == last { cut(first) } else { format!("{}` and `{}", cut(first), cut(last)) };
        let mut resembling = nearest(self.old, first);
        resembling.extend(nearest(self.old, last));
        resembling.sort_by_key(|place| place.line);
        resembling.dedup();
        MergeError::AnchorNotFound { segment: number + 1, anchor, nearest: resembling }
    }

    /// The end that was found may occur several times; reports the place where most lines match.
    fn one_end(&self, number: usize, missing: Side, places: &[usize]) -> MergeError {
        let lines = self.segments[number].lines;
        let side = if missing == Side::First { Side::Last } else { Side::First };
        let found = likeliest(self.old, lines, side, places);
        self.one_sided(number, missing, found, agreeing(self.old, lines, side, found).max(1))
    }

    /// `run` lines of the file match the segment, from `found` towards the missing end.
    fn one_sided(&self, number: usize, missing: Side, found: usize, run: usize) -> MergeError {
        let neighbour = match missing {
            Side::First => found.checked_sub(run),
            Side::Last => Some(found + run).filter(|next| *next < self.old.len()),
        };
        MergeError::OneSidedAnchor {
            segment: number + 1,
            side: missing,
            missing: cut(self.anchor(number, missing)),
            found: self.show(found),
            neighbour: neighbour.map(|at| self.show(at)),
        }
    }

    fn out_of_order(&self, point: &Point<'_>, after: usize) -> MergeError {
        let found = point.places.last().copied().unwrap_or_default();
        MergeError::AnchorOrder {
            segment: point.segment + 1,
            side: point.side,
            anchor: cut(self.anchor(point.segment, point.side)),
            found: self.show(found),
            after: after + 1,
        }
    }

    fn ambiguous(&self, point: &Point<'_>, candidates: &[usize]) -> MergeError {
        let lines = self.segments[point.segment].lines;
        let likeliest = likeliest(self.old, lines, point.side, candidates);
        let is_usable = |at: &usize| !self.old[*at].is_blank() && self.index.is_once(self.old[*at].body);
        let instead = match point.side {
            Side::First => (0..likeliest).rev().find(is_usable),
            Side::Last => (likeliest + 1..self.old.len()).find(is_usable),
        };
        MergeError::AmbiguousAnchor {
            segment: point.segment + 1,
            side: point.side,
            anchor: cut(self.anchor(point.segment, point.side)),
            places: candidates.iter().take(MAX_PLACES).map(|at| self.show(*at)).collect(),
            total: candidates.len(),
            instead: instead.map(|at| self.show(at)),
        }
    }
}

/// The first and the last line of a segment that is not blank.
fn ends<'a>(segment: &Segment<'a>) -> [&'a str; 2] {
    let non_blank = || segment.lines.iter().filter(|line| !line.is_blank());
    let [first, last] = [non_blank().next(), non_blank().next_back()];
    [first.map_or("", |line| line.body), last.map_or("", |line| line.body)]
}

/// The candidate that most lines of the segment match. Used only for advice in errors.
fn likeliest(old: &[Line<'_>], lines: &[Line<'_>], side: Side, candidates: &[usize]) -> usize {
    // Takes the first of equals.
    candidates.iter().copied().rev().max_by_key(|at| agreeing(old, lines, side, *at)).unwrap_or_default()
}

/// How many lines of the segment match the file at `at`, counted inwards from one of its ends.
fn agreeing(old: &[Line<'_>], lines: &[Line<'_>], side: Side, at: usize) -> usize {
    match side {
        Side::First => old[at..].iter().zip(lines).take_while(|(old, new)| old.body == new.body).count(),
        Side::Last => last_line::run(old, at, 0, lines),
    }
}
