//! The report on the fence, as Markdown and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::benchmarks::fence::results::{FenceResults, fence_reach_rows};
use crate::benchmarks::fence::variants::{FenceFigure, FenceMeasurement, FenceVariant};
use crate::report::RunDescription;
use crate::report::json::{reach_as_json, with_run};
use crate::report::markdown::{aligned_table, number_or_dash, other_load_line, reach_table, run_line};

#[derive(Debug)]
pub(crate) struct FenceCovered {
    pub(crate) run: RunDescription,
    /// The kernel features that the fence found.
    pub(crate) host: String,
    pub(crate) variants: Vec<FenceVariant>,
    pub(crate) measurements: Vec<FenceMeasurement>,
}

pub(crate) fn markdown_report(covered: &FenceCovered, results: &FenceResults) -> String {
    let mut report = run_line(&covered.run);
    let _ = writeln!(report, "{}.", covered.host);
    report.push_str(&other_load_line("tenth of the rounds", &results.other_load_percents));
    for measurement in &covered.measurements {
        let title = match measurement {
            FenceMeasurement::Launch => "Starting /bin/true and waiting for it",
            FenceMeasurement::OpenClose => "Opening and closing a file of the scope",
            FenceMeasurement::Supervisor => {
                "Memory of what waits for the command (bubblewrap: both of its processes)"
            }
        };
        let table = match measurement {
            FenceMeasurement::Supervisor => plain_table(*measurement, covered, results),
            _ => compared_table(*measurement, covered, results),
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

/// Median and quiet values, with their ratios to the unfenced ones.
fn compared_table(measurement: FenceMeasurement, covered: &FenceCovered, results: &FenceResults) -> String {
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
        for variant in concerned(measurement, covered) {
            rows.push(vec![
                variant.name().to_owned(),
                number_or_dash(results.samples.median(variant, *figure)),
                number_or_dash(results.quiet(variant, *figure)),
                number_or_dash(results.samples.ratio(variant, BASE, *figure)),
                number_or_dash(results.quiet_ratio(variant, BASE, *figure)),
            ]);
        }
    }
    aligned_table(&rows)
}

fn plain_table(measurement: FenceMeasurement, covered: &FenceCovered, results: &FenceResults) -> String {
    let heading = |figure: &FenceFigure| figure.heading().to_owned();
    let mut rows = vec![
        std::iter::once("variant".to_owned()).chain(measurement.figures().iter().map(heading)).collect(),
    ];
    for variant in concerned(measurement, covered) {
        let values = measurement
            .figures()
            .iter()
            .map(|figure| number_or_dash(results.samples.median(variant, *figure)));
        rows.push(std::iter::once(variant.name().to_owned()).chain(values).collect());
    }
    aligned_table(&rows)
}

fn concerned(measurement: FenceMeasurement, covered: &FenceCovered) -> impl Iterator<Item = FenceVariant> {
    covered.variants.iter().copied().filter(move |variant| measurement.concerns(*variant))
}

pub(crate) fn json_report(covered: &FenceCovered, results: &FenceResults) -> Value {
    let variants: Map<String, Value> = covered
        .variants
        .iter()
        .map(|variant| (variant.name().to_owned(), variant_figures(*variant, covered, results)))
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
        "host": covered.host,
        "other_load_percents": results.other_load_percents,
        "variants": variants,
        "reach": reach_as_json(&fence_reach_rows(results)),
        "notes": notes,
    });
    with_run(figures, &covered.run)
}

fn variant_figures(variant: FenceVariant, covered: &FenceCovered, results: &FenceResults) -> Value {
    let figures = covered
        .measurements
        .iter()
        .filter(|measurement| measurement.concerns(variant))
        .flat_map(|measurement| measurement.figures());
    let members = figures.map(|figure| {
        let (median, quiet) = (results.samples.median(variant, *figure), results.quiet(variant, *figure));
        let rounds = results.samples.per_round(variant, *figure);
        (figure.key().to_owned(), json!({ "median": median, "p10": quiet, "rounds": rounds }))
    });
    Value::Object(members.collect())
}
