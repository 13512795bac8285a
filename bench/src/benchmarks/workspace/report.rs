//! The report on the built-in server, as Markdown and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::benchmarks::workspace::legs::{WorkspaceLeg, WorkspaceMeasurement};
use crate::benchmarks::workspace::results::{WorkspaceResults, workspace_reach_rows};
use crate::report::RunDescription;
use crate::report::json::{reach_as_json, with_run};
use crate::report::markdown::{aligned_table, number_or_dash, other_load_line, reach_table, run_line};

#[derive(Debug)]
pub(crate) struct WorkspaceCovered {
    pub(crate) run: RunDescription,
    pub(crate) measurements: Vec<WorkspaceMeasurement>,
}

pub(crate) fn markdown_report(covered: &WorkspaceCovered, results: &WorkspaceResults) -> String {
    let mut report = run_line(&covered.run);
    report.push_str(&other_load_line("round", &results.other_load_percents));
    for measurement in &covered.measurements {
        // Writing to a string cannot fail.
        let _ = write!(report, "\n### {}\n\n{}", measurement.title(), table(*measurement, results));
    }
    let rows = workspace_reach_rows(&covered.measurements, results);
    let _ = write!(report, "\n### Reach\n\n{}", reach_table(&rows));
    for note in results.notes() {
        let _ = writeln!(report, "\n{}: {}", note.measurement.name(), note.reason);
    }
    report
}

fn table(measurement: WorkspaceMeasurement, results: &WorkspaceResults) -> String {
    let mut rows = vec![vec!["leg".to_owned()]];
    rows[0].extend(measurement.figures().iter().map(|figure| figure.heading().to_owned()));
    for leg in measurement.legs() {
        let values =
            measurement.figures().iter().map(|figure| number_or_dash(results.samples.median(*leg, *figure)));
        rows.push(std::iter::once(leg.name().to_owned()).chain(values).collect());
    }
    aligned_table(&rows)
}

pub(crate) fn json_report(covered: &WorkspaceCovered, results: &WorkspaceResults) -> Value {
    let legs: Map<String, Value> = WorkspaceLeg::ALL
        .into_iter()
        .map(|leg| (leg.name().to_owned(), leg_figures(leg, covered, results)))
        .collect();
    let notes: Vec<Value> = results
        .notes()
        .iter()
        .map(|note| json!({ "measurement": note.measurement.name(), "reason": note.reason }))
        .collect();
    let figures = json!({
        "other_load_percents": results.other_load_percents,
        "legs": legs,
        "reach": reach_as_json(&workspace_reach_rows(&covered.measurements, results)),
        "notes": notes,
    });
    with_run(figures, &covered.run)
}

fn leg_figures(leg: WorkspaceLeg, covered: &WorkspaceCovered, results: &WorkspaceResults) -> Value {
    let measured = covered.measurements.iter().filter(|measurement| measurement.legs().contains(&leg));
    let members = measured.flat_map(|measurement| measurement.figures()).map(|figure| {
        let rounds = results.samples.per_round(leg, *figure);
        (figure.key().to_owned(), json!({ "median": results.samples.median(leg, *figure), "rounds": rounds }))
    });
    Value::Object(members.collect())
}
