//! Parses YAML. Aliases are expanded within bounds. The only tag with a meaning is `!!str`.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};

use super::{Entry, Kind, MAX_DEPTH, MAX_NODES, Node, Place, SyntaxError, Value};

pub(super) fn read(text: &str) -> Result<Option<Node>, SyntaxError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut document = None;
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::StreamEnd => break,
            Event::DocumentStart(_) if document.is_some() => {
                return Err(SyntaxError::new(
                    place(span.start),
                    "a second document: one file is one document",
                ));
            }
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => document = Some(reader.node(event, span, 0)?),
        }
    }
    // A file of comments only is an empty document.
    Ok(document.filter(|node| !(node.is_nothing() && text.lines().all(is_blank_or_comment))))
}

/// The type of a scalar without quotes, by the core schema of YAML 1.2.
pub(crate) fn kind_of_plain(text: &str) -> Kind {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Nothing,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Kind::Flag,
        _ if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok() => {
            Kind::Number
        }
        _ => Kind::Text,
    }
}

fn is_blank_or_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// Complete nodes only: an alias inside the node that it names is not found.
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, SyntaxError> {
        self.parser.next_event().transpose().map_err(|error| {
            let hint = (error.info().contains("tab")).then(|| "indent with spaces".to_owned());
            SyntaxError { place: place(*error.marker()), message: error.info().to_owned(), hint }
        })
    }

    fn within(&mut self) -> Result<(Event<'a>, Span), SyntaxError> {
        self.next()?.ok_or_else(|| SyntaxError::new(Place::START, "the file ends too early"))
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, SyntaxError> {
        let start = place(span.start);
        if depth > MAX_DEPTH {
            return Err(SyntaxError::too_deep(start));
        }
        self.count(1, start)?;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = style != ScalarStyle::Plain || is_text_tag(tag.as_deref(), start)?;
                let kind = if is_text { Kind::Text } else { kind_of_plain(&text) };
                let value = Value::Scalar(kind, text.into_owned());
                Ok(self.keep(anchor, Node { place: start, end: place(span.end), value }))
            }
            Event::SequenceStart(anchor, tag) => {
                is_text_tag(tag.as_deref(), start)?;
                let (items, end) = self.list(depth)?;
                Ok(self.keep(anchor, Node { place: start, end, value: Value::List(items) }))
            }
            Event::MappingStart(anchor, tag) => {
                is_text_tag(tag.as_deref(), start)?;
                let (entries, end) = self.map(depth)?;
                Ok(self.keep(anchor, Node { place: start, end, value: Value::Map(entries) }))
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            _ => Err(SyntaxError::new(start, "a value was expected here")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<(Vec<Node>, Place), SyntaxError> {
        let mut items = Vec::new();
        loop {
            match self.within()? {
                (Event::SequenceEnd, span) => return Ok((items, end_of(span))),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<(Vec<Entry>, Place), SyntaxError> {
        let mut entries = Vec::new();
        loop {
            let key = match self.within()? {
                (Event::MappingEnd, span) => return Ok((entries, end_of(span))),
                (event, span) => self.node(event, span, depth + 1)?,
            };
            let Value::Scalar(_, name) = key.value else {
                return Err(SyntaxError::new(key.place, "a key must be text"));
            };
            let (event, span) = self.within()?;
            let value = self.node(event, span, depth + 1)?;
            entries.push(Entry { key: name, place: key.place, value });
        }
    }

    /// Copies the node of an anchor. Errors inside are reported where it was written.
    fn alias(&mut self, anchor: usize, span: Span) -> Result<Node, SyntaxError> {
        let start = place(span.start);
        let Some(named) = self.anchors.get(&anchor) else {
            return Err(SyntaxError::new(start, "this alias is inside the node that it names"));
        };
        let node = named.clone();
        self.count(node.size(), start)?;
        Ok(Node { end: place(span.end), ..node })
    }

    fn keep(&mut self, anchor: usize, node: Node) -> Node {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        node
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), SyntaxError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(SyntaxError::new(place, format!("more than {MAX_NODES} values, aliases included")));
        }
        Ok(())
    }
}

fn is_text_tag(tag: Option<&Tag>, place: Place) -> Result<bool, SyntaxError> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(_) => Err(SyntaxError::new(place, "tags are not supported")),
    }
}

/// The place after the closing bracket. The parser's own end may be after a comment that follows; a block has no
/// bracket.
fn end_of(span: Span) -> Place {
    let Place { line, column } = place(span.start);
    if span.start.index() == span.end.index() {
        Place { line, column }
    } else {
        Place { line, column: column + 1 }
    }
}

fn place(marker: Marker) -> Place {
    Place { line: marker.line().max(1), column: marker.col() + 1 }
}
