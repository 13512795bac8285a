//! Parses TOML, which only the files of other clients use.

use std::ops::Range;

use toml_edit::{Document, Item, Key, TableLike};

use super::{Entry, Kind, Lines, MAX_DEPTH, Node, Place, SyntaxError, Value};

pub(super) fn read(text: &str) -> Result<Option<Node>, SyntaxError> {
    let lines = Lines::new(text);
    let document = Document::parse(text).map_err(|error| {
        let place = error.span().map_or(Place::START, |span| lines.place(span.start));
        SyntaxError::new(place, error.message())
    })?;
    let entries = entries(document.as_table(), &lines, 0)?;
    let end = lines.place(text.len());
    Ok((!entries.is_empty()).then_some(Node { place: Place::START, end, value: Value::Map(entries) }))
}

fn entries(table: &dyn TableLike, lines: &Lines<'_>, depth: usize) -> Result<Vec<Entry>, SyntaxError> {
    let entry = |(name, item): (&str, &Item)| {
        let span = table.key(name).and_then(Key::span).or_else(|| item.span());
        let place = span.map_or(Place::START, |span| lines.place(span.start));
        let value = node(item, place, lines, depth + 1)?;
        Ok(Entry { key: name.to_owned(), place, value })
    };
    table.iter().map(entry).collect()
}

fn node(item: &Item, near: Place, lines: &Lines<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let Range { start, end } = item.span().unwrap_or_default();
    let (place, end) = if end == 0 { (near, near) } else { (lines.place(start), lines.place(end)) };
    if depth > MAX_DEPTH {
        return Err(SyntaxError::too_deep(place));
    }
    let scalar = |kind, text: String| Value::Scalar(kind, text);
    let value = match item {
        Item::None => scalar(Kind::Nothing, String::new()),
        Item::Table(table) => Value::Map(entries(table, lines, depth)?),
        Item::ArrayOfTables(tables) => {
            let tables = tables
                .iter()
                .map(|table| Ok(Node { place, end, value: Value::Map(entries(table, lines, depth + 1)?) }));
            Value::List(tables.collect::<Result<_, _>>()?)
        }
        Item::Value(value) => match value {
            toml_edit::Value::String(text) => scalar(Kind::Text, text.value().clone()),
            toml_edit::Value::Integer(number) => scalar(Kind::Number, number.value().to_string()),
            toml_edit::Value::Float(number) => scalar(Kind::Number, number.value().to_string()),
            toml_edit::Value::Boolean(flag) => scalar(Kind::Flag, flag.value().to_string()),
            toml_edit::Value::Datetime(time) => scalar(Kind::Text, time.value().to_string()),
            toml_edit::Value::InlineTable(table) => Value::Map(entries(table, lines, depth)?),
            toml_edit::Value::Array(array) => {
                let items =
                    array.iter().map(|item| node(&Item::Value(item.clone()), place, lines, depth + 1));
                Value::List(items.collect::<Result<_, _>>()?)
            }
        },
    };
    Ok(Node { place, end, value })
}
