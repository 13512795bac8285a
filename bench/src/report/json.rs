//! The parts that all JSON reports share.

use serde_json::{Value, json};

use crate::report::RunDescription;
use crate::report::bounds::{Bound, ReachRow};

/// Adds the description of the run to its figures.
pub(crate) fn with_run(mut figures: Value, run: &RunDescription) -> Value {
    figures["command_line"] = run.command_line.as_str().into();
    figures["rounds"] = run.rounds.into();
    figures["elapsed_seconds"] = run.elapsed_seconds.into();
    figures["date"] = run.machine.date.as_str().into();
    figures["kernel"] = run.machine.kernel.as_str().into();
    figures["processor"] = run.machine.processor.as_str().into();
    figures["cores"] = json!(run.machine.cores);
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
