//! The report on the built-in server, as Markdown and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::machine::Machine;
use crate::report_json::{reach_as_json, with_machine};
use crate::report_markdown::{
    ABSENT, aligned_table, other_load_line, reach_table, readable_number, run_line,
};
use crate::workspace_legs::{WorkspaceLeg, WorkspaceMeasurement};
use crate::workspace_results::{WorkspaceResults, workspace_reach_rows};

/// What a report is about, besides its results.
#[derive(Debug)]
pub(crate) struct WorkspaceDescription {
    pub(crate) command_line: String,
    pub(crate) machine: Machine,
    pub(crate) measurements: Vec<WorkspaceMeasurement>,
    pub(crate) rounds: u32,
    pub(crate) elapsed_seconds: u64,
}

pub(crate) fn markdown_report(run: &WorkspaceDescription, results: &WorkspaceResults) -> String {
    let mut report = run_line(&run.command_line, &run.machine, run.rounds, run.elapsed_seconds);
    report.push_str(&other_load_line("round", &results.other_load_percents));
    for measurement in &run.measurements {
        // Writing to a string cannot fail.
        let _ = write!(report, "\n### {}\n\n{}", measurement.title(), table(*measurement, results));
    }
    let rows = workspace_reach_rows(&run.measurements, results);
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
        let value = |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), readable_number);
        let values = measurement.figures().iter().map(|figure| value(results.median(*leg, *figure)));
        rows.push(std::iter::once(leg.name().to_owned()).chain(values).collect());
    }
    aligned_table(&rows)
}

pub(crate) fn json_report(run: &WorkspaceDescription, results: &WorkspaceResults) -> Value {
    let legs: Map<String, Value> = WorkspaceLeg::ALL
        .into_iter()
        .map(|leg| (leg.name().to_owned(), leg_figures(leg, run, results)))
        .collect();
    let notes: Vec<Value> = results
        .notes()
        .iter()
        .map(|note| json!({ "measurement": note.measurement.name(), "reason": note.reason }))
        .collect();
    let figures = json!({
        "rounds": run.rounds,
        "elapsed_seconds": run.elapsed_seconds,
        "other_load_percents": results.other_load_percents,
        "legs": legs,
        "reach": reach_as_json(&workspace_reach_rows(&run.measurements, results)),
        "notes": notes,
    });
    with_machine(figures, &run.command_line, &run.machine)
}

fn leg_figures(leg: WorkspaceLeg, run: &WorkspaceDescription, results: &WorkspaceResults) -> Value {
    let measured = run.measurements.iter().filter(|measurement| measurement.legs().contains(&leg));
    let members = measured.flat_map(|measurement| measurement.figures()).map(|figure| {
        let rounds = results.per_round(leg, *figure);
        (figure.key().to_owned(), json!({ "median": results.median(leg, *figure), "rounds": rounds }))
    });
    Value::Object(members.collect())
}
