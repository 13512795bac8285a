//! The values of a run: for each row and column of its tables, one value per round.

use std::collections::BTreeMap;

use crate::statistics::{median, ratios_per_round};

#[derive(Debug)]
pub(crate) struct Samples<Row, Figure> {
    values: BTreeMap<(Row, Figure), Vec<Option<f64>>>,
}

impl<Row, Figure> Default for Samples<Row, Figure> {
    fn default() -> Self {
        Self { values: BTreeMap::new() }
    }
}

impl<Row: Ord, Figure: Ord + Copy> Samples<Row, Figure> {
    pub(crate) fn record(&mut self, row: Row, figure: Figure, round: usize, value: f64) {
        let rounds = self.values.entry((row, figure)).or_default();
        if rounds.len() <= round {
            rounds.resize(round + 1, None);
        }
        rounds[round] = Some(value);
    }

    pub(crate) fn per_round(&self, row: Row, figure: Figure) -> &[Option<f64>] {
        self.values.get(&(row, figure)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns true if the row has any value.
    pub(crate) fn has(&self, row: &Row) -> bool {
        self.values.keys().any(|(measured, _)| measured == row)
    }

    /// The values of the rounds that have one.
    pub(crate) fn measured(&self, row: Row, figure: Figure) -> Vec<f64> {
        self.per_round(row, figure).iter().flatten().copied().collect()
    }

    pub(crate) fn median(&self, row: Row, figure: Figure) -> Option<f64> {
        median(&self.measured(row, figure))
    }

    /// The median of the per-round ratios.
    pub(crate) fn ratio(&self, row: Row, base: Row, figure: Figure) -> Option<f64> {
        median(&ratios_per_round(self.per_round(row, figure), self.per_round(base, figure)))
    }
}
