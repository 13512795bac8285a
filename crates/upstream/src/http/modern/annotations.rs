//! The arguments of tools that are repeated in a header: those that the schemas in `tools/list` mark with
//! `x-mcp-header`.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use reqwest::header::HeaderName;
use serde::Deserialize;
use serde_json::{Map, Value};

const KEY: &str = "x-mcp-header";
/// Most tools with annotations that are remembered.
const MAX_TOOLS: usize = 1024;
/// Most annotations of one tool. A tool with more gets no headers, and its server will reject the call.
const MAX_OF_TOOL: usize = 64;
/// Longest name of a tool together with all keys of its annotations. A tool with more gets no headers, too.
const MAX_LENGTH: usize = 4096;
/// Longest name of a header.
const MAX_NAME: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Annotation {
    /// The keys that lead to the argument.
    pub(super) path: Vec<String>,
    pub(super) header: HeaderName,
}

/// The annotations of the lists of tools seen so far.
#[derive(Debug, Default)]
pub(super) struct Annotations(Mutex<HashMap<String, Arc<[Annotation]>>>);

/// One page of `tools/list`.
pub(super) struct Page {
    tools: Vec<(String, Vec<Annotation>)>,
    pub(super) next_cursor: Option<String>,
}

impl Annotations {
    pub(super) fn of(&self, tool: &str) -> Arc<[Annotation]> {
        self.tools().get(tool).cloned().unwrap_or_default()
    }

    /// Remembers the annotations of a list of tools. A list without any is not parsed.
    pub(super) fn learn_from(&self, result: &str) {
        if memchr::memmem::find(result.as_bytes(), KEY.as_bytes()).is_some()
            && let Some(page) = Page::read(result)
        {
            self.learn(page);
        }
    }

    pub(super) fn learn(&self, page: Page) {
        let mut known = self.tools();
        for (tool, annotations) in page.tools {
            if annotations.is_empty() || length(&tool, &annotations) > MAX_LENGTH {
                known.remove(&tool);
            } else if known.len() < MAX_TOOLS || known.contains_key(&tool) {
                known.insert(tool, annotations.into());
            }
        }
    }

    fn tools(&self) -> MutexGuard<'_, HashMap<String, Arc<[Annotation]>>> {
        self.0.lock()
    }
}

impl Page {
    /// Returns `None` if the result is not a list of tools.
    pub(super) fn read(result: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            tools: Vec<Tool>,
            next_cursor: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Tool {
            name: String,
            #[serde(default)]
            input_schema: Value,
        }
        let fields: Fields = serde_json::from_str(result).ok()?;
        let tools = fields.tools.into_iter().map(|tool| {
            let annotations = annotations_of(&tool.input_schema).unwrap_or_default();
            (tool.name, annotations)
        });
        Some(Self { tools: tools.collect(), next_cursor: fields.next_cursor })
    }

    /// The annotations of one tool, if it is on this page.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<[Annotation]>> {
        let found = self.tools.iter().find(|(tool, _)| tool == name);
        found.map(|(_, annotations)| annotations.clone().into())
    }
}

/// The bytes to remember for a tool.
fn length(tool: &str, annotations: &[Annotation]) -> usize {
    let keys = annotations.iter().flat_map(|annotation| &annotation.path);
    tool.len() + keys.map(String::len).sum::<usize>()
}

/// Returns `None` if the annotations break a rule, so that no headers can be right.
fn annotations_of(schema: &Value) -> Option<Vec<Annotation>> {
    let mut found = Vec::new();
    if let Some(properties) = properties(schema) {
        collect(properties, &mut Vec::new(), &mut found)?;
    }
    Some(found)
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

fn collect(object: &Map<String, Value>, path: &mut Vec<String>, found: &mut Vec<Annotation>) -> Option<()> {
    for (key, schema) in object {
        path.push(key.clone());
        if let Some(name) = schema.get(KEY) {
            let header = header_name(name.as_str()?)?;
            let is_plain =
                matches!(schema.get("type")?.as_str()?, "string" | "integer" | "boolean" | "number");
            let is_unique = found.iter().all(|other| other.header != header);
            if !is_plain || !is_unique || found.len() == MAX_OF_TOOL {
                return None;
            }
            found.push(Annotation { path: path.clone(), header });
        }
        if let Some(properties) = properties(schema) {
            collect(properties, path, found)?;
        }
        path.pop();
    }
    Some(())
}

fn header_name(name: &str) -> Option<HeaderName> {
    let fits = !name.is_empty() && name.len() <= MAX_NAME;
    fits.then(|| HeaderName::from_bytes(format!("mcp-param-{name}").as_bytes()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "it is made where it is used")]
    fn of(properties: Value) -> Option<Vec<(String, String)>> {
        let found = annotations_of(&json!({ "type": "object", "properties": properties }))?;
        let pair = |one: Annotation| (one.path.join("."), one.header.as_str().to_owned());
        Some(found.into_iter().map(pair).collect())
    }

    #[test]
    fn annotations_are_found_at_any_depth_of_properties() {
        let region = json!({ "type": "string", KEY: "Region" });
        let nested = json!({ "type": "object", "properties": { "n": { "type": "integer", KEY: "N" } } });
        let expected = [("deep.n", "mcp-param-n"), ("region", "mcp-param-region")];
        let expected = expected.map(|(path, header)| (path.to_owned(), header.to_owned()));
        assert_eq!(of(json!({ "region": region, "plain": {}, "deep": nested })), Some(expected.to_vec()));
        assert_eq!(of(json!({})), Some(vec![]));
    }

    #[test]
    fn a_tool_that_breaks_a_rule_has_none() {
        let twice = json!({ "a": { "type": "string", KEY: "X" }, "b": { "type": "string", KEY: "x" } });
        assert_eq!(of(twice), None);
        for bad in [json!({ KEY: "X" }), json!({ "type": "array", KEY: "X" })] {
            assert_eq!(of(json!({ "a": bad })), None);
        }
        for name in [json!(""), json!("a b"), json!("a\r\nb"), json!(1), json!("x".repeat(1000))] {
            assert_eq!(of(json!({ "a": { "type": "string", KEY: name } })), None);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = Annotations::default();
        let tool = |number: usize| {
            let schema = json!({ "properties": { "a": { "type": "string", KEY: "A" } } });
            json!({ "name": number.to_string(), "inputSchema": schema })
        };
        let tools: Vec<Value> = (0..MAX_TOOLS + 10).map(tool).collect();
        known.learn_from(&json!({ "tools": tools }).to_string());
        assert_eq!(known.tools().len(), MAX_TOOLS);
        let gone = json!({ "tools": [{ "name": "3", "inputSchema": {}, "description": KEY }] });
        known.learn_from(&gone.to_string());
        assert!(known.of("3").is_empty() && !known.of("4").is_empty());
    }
}
