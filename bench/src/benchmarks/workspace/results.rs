//! Results of the workspace benchmark, and its promised figures with their bounds.

use crate::benchmarks::workspace::legs::{WorkspaceFigure, WorkspaceLeg, WorkspaceMeasurement};
use crate::report::bounds::{Bound, ReachRow};
use crate::samples::Samples;

/// One value of one round.
pub(crate) type WorkspaceSample = (WorkspaceLeg, WorkspaceFigure, f64);

#[derive(Debug, Default)]
pub(crate) struct WorkspaceResults {
    pub(crate) samples: Samples<WorkspaceLeg, WorkspaceFigure>,
    notes: Vec<WorkspaceNote>,
    pub(crate) other_load_percents: Vec<f64>,
}

/// Why a measurement is missing, or rests on fewer rounds.
#[derive(Debug)]
pub(crate) struct WorkspaceNote {
    pub(crate) measurement: WorkspaceMeasurement,
    pub(crate) reason: String,
    /// True if another project's program is not installed; that does not fail the run.
    pub(crate) is_absence: bool,
}

impl WorkspaceResults {
    pub(crate) fn record(&mut self, round: usize, samples: Vec<WorkspaceSample>) {
        for (leg, figure, value) in samples {
            self.samples.record(leg, figure, round, value);
        }
    }

    pub(crate) fn note(&mut self, note: WorkspaceNote) {
        self.notes.push(note);
    }

    pub(crate) fn notes(&self) -> &[WorkspaceNote] {
        &self.notes
    }

    pub(crate) fn own_failures(&self) -> impl Iterator<Item = &WorkspaceNote> {
        self.notes.iter().filter(|note| !note.is_absence)
    }
}

pub(crate) fn workspace_reach_rows(
    measurements: &[WorkspaceMeasurement],
    results: &WorkspaceResults,
) -> Vec<ReachRow> {
    measurements.iter().flat_map(|measurement| rows_of(*measurement, results)).collect()
}

fn rows_of(measurement: WorkspaceMeasurement, results: &WorkspaceResults) -> Vec<ReachRow> {
    use WorkspaceFigure as F;
    use WorkspaceLeg as L;
    const WORKER_KIB: f64 = 3.0 * 1024.0;
    let ratio = |words: &str, ours: L, base: L, figure: F, bound: Option<Bound>| ReachRow {
        figure: format!("{words}, {} / {}", ours.name(), base.name()),
        measured: results.samples.ratio(ours, base, figure),
        bound,
    };
    let overhead = |words: &str, figure: F| {
        [
            ratio(words, L::BuiltIn, L::PlainUnfenced, figure, Some(Bound::AtMost(1.05))),
            ratio(words, L::BuiltInUnfenced, L::PlainUnfenced, figure, None),
            ratio(words, L::BuiltIn, L::BuiltInUnfenced, figure, None),
        ]
    };
    let faster =
        |words: &str, figure: F| ratio(words, L::Filesystem, L::BuiltIn, figure, Some(Bound::AtLeast(5.0)));
    let search =
        |words: &str, figure: F| ratio(words, L::Stdio, L::Ripgrep, figure, Some(Bound::AtMost(1.5)));
    let memory = |words: &str, figure: F| ReachRow {
        figure: words.to_owned(),
        measured: results.samples.median(L::BuiltIn, figure),
        bound: Some(Bound::AtMost(WORKER_KIB)),
    };
    let start =
        |ours: L, base: L, bound: Option<Bound>| ratio("initialize p50", ours, base, F::Initialize, bound);
    match measurement {
        WorkspaceMeasurement::Overhead => {
            [("read_file p50", F::Read), ("write_file p50", F::Write), ("list_dir p50", F::List)]
                .into_iter()
                .flat_map(|(words, figure)| overhead(words, figure))
                .collect()
        }
        WorkspaceMeasurement::Peer => vec![
            faster("read_text_file / read_file", F::PeerRead),
            faster("write_file / write_file", F::PeerWrite),
            faster("edit_file / search_replace", F::PeerEdit),
            faster("search_files / file_search (names)", F::PeerFindName),
            faster("read_multiple_files of all files / grep_search (contents)", F::PeerFindText),
        ],
        WorkspaceMeasurement::Grep => vec![
            search("grep_search of 100 000 files, few hits", F::GrepFew),
            search("grep_search of 100 000 files, many hits", F::GrepMany),
        ],
        WorkspaceMeasurement::Memory => vec![
            memory("PSS KiB of a worker among 8", F::MemoryAmongOthers),
            memory("PSS KiB of a worker alone", F::MemoryAlone),
        ],
        WorkspaceMeasurement::Creation => vec![
            start(L::BuiltIn, L::StaticFenced, Some(Bound::AtMost(3.0))),
            start(L::BuiltInUnfenced, L::StaticUnfenced, None),
            start(L::BuiltIn, L::Stdio, None),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_takes_five_times_as_long_is_reached() {
        let mut results = WorkspaceResults::default();
        let figure = WorkspaceFigure::PeerRead;
        results.record(
            0,
            vec![(WorkspaceLeg::BuiltIn, figure, 100.0), (WorkspaceLeg::Filesystem, figure, 500.0)],
        );
        let rows = workspace_reach_rows(&[WorkspaceMeasurement::Peer], &results);
        assert_eq!(rows[0].is_met(), Some(true));
        assert_eq!(rows[1].is_met(), None);
    }
}
