//! Results of the fence benchmark, and its promised figures with their bounds.

use crate::benchmarks::fence::variants::{FenceFigure, FenceMeasurement, FenceVariant};
use crate::report::bounds::{Bound, ReachRow};
use crate::samples::Samples;
use crate::statistics::percentile;

/// The percentile of noisy samples that stands for a quiet machine.
const QUIET_PERCENTILE: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct FenceResults {
    pub(crate) samples: Samples<FenceVariant, FenceFigure>,
    notes: Vec<FenceNote>,
    pub(crate) other_load_percents: Vec<f64>,
}

/// Why a figure is missing, or rests on fewer rounds.
#[derive(Debug)]
pub(crate) struct FenceNote {
    pub(crate) variant: FenceVariant,
    /// `None`: the variant is not available on this machine.
    pub(crate) measurement: Option<FenceMeasurement>,
    pub(crate) reason: String,
}

impl FenceResults {
    pub(crate) fn note(
        &mut self,
        variant: FenceVariant,
        measurement: Option<FenceMeasurement>,
        reason: String,
    ) {
        self.notes.push(FenceNote { variant, measurement, reason });
    }

    pub(crate) fn notes(&self) -> &[FenceNote] {
        &self.notes
    }

    /// Returns true if it failed or is not available, so that it is not tried again.
    pub(crate) fn is_given_up(&self, variant: FenceVariant, measurement: FenceMeasurement) -> bool {
        self.notes
            .iter()
            .any(|note| note.variant == variant && note.measurement.is_none_or(|noted| noted == measurement))
    }

    pub(crate) fn quiet(&self, variant: FenceVariant, figure: FenceFigure) -> Option<f64> {
        percentile(&self.samples.measured(variant, figure), QUIET_PERCENTILE)
    }

    /// The ratio of the quiet values, not of each round.
    pub(crate) fn quiet_ratio(
        &self,
        variant: FenceVariant,
        base: FenceVariant,
        figure: FenceFigure,
    ) -> Option<f64> {
        let base = self.quiet(base, figure).filter(|base| *base > 0.0)?;
        Some(self.quiet(variant, figure)? / base)
    }

    pub(crate) fn own_failures(&self) -> impl Iterator<Item = &FenceNote> {
        self.notes.iter().filter(|note| !note.variant.is_foreign())
    }
}

pub(crate) fn fence_reach_rows(results: &FenceResults) -> Vec<ReachRow> {
    use FenceVariant as V;
    const SUPERVISOR_KIB: f64 = 0.7 * 1024.0;
    let both = |words: &str, figure: FenceFigure, ours: V, base: V, limit: f64| {
        let named = |statistic: &str| format!("{words}, {} / {}, {statistic}", ours.name(), base.name());
        [
            ReachRow {
                figure: named("median of the rounds"),
                measured: results.samples.ratio(ours, base, figure),
                bound: Some(Bound::AtMost(limit)),
            },
            ReachRow {
                figure: named("p10"),
                measured: results.quiet_ratio(ours, base, figure),
                bound: Some(Bound::AtMost(limit)),
            },
        ]
    };
    let supervisor = |variant: V| ReachRow {
        figure: format!("PSS KiB of a waiting supervisor among 8, {}", variant.name()),
        measured: results.samples.median(variant, FenceFigure::SupervisorAmongOthers),
        bound: Some(Bound::AtMost(SUPERVISOR_KIB)),
    };
    let (launch, open) = (FenceFigure::Launch, FenceFigure::OpenClose);
    let has_before = results.samples.has(&V::RunBefore);
    let before = has_before.then(|| both("launch and wait", launch, V::Run, V::RunBefore, 1.0));
    [
        both("launch and wait", launch, V::TierA, V::Unfenced, 5.0),
        both("launch and wait", launch, V::TierB, V::Unfenced, 9.0),
        both("launch and wait", launch, V::TierB, V::Bubblewrap, 0.9),
        both("open and close", open, V::TierA, V::Unfenced, 1.3),
        both("open and close", open, V::TierB, V::Unfenced, 1.3),
    ]
    .into_iter()
    .chain(before)
    .flatten()
    .chain([V::TierA, V::TierB].map(supervisor))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::tests::close;

    #[test]
    fn ratios_are_of_the_rounds_and_of_the_quiet_values() {
        let mut results = FenceResults::default();
        for (round, (ours, base)) in [(8.0, 2.0), (9.0, 3.0), (4.0, 2.0)].into_iter().enumerate() {
            results.samples.record(FenceVariant::TierA, FenceFigure::Launch, round, ours);
            results.samples.record(FenceVariant::Unfenced, FenceFigure::Launch, round, base);
        }
        let rows = fence_reach_rows(&results);
        assert!(close(rows[0].measured, 3.0));
        assert!(close(rows[1].measured, 2.0));
        assert_eq!(rows[0].is_met(), Some(true));
        assert_eq!(rows[2].is_met(), None);
    }

    #[test]
    fn an_earlier_build_has_rows_where_it_was_measured() {
        let mut results = FenceResults::default();
        let rows_without = fence_reach_rows(&results).len();
        for (variant, microseconds) in [(FenceVariant::Run, 11.0), (FenceVariant::RunBefore, 10.0)] {
            results.samples.record(variant, FenceFigure::Launch, 0, microseconds);
        }
        let rows = fence_reach_rows(&results);
        assert_eq!(rows.len(), rows_without + 2);
        let is_compared = |row: &&ReachRow| row.figure.contains("run-tier-b / before-run-tier-b");
        assert!(rows.iter().filter(is_compared).all(|row| row.is_met() == Some(false)));
    }

    #[test]
    fn a_variant_that_cannot_be_had_is_given_up_and_fails_only_if_it_is_ours() {
        let mut results = FenceResults::default();
        results.note(FenceVariant::Bubblewrap, None, "not installed".to_owned());
        assert!(results.is_given_up(FenceVariant::Bubblewrap, FenceMeasurement::Supervisor));
        assert_eq!(results.own_failures().count(), 0);
        results.note(FenceVariant::TierB, Some(FenceMeasurement::Launch), "refused".to_owned());
        assert!(!results.is_given_up(FenceVariant::TierB, FenceMeasurement::OpenClose));
        assert_eq!(results.own_failures().count(), 1);
    }
}
