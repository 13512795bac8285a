//! Finds where lines of an edit occur in the file, and which of these places are possible in the edit's order.

use std::collections::HashMap;

use super::error::Side;
use crate::text::Line;

/// The lines of a file, indexed by their text.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    exact: HashMap<&'a str, Vec<usize>>,
    /// Without trailing blanks, for lines that have no exact match.
    trimmed: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(lines: &[Line<'a>]) -> Self {
        let mut index = Self { exact: HashMap::new(), trimmed: HashMap::new() };
        for (at, line) in lines.iter().enumerate() {
            index.exact.entry(line.body).or_default().push(at);
            index.trimmed.entry(line.body.trim_end()).or_default().push(at);
        }
        index
    }

    /// Where a line occurs, in order: its exact matches, or else those that differ in trailing blanks.
    pub(crate) fn places(&self, body: &str) -> &[usize] {
        let exact = self.exact.get(body).or_else(|| self.trimmed.get(body.trim_end()));
        exact.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_once(&self, body: &str) -> bool {
        self.places(body).len() == 1
    }
}

/// A line of the edit that must occur in the file, after the points before it.
#[derive(Debug)]
pub(crate) struct Point<'i> {
    pub(crate) segment: usize,
    pub(crate) side: Side,
    pub(crate) places: &'i [usize],
}

/// For each point, the first and the last line of the file that it can match. All its places in between are
/// possible too, because earlier points can take their first places and later points their last.
#[derive(Debug)]
pub(crate) struct Ranges {
    first: Vec<usize>,
    last: Vec<usize>,
}

impl Ranges {
    /// `Err` holds the index of a point that has no place after its predecessor, and the predecessor's place.
    pub(crate) fn of(points: &[Point<'_>]) -> Result<Self, (usize, usize)> {
        let mut first: Vec<usize> = Vec::with_capacity(points.len());
        for (number, point) in points.iter().enumerate() {
            let from = first.last().map_or(0, |before| before + 1);
            let next = point.places.partition_point(|place| *place < from);
            first.push(*point.places.get(next).ok_or((number, from.saturating_sub(1)))?);
        }
        let mut last = first.clone();
        let mut limit = usize::MAX;
        for (point, place) in points.iter().zip(&mut last).rev() {
            let end = point.places.partition_point(|candidate| *candidate < limit);
            // The first places are one valid choice, so the last place is never before the first.
            *place = point.places[end.saturating_sub(1)];
            limit = *place;
        }
        Ok(Self { first, last })
    }

    /// All lines of the file that a point can match. Never empty.
    pub(crate) fn candidates<'i>(&self, number: usize, point: &Point<'i>) -> &'i [usize] {
        let begin = point.places.partition_point(|place| *place < self.first[number]);
        let end = point.places.partition_point(|place| *place <= self.last[number]);
        &point.places[begin..end]
    }
}
