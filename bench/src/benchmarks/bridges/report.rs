//! The report on the bridges: Markdown ready to paste into docs/benchmarks.md, and JSON with every round.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::benchmarks::bridges::measurements::{Figure, Measurement};
use crate::benchmarks::bridges::reach::reach_rows;
use crate::benchmarks::bridges::results::Results;
use crate::legs::{Leg, peers};
use crate::report::RunDescription;
use crate::report::json::{reach_as_json, with_run};
use crate::report::markdown::{aligned_table, number_or_dash, other_load_line, reach_table, run_line};

#[derive(Debug)]
pub(crate) struct Covered {
    pub(crate) run: RunDescription,
    pub(crate) legs: Vec<Leg>,
    pub(crate) measurements: Vec<Measurement>,
}

pub(crate) fn markdown_report(covered: &Covered, results: &Results) -> String {
    let mut report = heading(covered);
    report.push_str(&other_load_line("round", results.other_load_percents()));
    let titles = [
        ("latency", "Sequential latency: one session, one call in flight"),
        ("throughput", "Throughput: sessions × calls in flight each"),
        ("creation", "Session creation: initialize, initialized, first call"),
        ("big", "Big results, one after another"),
        ("memory", "Memory (PSS) at 1, 50 and 200 idle sessions"),
        ("held", "Idle sessions held at once"),
        ("vanished", "Memory (PSS) that 50 vanished clients leave, with their processes"),
        (
            "processes",
            "Descendant processes left, default settings, after up to 10 s (quick: 2 s); a shared server counts as one",
        ),
    ];
    for (group, title) in titles {
        let measurements: Vec<Measurement> =
            covered.measurements.iter().copied().filter(|measurement| measurement.group() == group).collect();
        if !measurements.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(report, "\n### {title}\n\n{}", measurement_table(&measurements, covered, results));
        }
    }
    let _ = write!(report, "\n### Reach\n\n{}", reach_table(&reach_rows(results)));
    report.push_str(&footnotes(results));
    report
}

fn heading(covered: &Covered) -> String {
    let mut text = run_line(&covered.run);
    let peers: Vec<String> = covered.legs.iter().filter_map(|leg| peers::described(*leg)).collect();
    if !peers.is_empty() {
        let _ = writeln!(text, "Peers, with their default settings and logging off: {}.", peers.join("; "));
    }
    text
}

fn measurement_table(measurements: &[Measurement], covered: &Covered, results: &Results) -> String {
    let columns: Vec<(Measurement, Figure)> = measurements
        .iter()
        .flat_map(|measurement| measurement.figures().iter().map(move |figure| (*measurement, *figure)))
        .collect();
    let mut rows = vec![vec!["leg".to_owned()]];
    rows[0].extend(columns.iter().map(|(_, figure)| figure.heading().to_owned()));
    for leg in &covered.legs {
        let mut row = vec![leg.name().to_owned()];
        row.extend(columns.iter().map(|(measurement, figure)| cell(*leg, *measurement, *figure, results)));
        rows.push(row);
    }
    aligned_table(&rows)
}

fn cell(leg: Leg, measurement: Measurement, figure: Figure, results: &Results) -> String {
    let value = number_or_dash(results.samples.median(leg, figure));
    match results.note_number(leg, measurement) {
        Some(number) => format!("{value} ({number})"),
        None => value,
    }
}

fn footnotes(results: &Results) -> String {
    let mut text = String::new();
    for (position, note) in results.notes().iter().enumerate() {
        let measurement = note.measurement.map_or_else(String::new, |of| format!(", {of:?}"));
        let _ = writeln!(text, "\n({}) {}{measurement}: {}", position + 1, note.leg.name(), note.reason);
    }
    text
}

pub(crate) fn json_report(covered: &Covered, results: &Results) -> Value {
    let legs: Map<String, Value> =
        covered.legs.iter().map(|leg| (leg.name().to_owned(), leg_figures(*leg, covered, results))).collect();
    let notes: Vec<Value> = results
        .notes()
        .iter()
        .map(|note| {
            let measurement = note.measurement.map(|measurement| format!("{measurement:?}"));
            json!({ "leg": note.leg.name(), "measurement": measurement, "reason": note.reason })
        })
        .collect();
    let figures = json!({
        "other_load_percent_per_round": results.other_load_percents(),
        "legs": legs,
        "reach": reach_as_json(&reach_rows(results)),
        "notes": notes,
    });
    with_run(figures, &covered.run)
}

fn leg_figures(leg: Leg, covered: &Covered, results: &Results) -> Value {
    let figures = covered.measurements.iter().flat_map(|measurement| measurement.figures());
    let members = figures.map(|figure| {
        let per_round = results.samples.per_round(leg, *figure);
        (
            figure.key().to_owned(),
            json!({ "median": results.samples.median(leg, *figure), "rounds": per_round }),
        )
    });
    Value::Object(members.collect())
}
