//! Parses JSON with comments and trailing commas, as editors write it.

use jsonc_parser::ast::{self, ObjectPropName};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Entry, Kind, Lines, MAX_DEPTH, MAX_NODES, Node, Place, SyntaxError, Value};

/// Allows comments and trailing commas, and no other extension of JSON.
pub(crate) const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn read(text: &str) -> Result<Option<Node>, SyntaxError> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| {
        let place = Place { line: error.line_display(), column: error.column_display() };
        SyntaxError::new(place, error.kind().to_string())
    })?;
    let lines = Lines::new(text);
    let root = parsed.value.map(|value| node(value, &lines, 0)).transpose()?;
    match &root {
        Some(root) if root.size() > MAX_NODES => {
            Err(SyntaxError::new(Place::START, format!("more than {MAX_NODES} values")))
        }
        _ => Ok(root),
    }
}

fn node(value: ast::Value<'_>, lines: &Lines<'_>, depth: usize) -> Result<Node, SyntaxError> {
    let Range { start, end } = value.range();
    let place = lines.place(start);
    if depth > MAX_DEPTH {
        return Err(SyntaxError::too_deep(place));
    }
    let scalar = |kind, text: &str| Value::Scalar(kind, text.to_owned());
    let value = match value {
        ast::Value::StringLit(text) => scalar(Kind::Text, &text.value),
        ast::Value::NumberLit(number) => scalar(Kind::Number, number.value),
        ast::Value::BooleanLit(flag) => scalar(Kind::Flag, if flag.value { "true" } else { "false" }),
        ast::Value::NullKeyword(_) => scalar(Kind::Nothing, "null"),
        ast::Value::Array(array) => {
            let items = array.elements.into_iter().map(|item| node(item, lines, depth + 1));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        ast::Value::Object(object) => {
            let entries = object.properties.into_iter().map(|property| {
                let place = lines.place(property.name.range().start);
                let key = match property.name {
                    ObjectPropName::String(name) => name.value.into_owned(),
                    ObjectPropName::Word(name) => name.value.to_owned(),
                };
                Ok(Entry { key, place, value: node(property.value, lines, depth + 1)? })
            });
            Value::Map(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node { place, end: lines.place(end), value })
}
