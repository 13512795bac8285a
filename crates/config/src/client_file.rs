//! Sets or removes one entry in another client's file and leaves everything else as it is.
//!
//! Text goes in, text comes out. JSON and TOML keep their comments and their layout.

use std::path::Path;

use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike};

use crate::diagnostic::Findings;
use crate::document::json::OPTIONS;
use crate::document::{self, Kind, Node, Syntax};

/// The format of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSyntax {
    /// With comments.
    Json,
    Toml,
}

/// A client's file cannot be read, or does not have the expected shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClientFileError(String);

impl ClientFileError {
    fn not_a_map(section: &[&str]) -> Self {
        Self(format!("`{}` is not a map", section.join(".")))
    }
}

/// The fields of the entry `name` in order, if the section has it.
pub fn entry(
    text: &str,
    syntax: ClientSyntax,
    section: &[&str],
    name: &str,
) -> Result<Option<Vec<(String, Value)>>, ClientFileError> {
    let root = read(text, syntax)?;
    let fields = root.as_ref().and_then(|root| find(root, section)?.get(name)?.map());
    Ok(fields
        .map(|entries| entries.iter().map(|entry| (entry.key.clone(), value_of(&entry.value))).collect()))
}

/// The value of `key` in the section, if it has one.
pub fn value(
    text: &str,
    syntax: ClientSyntax,
    section: &[&str],
    key: &str,
) -> Result<Option<Value>, ClientFileError> {
    let root = read(text, syntax)?;
    Ok(root.as_ref().and_then(|root| find(root, section)?.get(key)).map(value_of))
}

/// The text with `key` of the section set to a value that is no map.
pub fn with_value(
    text: &str,
    syntax: ClientSyntax,
    section: &[&str],
    key: &str,
    value: Value,
) -> Result<String, ClientFileError> {
    match syntax {
        ClientSyntax::Json => set_in_json(text, section, key, input(value)),
        ClientSyntax::Toml => {
            let mut document = parse_toml(text)?;
            let table = toml_section(&mut document, section)?;
            table.insert(key, Item::Value(toml_value(&value)));
            Ok(document.to_string())
        }
    }
}

/// The text with these texts at the end of a JSON list, without those that it has already. The list is made if it is
/// missing.
pub fn with_list_items(
    text: &str,
    section: &[&str],
    key: &str,
    items: &[&str],
) -> Result<String, ClientFileError> {
    let root = parse_json(text)?;
    let list = json_section(&root, section)?
        .array_value_or_create(key)
        .ok_or_else(|| ClientFileError(format!("`{}.{key}` is not a list", section.join("."))))?;
    let known: Vec<Option<String>> = list.elements().iter().map(text_of).collect();
    for item in items.iter().filter(|item| !known.iter().flatten().any(|known| known == *item)) {
        list.append(CstInputValue::String((*item).to_owned()));
    }
    Ok(with_mark_of(text, root.to_string()))
}

/// The text without these texts in a JSON list. A list that becomes empty is removed.
pub fn without_list_items(
    text: &str,
    section: &[&str],
    key: &str,
    items: &[&str],
) -> Result<String, ClientFileError> {
    let root = parse_json(text)?;
    let object = section.iter().try_fold(root.object_value(), |object, key| Some(object?.object_value(key)));
    let Some(property) = object.flatten().and_then(|object| object.get(key)) else {
        return Ok(text.to_owned());
    };
    let Some(list) = property.array_value() else { return Ok(text.to_owned()) };
    for element in list.elements() {
        if text_of(&element).is_some_and(|text| items.contains(&text.as_str())) {
            element.remove();
        }
    }
    if list.elements().is_empty() {
        property.remove();
    }
    Ok(with_mark_of(text, root.to_string()))
}

/// Returns true if the text holds nothing but empty maps.
pub fn says_nothing(text: &str, syntax: ClientSyntax) -> bool {
    fn is_empty(node: &Node) -> bool {
        match &node.value {
            document::Value::Map(entries) => entries.iter().all(|entry| is_empty(&entry.value)),
            _ => false,
        }
    }
    read(text, syntax).is_ok_and(|root| root.as_ref().is_none_or(is_empty))
}

fn text_of(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

/// Returns true if the file has such a section.
pub fn has_section(text: &str, syntax: ClientSyntax, section: &[&str]) -> Result<bool, ClientFileError> {
    Ok(read(text, syntax)?.is_some_and(|root| find(&root, section).is_some()))
}

/// The text with the entry added or replaced.
pub fn with_entry(
    text: &str,
    syntax: ClientSyntax,
    section: &[&str],
    name: &str,
    fields: Vec<(String, Value)>,
) -> Result<String, ClientFileError> {
    match syntax {
        ClientSyntax::Json => with_ordered_json(text, section, name, fields),
        ClientSyntax::Toml => with_toml(text, section, name, &fields),
    }
}

/// The text without the entry.
pub fn without_entry(
    text: &str,
    syntax: ClientSyntax,
    section: &[&str],
    name: &str,
) -> Result<String, ClientFileError> {
    match syntax {
        ClientSyntax::Json => {
            let root = parse_json(text)?;
            let object =
                section.iter().try_fold(root.object_value(), |object, key| Some(object?.object_value(key)));
            if let Some(property) = object.flatten().and_then(|object| object.get(name)) {
                property.remove();
            }
            Ok(with_mark_of(text, root.to_string()))
        }
        ClientSyntax::Toml => {
            let mut document = parse_toml(text)?;
            let mut table: Option<&mut dyn TableLike> = Some(document.as_table_mut());
            for key in section {
                table = table.and_then(|table| table.get_mut(key)).and_then(Item::as_table_like_mut);
            }
            if let Some(table) = table {
                table.remove(name);
            }
            Ok(document.to_string())
        }
    }
}

pub(crate) fn with_ordered_json(
    text: &str,
    section: &[&str],
    name: &str,
    fields: Vec<(String, Value)>,
) -> Result<String, ClientFileError> {
    let fields = fields.into_iter().map(|(key, value)| (key, input(value)));
    set_in_json(text, section, name, CstInputValue::Object(fields.collect()))
}

fn set_in_json(
    text: &str,
    section: &[&str],
    name: &str,
    value: CstInputValue,
) -> Result<String, ClientFileError> {
    let root = parse_json(text)?;
    let object = json_section(&root, section)?;
    match object.get(name) {
        Some(property) => property.set_value(value),
        None => {
            object.append(name, value);
        }
    }
    Ok(with_mark_of(text, root.to_string()))
}

/// The object of a section, made where it is missing.
fn json_section(root: &CstRootNode, section: &[&str]) -> Result<CstObject, ClientFileError> {
    let mut object =
        root.object_value_or_create().ok_or_else(|| ClientFileError::not_a_map(&["the file"]))?;
    for key in section {
        object = object.object_value_or_create(key).ok_or_else(|| ClientFileError::not_a_map(section))?;
    }
    Ok(object)
}

fn read(text: &str, syntax: ClientSyntax) -> Result<Option<Node>, ClientFileError> {
    let syntax = match syntax {
        ClientSyntax::Json => Syntax::Json,
        ClientSyntax::Toml => Syntax::Toml,
    };
    let mut findings = Findings::new(Path::new(""));
    let root = document::read(text, syntax, &mut findings);
    let Err(error) = findings.finish() else { return Ok(root) };
    let messages =
        error.diagnostics().iter().map(|found| format!("line {}: {}", found.origin.line, found.message));
    Err(ClientFileError(messages.collect::<Vec<_>>().join("; ")))
}

fn find<'a>(root: &'a Node, section: &[&str]) -> Option<&'a Node> {
    section.iter().try_fold(root, |node, key| node.get(key))
}

fn parse_json(text: &str) -> Result<CstRootNode, ClientFileError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    CstRootNode::parse(text, &OPTIONS)
        .map_err(|error| ClientFileError(format!("line {}: {}", error.line_display(), error.kind())))
}

/// Keeps the byte order mark that some editors put at the beginning of a file.
fn with_mark_of(before: &str, after: String) -> String {
    if before.starts_with('\u{feff}') { format!("\u{feff}{after}") } else { after }
}

fn input(value: Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text),
        Value::Array(items) => CstInputValue::Array(items.into_iter().map(input).collect()),
        Value::Object(entries) => {
            CstInputValue::Object(entries.into_iter().map(|(key, value)| (key, input(value))).collect())
        }
    }
}

fn parse_toml(text: &str) -> Result<DocumentMut, ClientFileError> {
    text.parse().map_err(|error: toml_edit::TomlError| ClientFileError(error.message().to_owned()))
}

fn with_toml(
    text: &str,
    section: &[&str],
    name: &str,
    fields: &[(String, Value)],
) -> Result<String, ClientFileError> {
    let mut document = parse_toml(text)?;
    let table = toml_section(&mut document, section)?;
    let mut new = Table::new();
    for (key, value) in fields {
        new.insert(key, Item::Value(toml_value(value)));
    }
    if let Some(old) = table.get(name).and_then(Item::as_table) {
        *new.decor_mut() = old.decor().clone();
    }
    table.insert(name, Item::Table(new));
    Ok(document.to_string())
}

/// The table of a section, made where it is missing.
fn toml_section<'a>(
    document: &'a mut DocumentMut,
    section: &[&str],
) -> Result<&'a mut dyn TableLike, ClientFileError> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in section {
        let mut implicit = Table::new();
        // Implicit: without a header of its own until it has a value, as people write it.
        implicit.set_implicit(true);
        let item = table.entry(key).or_insert(Item::Table(implicit));
        table = item.as_table_like_mut().ok_or_else(|| ClientFileError::not_a_map(section))?;
    }
    Ok(table)
}

fn toml_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::Array(items) => items.iter().map(toml_value).collect(),
        Value::Object(entries) => {
            let mut table = InlineTable::new();
            for (key, value) in entries {
                table.insert(key, toml_value(value));
            }
            table.into()
        }
        Value::String(text) => text.as_str().into(),
        Value::Null => "".into(),
    }
}

fn value_of(node: &Node) -> Value {
    match &node.value {
        document::Value::Scalar(Kind::Nothing, _) => Value::Null,
        document::Value::Scalar(Kind::Text, text) => Value::from(text.as_str()),
        document::Value::Scalar(_, text) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))
        }
        document::Value::List(items) => items.iter().map(value_of).collect(),
        document::Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), value_of(&entry.value)))
            .collect::<Map<_, _>>()
            .into(),
    }
}
