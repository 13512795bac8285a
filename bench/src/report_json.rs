//! The report as JSON: every round of every figure, the medians, the reach and the notes.

use serde_json::{Map, Value, json};

use crate::legs::Leg;
use crate::machine::Machine;
use crate::reach::{Bound, ReachRow, reach_rows};
use crate::report_markdown::RunDescription;
use crate::results::Results;

pub(crate) fn json_report(run: &RunDescription, results: &Results) -> Value {
    let legs: Map<String, Value> =
        run.legs.iter().map(|leg| (leg.name().to_owned(), leg_figures(*leg, run, results))).collect();
    let notes: Vec<Value> = results
        .notes()
        .iter()
        .map(|note| {
            let measurement = note.measurement.map(|measurement| format!("{measurement:?}"));
            json!({ "leg": note.leg.name(), "measurement": measurement, "reason": note.reason })
        })
        .collect();
    let figures = json!({
        "rounds": run.rounds,
        "elapsed_seconds": run.elapsed_seconds,
        "other_load_percent_per_round": results.other_load_percents(),
        "legs": legs,
        "reach": reach_as_json(&reach_rows(results)),
        "notes": notes,
    });
    with_machine(figures, &run.command_line, &run.machine)
}

/// Adds what was run, and where, to the figures of a run.
pub(crate) fn with_machine(mut figures: Value, command_line: &str, machine: &Machine) -> Value {
    figures["command_line"] = command_line.into();
    figures["date"] = machine.date.as_str().into();
    figures["kernel"] = machine.kernel.as_str().into();
    figures["processor"] = machine.processor.as_str().into();
    figures["cores"] = json!(machine.cores);
    figures
}

pub(crate) fn reach_as_json(rows: &[ReachRow]) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "figure": row.figure,
                "measured": row.measured,
                "bound": row.bound.map(Bound::described),
                "met": row.is_met(),
            })
        })
        .collect()
}

fn leg_figures(leg: Leg, run: &RunDescription, results: &Results) -> Value {
    let figures = run.measurements.iter().flat_map(|measurement| measurement.figures());
    let members = figures.map(|figure| {
        let per_round = results.per_round(leg, *figure);
        (figure.key().to_owned(), json!({ "median": results.median(leg, *figure), "rounds": per_round }))
    });
    Value::Object(members.collect())
}
