//! Reads what the rules need of a Markdown page: code in it, and tables.

/// A piece of code in a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
    pub(super) kind: CodeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// Between backticks.
    Span,
    /// A line of a fenced block without a language, or of the language `text`.
    Block,
}

pub(super) fn code(page: &str) -> Vec<Code<'_>> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (line, text) in (1..).zip(page.lines()) {
        match (text.trim_start().strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(language.trim()),
            (Some(_), Some(_)) => fence = None,
            (None, Some("" | "text")) => found.push(Code { line, text, kind: CodeKind::Block }),
            (None, Some(_)) => {}
            (None, None) => {
                let spans = text.split('`').skip(1).step_by(2);
                found.extend(spans.map(|text| Code { line, text, kind: CodeKind::Span }));
            }
        }
    }
    found
}

/// A row of a table: its line, and its cells by the names of their columns.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) line: usize,
    cells: Vec<(&'a str, &'a str)>,
}

impl<'a> Row<'a> {
    pub(super) fn cell(&self, column: &str) -> Option<&'a str> {
        self.cells.iter().find(|(name, _)| *name == column).map(|(_, cell)| *cell)
    }
}

/// The rows of the first table that has all these columns.
pub(super) fn table<'a>(page: &'a str, columns: &[&str]) -> Option<Vec<Row<'a>>> {
    let mut lines = (1..).zip(page.lines());
    let header = lines.by_ref().find_map(|(_, line)| {
        let cells = cells(line)?;
        columns.iter().all(|column| cells.contains(column)).then_some(cells)
    })?;
    // The line of dashes.
    lines.next();
    let rows = lines.map_while(|(line, text)| Some((line, cells(text)?)));
    Some(rows.map(|(line, cells)| Row { line, cells: header.iter().copied().zip(cells).collect() }).collect())
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_plain_blocks_are_code() {
        let page = "a `b` c `d e`\n```\nf\n```\n```sh\ng\n```\n```text\n`h`\n```\n";
        let found: Vec<(usize, &str)> = code(page).iter().map(|code| (code.line, code.text)).collect();
        assert_eq!(found, [(1, "b"), (1, "d e"), (3, "f"), (9, "`h`")]);
    }

    #[test]
    fn a_table_is_found_by_its_columns() {
        let page = "| x | y |\n|---|---|\n| 1 | 2 |\n\n| crate | owns | uses |\n|--|--|--|\n| a | b | c |\n| d | e | f |\ntext\n";
        let rows = table(page, &["crate", "uses"]).unwrap();
        let cells: Vec<_> = rows.iter().map(|row| (row.line, row.cell("crate"), row.cell("uses"))).collect();
        assert_eq!(cells, [(7, Some("a"), Some("c")), (8, Some("d"), Some("f"))]);
        assert!(table(page, &["crate", "z"]).is_none());
    }
}
