//! Where a line of an edit stands in the file, and the ways to go through the file in the order of the edit.

use std::collections::HashMap;

use super::error::Side;
use crate::text::Line;

/// Where each line of a file is found by what it says.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    exact: HashMap<&'a str, Vec<usize>>,
    /// Without trailing blanks, for lines that are not there exactly.
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

    /// The places of a line, in order: where it stands exactly, or else but for trailing blanks.
    pub(crate) fn places(&self, body: &str) -> &[usize] {
        let exact = self.exact.get(body).or_else(|| self.trimmed.get(body.trim_end()));
        exact.map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_once(&self, body: &str) -> bool {
        self.places(body).len() == 1
    }
}

/// A line of the edit that must stand in the file, after those before it.
#[derive(Debug)]
pub(crate) struct Point<'i> {
    pub(crate) segment: usize,
    pub(crate) side: Side,
    pub(crate) places: &'i [usize],
}

/// For each point the first and the last line of the file that it can stand for. Any of its places between
/// these is possible, since the points before can take their first, and those behind their last ones.
#[derive(Debug)]
pub(crate) struct Ranges {
    first: Vec<usize>,
    last: Vec<usize>,
}

impl Ranges {
    /// `Err` names the point that has no place behind the others, and the place of the one before it.
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
            // The first places are a way through, so there is a last one that is not before them.
            *place = point.places[end.saturating_sub(1)];
            limit = *place;
        }
        Ok(Self { first, last })
    }

    /// All lines of the file that a point can stand for; never none.
    pub(crate) fn candidates<'i>(&self, number: usize, point: &Point<'i>) -> &'i [usize] {
        let begin = point.places.partition_point(|place| *place < self.first[number]);
        let end = point.places.partition_point(|place| *place <= self.last[number]);
        &point.places[begin..end]
    }
}
