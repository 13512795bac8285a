//! The parts that all Markdown reports share: the lines about the run, and tables.

use std::fmt::Write;

use crate::machine::Machine;
use crate::report::RunDescription;
use crate::report::bounds::{Bound, ReachRow};
use crate::statistics::{median, percentile};

const ABSENT: &str = "–";

/// The command, the machine and the number of rounds.
pub(crate) fn run_line(run: &RunDescription) -> String {
    let RunDescription { command_line, machine, rounds, elapsed_seconds } = run;
    let Machine { date, kernel, processor, cores } = machine;
    format!(
        "`{command_line}`\n\n{date}, Linux {kernel}, {cores} cores ({processor}), \
         median of {rounds} interleaved rounds, {elapsed_seconds} s in all.\n"
    )
}

/// Reports the load from other programs, and warns if it spoils the figures.
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

/// A readable number, or a dash if there is none.
pub(crate) fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), readable_number)
}

/// Three significant digits or the whole number, with spaces between thousands.
fn readable_number(value: f64) -> String {
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
            number_or_dash(row.measured),
            row.bound.map_or_else(|| ABSENT.to_owned(), Bound::described),
            met.to_owned(),
        ]);
    }
    aligned_table(&table)
}

/// A Markdown table that is aligned in a terminal too: the first column left, the others right.
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
