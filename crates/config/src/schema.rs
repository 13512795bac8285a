//! The JSON Schema of configuration files, made from the tables of keys.

use serde_json::{Map, Value, json};

use crate::keys::{FILE, Key, Shape, TOOL_NAME};

/// A JSON Schema (draft 2020-12) for editors that complete and check as you type.
pub fn schema() -> Value {
    let mut schema = object(FILE);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("ringfence configuration");
    schema
}

fn object(keys: &[Key]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), described(key))).collect();
    json!({"type": ["object", "null"], "properties": properties, "additionalProperties": false})
}

fn described(key: &Key) -> Value {
    let mut schema = of_shape(&key.shape);
    schema["description"] = json!(key.about);
    if let Some(default) = default_value(key) {
        schema["default"] = default;
    }
    schema
}

/// The default as a value. The tables write it in YAML, which here is always one word or JSON.
fn default_value(key: &Key) -> Option<Value> {
    match (key.default, &key.shape) {
        ("", _) => None,
        (word, Shape::Choice(_)) => Some(json!(word)),
        (text, _) => serde_json::from_str(text).ok(),
    }
}

fn of_shape(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Path => json!({"type": "string", "minLength": 1}),
        // `PORT: 3000` is what people write in YAML.
        Shape::Template => json!({"type": ["string", "number", "boolean"]}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Seconds => json!({"type": "number", "exclusiveMinimum": 0}),
        Shape::Count => json!({"type": "integer", "minimum": 1}),
        Shape::Size => {
            json!({"type": ["string", "integer"], "pattern": "^[0-9]+[KkMmGgTt]?([Ii]?[Bb])?$", "minimum": 1})
        }
        Shape::Moment => json!({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}"}),
        Shape::ToolName => json!({"type": "string", "pattern": TOOL_NAME.pattern()}),
        Shape::Choice(choices) => json!({"enum": choices}),
        Shape::List(shape) => json!({"type": "array", "items": of_shape(shape)}),
        Shape::Map(named, shape) => json!({
            "type": ["object", "null"],
            "propertyNames": {"pattern": named.rule().pattern()},
            "additionalProperties": of_shape(shape),
        }),
        Shape::Object(keys) => object(keys),
        Shape::Either(shapes) => json!({"anyOf": shapes.iter().map(of_shape).collect::<Vec<_>>()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_the_tables_say() {
        let schema = schema();
        let server = &schema["properties"]["servers"]["additionalProperties"];
        assert_eq!(server["additionalProperties"], json!(false));
        assert_eq!(server["properties"]["lifecycle"]["default"], "session");
        assert_eq!(
            server["properties"]["lifecycle"]["enum"],
            json!(["session", "workspace", "shared", "call"])
        );
        assert_eq!(server["properties"]["enabled"]["default"], true);
        assert_eq!(server["properties"]["command"]["anyOf"][0]["type"], "array");
        assert_eq!(server["properties"]["fence"]["properties"]["processes"]["minimum"], 1);
        assert_eq!(schema["properties"]["servers"]["propertyNames"]["pattern"], "^[A-Za-z0-9_-]{1,32}$");
    }

    #[test]
    fn every_default_is_a_value() {
        let mut tables = vec![FILE];
        while let Some(table) = tables.pop() {
            for key in table {
                assert!(key.default.is_empty() || default_value(key).is_some(), "{}", key.name);
                assert!(!key.about.is_empty() && !key.example.is_empty(), "{}", key.name);
                let mut shape = &key.shape;
                while let Shape::Map(_, inner) | Shape::List(inner) = shape {
                    shape = inner;
                }
                if let Shape::Object(keys) = shape {
                    tables.push(keys);
                }
            }
        }
    }
}
