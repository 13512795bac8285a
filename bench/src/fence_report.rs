//! The report on the fence, as Markdown and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::fence_results::{FenceResults, fence_reach_rows};
use crate::fence_variants::{FenceFigure, FenceMeasurement, FenceVariant};
use crate::machine::Machine;
use crate::report_json::{reach_as_json, with_machine};
use crate::report_markdown::{
    ABSENT, aligned_table, other_load_line, reach_table, readable_number, run_line,
};

/// What a report is about, besides its results.
#[derive(Debug)]
pub(crate) struct FenceDescription {
    pub(crate) command_line: String,
    pub(crate) machine: Machine,
    /// What the machine gives to the fence.
    pub(crate) host: String,
    pub(crate) variants: Vec<FenceVariant>,
    pub(crate) measurements: Vec<FenceMeasurement>,
    pub(crate) rounds: u32,
    pub(crate) elapsed_seconds: u64,
}

pub(crate) fn markdown_report(run: &FenceDescription, results: &FenceResults) -> String {
    let mut report = run_line(&run.command_line, &run.machine, run.rounds, run.elapsed_seconds);
    let _ = writeln!(report, "{}.", run.host);
    report.push_str(&other_load_line("tenth of the rounds", &results.other_load_percents));
    for measurement in &run.measurements {
        let title = match measurement {
            FenceMeasurement::Launch => "Starting /bin/true and waiting for it",
            FenceMeasurement::OpenClose => "Opening and closing a file of the scope",
            FenceMeasurement::Supervisor => {
                "Memory of what waits for the command (bubblewrap: both of its processes)"
            }
        };
        let table = match measurement {
            FenceMeasurement::Supervisor => plain_table(*measurement, run, results),
            _ => compared_table(*measurement, run, results),
        };
        // Writing to a string cannot fail.
        let _ = write!(report, "\n### {title}\n\n{table}");
    }
    let _ = write!(report, "\n### Reach\n\n{}", reach_table(&fence_reach_rows(results)));
    for note in results.notes() {
        let measurement = note.measurement.map_or_else(String::new, |of| format!(", {}", of.name()));
        let _ = writeln!(report, "\n{}{measurement}: {}", note.variant.name(), note.reason);
    }
    report
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), readable_number)
}

/// Median and quiet values, with their ratios to the unfenced ones.
fn compared_table(measurement: FenceMeasurement, run: &FenceDescription, results: &FenceResults) -> String {
    const BASE: FenceVariant = FenceVariant::Unfenced;
    let mut rows = Vec::new();
    for figure in measurement.figures() {
        let unit = figure.heading();
        rows.push(vec![
            "variant".to_owned(),
            format!("median {unit}"),
            format!("p10 {unit}"),
            "ratio, median of the rounds".to_owned(),
            "ratio of the p10".to_owned(),
        ]);
        for variant in concerned(measurement, run) {
            rows.push(vec![
                variant.name().to_owned(),
                number(results.median(variant, *figure)),
                number(results.quiet(variant, *figure)),
                number(results.ratio(variant, BASE, *figure)),
                number(results.quiet_ratio(variant, BASE, *figure)),
            ]);
        }
    }
    aligned_table(&rows)
}

fn plain_table(measurement: FenceMeasurement, run: &FenceDescription, results: &FenceResults) -> String {
    let heading = |figure: &FenceFigure| figure.heading().to_owned();
    let mut rows = vec![
        std::iter::once("variant".to_owned()).chain(measurement.figures().iter().map(heading)).collect(),
    ];
    for variant in concerned(measurement, run) {
        let values = measurement.figures().iter().map(|figure| number(results.median(variant, *figure)));
        rows.push(std::iter::once(variant.name().to_owned()).chain(values).collect());
    }
    aligned_table(&rows)
}

fn concerned(measurement: FenceMeasurement, run: &FenceDescription) -> impl Iterator<Item = FenceVariant> {
    run.variants.iter().copied().filter(move |variant| measurement.concerns(*variant))
}

pub(crate) fn json_report(run: &FenceDescription, results: &FenceResults) -> Value {
    let variants: Map<String, Value> = run
        .variants
        .iter()
        .map(|variant| (variant.name().to_owned(), variant_figures(*variant, run, results)))
        .collect();
    let notes: Vec<Value> = results
        .notes()
        .iter()
        .map(|note| {
            let measurement = note.measurement.map(FenceMeasurement::name);
            json!({ "variant": note.variant.name(), "measurement": measurement, "reason": note.reason })
        })
        .collect();
    let figures = json!({
        "host": run.host,
        "rounds": run.rounds,
        "elapsed_seconds": run.elapsed_seconds,
        "other_load_percents": results.other_load_percents,
        "variants": variants,
        "reach": reach_as_json(&fence_reach_rows(results)),
        "notes": notes,
    });
    with_machine(figures, &run.command_line, &run.machine)
}

fn variant_figures(variant: FenceVariant, run: &FenceDescription, results: &FenceResults) -> Value {
    let figures = run
        .measurements
        .iter()
        .filter(|measurement| measurement.concerns(variant))
        .flat_map(|measurement| measurement.figures());
    let members = figures.map(|figure| {
        let (median, quiet) = (results.median(variant, *figure), results.quiet(variant, *figure));
        let rounds = results.per_round(variant, *figure);
        (figure.key().to_owned(), json!({ "median": median, "p10": quiet, "rounds": rounds }))
    });
    Value::Object(members.collect())
}
