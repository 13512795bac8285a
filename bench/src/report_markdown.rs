//! The report as Markdown, ready to paste into docs/benchmarks.md.

use std::fmt::Write;

use crate::legs::Leg;
use crate::machine::Machine;
use crate::measurement_names::{Figure, Measurement};
use crate::peers;
use crate::reach::{Bound, ReachRow, reach_rows};
use crate::results::Results;
use crate::statistics::{median, percentile};

pub(crate) const ABSENT: &str = "–";

/// What a report is about, besides its results.
#[derive(Debug)]
pub(crate) struct RunDescription {
    pub(crate) command_line: String,
    pub(crate) machine: Machine,
    pub(crate) legs: Vec<Leg>,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) rounds: u32,
    pub(crate) elapsed_seconds: u64,
}

pub(crate) fn markdown_report(run: &RunDescription, results: &Results) -> String {
    let mut report = heading(run);
    report.push_str(&other_load_line("round", results.other_load_percents()));
    let titles = [
        ("latency", "Sequential latency: one session, one call in flight"),
        ("throughput", "Throughput: sessions × calls in flight each"),
        ("creation", "Session creation: initialize, initialized, first call"),
        ("big", "Big results, one after another"),
        ("memory", "Memory (PSS) at 1, 50 and 200 idle sessions"),
        ("held", "Idle sessions held at once"),
        (
            "processes",
            "Descendant processes left, default settings, after up to 10 s (quick: 2 s); a shared server counts as one",
        ),
    ];
    for (group, title) in titles {
        let measurements: Vec<Measurement> =
            run.measurements.iter().copied().filter(|measurement| measurement.group() == group).collect();
        if !measurements.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(report, "\n### {title}\n\n{}", measurement_table(&measurements, run, results));
        }
    }
    let _ = write!(report, "\n### Reach\n\n{}", reach_table(&reach_rows(results)));
    report.push_str(&footnotes(results));
    report
}

fn heading(run: &RunDescription) -> String {
    let mut text = run_line(&run.command_line, &run.machine, run.rounds, run.elapsed_seconds);
    let peers: Vec<String> = run.legs.iter().filter_map(|leg| peers::described(*leg)).collect();
    if !peers.is_empty() {
        let _ = writeln!(text, "Peers, with their default settings and logging off: {}.", peers.join("; "));
    }
    text
}

/// The command, and where and how often it was run.
pub(crate) fn run_line(command_line: &str, machine: &Machine, rounds: u32, seconds: u64) -> String {
    let Machine { date, kernel, processor, cores } = machine;
    format!(
        "`{command_line}`\n\n{date}, Linux {kernel}, {cores} cores ({processor}), \
         median of {rounds} interleaved rounds, {seconds} s in all.\n"
    )
}

/// Says how busy the machine was otherwise, and warns when that spoils the figures.
pub(crate) fn other_load_line(between: &str, percents: &[f64]) -> String {
    const QUIET_PERCENT: f64 = 5.0;
    let (Some(middle), Some(highest)) = (median(percents), percentile(percents, 100)) else {
        return String::new();
    };
    let warning = if highest > QUIET_PERCENT {
        " **The machine was not quiet: do not compare these figures with other runs.**"
    } else {
        ""
    };
    format!(
        "Other load before each {between}: median {middle:.0} %, highest {highest:.0} % of all cores.{warning}\n"
    )
}

fn measurement_table(measurements: &[Measurement], run: &RunDescription, results: &Results) -> String {
    let columns: Vec<(Measurement, Figure)> = measurements
        .iter()
        .flat_map(|measurement| measurement.figures().iter().map(move |figure| (*measurement, *figure)))
        .collect();
    let mut rows = vec![vec!["leg".to_owned()]];
    rows[0].extend(columns.iter().map(|(_, figure)| figure.heading().to_owned()));
    for leg in &run.legs {
        let mut row = vec![leg.name().to_owned()];
        row.extend(columns.iter().map(|(measurement, figure)| cell(*leg, *measurement, *figure, results)));
        rows.push(row);
    }
    aligned_table(&rows)
}

fn cell(leg: Leg, measurement: Measurement, figure: Figure, results: &Results) -> String {
    let value = results.median(leg, figure).map_or_else(|| ABSENT.to_owned(), readable_number);
    match results.note_number(leg, measurement) {
        Some(number) => format!("{value} ({number})"),
        None => value,
    }
}

/// Three significant digits or the whole number, with thousands apart.
pub(crate) fn readable_number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let digits = format!("{value:.0}");
        let split = digits.len() - 3;
        let (above, below) = digits.split_at(split);
        return if above.len() > 3 {
            format!("{} {} {below}", &above[..above.len() - 3], &above[above.len() - 3..])
        } else {
            format!("{above} {below}")
        };
    }
    if size >= 100.0 || value.fract().abs() < f64::EPSILON {
        return format!("{value:.0}");
    }
    if size >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

pub(crate) fn reach_table(rows: &[ReachRow]) -> String {
    let mut table = vec![["figure", "measured", "bound", "met"].map(str::to_owned).to_vec()];
    for row in rows {
        let met = match row.is_met() {
            Some(true) => "yes",
            Some(false) => "no",
            None if row.bound.is_none() => ABSENT,
            None => "not measured",
        };
        table.push(vec![
            row.figure.clone(),
            row.measured.map_or_else(|| ABSENT.to_owned(), readable_number),
            row.bound.map_or_else(|| ABSENT.to_owned(), Bound::described),
            met.to_owned(),
        ]);
    }
    aligned_table(&table)
}

fn footnotes(results: &Results) -> String {
    let mut text = String::new();
    for (position, note) in results.notes().iter().enumerate() {
        let measurement = note.measurement.map_or_else(String::new, |of| format!(", {of:?}"));
        let _ = writeln!(text, "\n({}) {}{measurement}: {}", position + 1, note.leg.name(), note.reason);
    }
    text
}

/// A Markdown table whose columns line up in a terminal too: words to the left, numbers to the right.
pub(crate) fn aligned_table(rows: &[Vec<String>]) -> String {
    let column_count = rows.first().map_or(0, Vec::len);
    let width_of = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..column_count).map(width_of).collect();
    let mut text = String::new();
    for (position, row) in rows.iter().enumerate() {
        for (column, (words, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(text, "| {words:<width$} ")
            } else {
                write!(text, "| {words:>width$} ")
            };
        }
        text.push_str("|\n");
        if position == 0 {
            for (column, width) in widths.iter().enumerate() {
                let rule = "-".repeat(width + 1);
                let _ = if column == 0 { write!(text, "|{rule}-") } else { write!(text, "|{rule}:") };
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let shown = [1.234, 12.34, 123.4, 12_345.6, 1_234_567.0, 3.0, 0.0].map(readable_number);
        assert_eq!(shown, ["1.23", "12.3", "123", "12 346", "1 234 567", "3", "0"]);
    }

    #[test]
    fn tables_line_up() {
        let rows = [vec!["leg".to_owned(), "µs".to_owned()], vec!["a".to_owned(), "1234".to_owned()]];
        assert_eq!(aligned_table(&rows), "| leg |   µs |\n|-----|-----:|\n| a   | 1234 |\n");
    }
}
