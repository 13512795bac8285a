//! The network as fenced programs see it in each mode, with controls which show that allowed addresses answer.

mod http_mode;
mod modes;
mod notes;
mod registries;

use std::collections::BTreeMap;

use crate::fence::programs::fenced_run::Ended;

/// A script that runs the network probes given as its arguments.
const PROBE: &str = include_str!("network/probe.py");

/// The outcome of each probe, by the probe's argument.
struct Outcomes {
    by_probe: BTreeMap<String, String>,
    ended: Ended,
}

impl Outcomes {
    fn read(ended: Ended) -> Self {
        let lines = ended.stdout.lines().filter_map(|line| line.split_once(" -> "));
        let by_probe = lines.map(|(probe, outcome)| (probe.to_owned(), outcome.to_owned())).collect();
        Self { by_probe, ended }
    }

    fn assert(&self, probe: &str, expected: &str) {
        let outcome = self.by_probe.get(probe).map(String::as_str);
        assert_eq!(outcome, Some(expected), "{probe}: {:?}", self.ended);
    }

    /// Compares the network line of the report.
    fn assert_network(&self, expected: &str) {
        assert_eq!(self.ended.report()["network"], expected, "{:?}", self.ended);
    }
}
