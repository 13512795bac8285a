//! The answer to `tools/list`: every tool with its description and its input schema.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::outgoing::to_json;

static TOOLS_LIST_RESULT: LazyLock<String> = LazyLock::new(|| {
    let mut tools = conformance_tools();
    tools.extend(call_tools());
    tools.extend(process_tools());
    tools.extend(file_tools());
    tools.extend(message_tools());
    tools.extend(ask_tools());
    to_json(&json!({ "tools": tools }))
});

pub(crate) fn tools_list_result() -> &'static str {
    &TOOLS_LIST_RESULT
}

/// A tool whose properties are all optional.
fn tool(name: &str, description: &str, properties: Value) -> Value {
    let schema = json!({"type": "object", "properties": properties});
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn integer() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn string() -> Value {
    json!({"type": "string"})
}

/// The first tool of the list succeeds without arguments, because the suite calls it blindly.
fn conformance_tools() -> Vec<Value> {
    let none = || json!({});
    vec![
        tool("test_simple_text", "Returns a text", none()),
        tool("test_image_content", "Returns an image", none()),
        tool("test_audio_content", "Returns audio", none()),
        tool("test_embedded_resource", "Returns an embedded resource", none()),
        tool("test_multiple_content_types", "Returns text, an image and a resource", none()),
        tool("test_tool_with_logging", "Logs three times while it runs", none()),
        tool("test_tool_with_progress", "Reports progress three times while it runs", none()),
        tool("test_error_handling", "Always fails", none()),
        tool("test_sampling", "Asks the client to sample", json!({"prompt": string()})),
        tool("test_elicitation", "Asks the user for a name and an address", json!({"message": string()})),
        tool("test_elicitation_sep1034_defaults", "Asks with a default for every type", none()),
        tool("test_elicitation_sep1330_enums", "Asks with every kind of enum", none()),
        tool("test_reconnection", "Takes its time, for clients that reconnect", json!({"ms": integer()})),
        json_schema_2020_12_tool(),
    ]
}

fn json_schema_2020_12_tool() -> Value {
    json!({
        "name": "json_schema_2020_12_tool",
        "description": "Tool with JSON Schema 2020-12 features",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": string(), "city": string()},
                },
            },
            "properties": {
                "name": string(),
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": string(),
                "email": string(),
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        },
    })
}

fn call_tools() -> Vec<Value> {
    let mut sleep =
        tool("sleep", "Sleeps, unless cancelled", json!({"ms": integer(), "progress_every_ms": integer()}));
    sleep["execution"] = json!({"taskSupport": "optional"});
    vec![
        tool("echo", "Returns its text verbatim", json!({"text": string()})),
        tool("big", "Returns a text of that many bytes", json!({"bytes": integer()})),
        sleep,
        tool("cancelled_count", "How many running calls were cancelled, and their ids", json!({})),
        tool("state_set", "Remembers a value", json!({"key": string(), "value": string()})),
        tool("state_get", "Returns a remembered value", json!({"key": string()})),
    ]
}

fn process_tools() -> Vec<Value> {
    vec![
        tool("crash", "Exits without an answer", json!({"code": integer(), "stderr": string()})),
        tool("exit_after_answer", "Answers, then exits", json!({"code": integer()})),
        tool("pid", "The process id of the server", json!({})),
        tool("environment", "All environment variables", json!({})),
        tool("working_directory", "The current directory", json!({})),
        tool(
            "spawn_daemon",
            "Starts an orphan in a session of its own",
            json!({"keep_stderr": {"type": "boolean"}}),
        ),
        tool(
            "tcp_exchange",
            "Sends a text to an address and returns the answer",
            json!({"address": string(), "send": string()}),
        ),
        tool(
            "tcp_hold",
            "Opens connections to an address and keeps them",
            json!({"address": string(), "count": integer()}),
        ),
        tool("spawn_child", "Starts a direct child that stays", json!({})),
        tool("ignore_term", "From now on survives SIGTERM and the end of input", json!({})),
        tool("stop_reading", "Answers, then never reads again", json!({})),
    ]
}

fn file_tools() -> Vec<Value> {
    vec![
        tool("write_file", "Writes a text to a file", json!({"path": string(), "text": string()})),
        tool("read_file", "Returns the text of a file", json!({"path": string()})),
        tool("link_in_home", "Puts a link into its home", json!({"path": string(), "target": string()})),
    ]
}

fn message_tools() -> Vec<Value> {
    let log = json!({"level": string(), "text": string()});
    let log_unowned = json!({"level": string(), "text": string(), "ms": integer()});
    vec![
        tool("log", "Sends a log message, then answers", log),
        tool("log_unowned", "Answers, and logs that much later", log_unowned),
        tool("notify_resource", "Announces an update if subscribed", json!({"uri": string()})),
        tool("notify_list_changed", "Announces a changed tool list", json!({})),
        tool("raw_stdout", "Writes a raw line to standard output", json!({"line": string()})),
        tool("long_line", "Sends a notification of that many bytes", json!({"bytes": integer()})),
        tool("stderr_flood", "Writes that much to standard error", json!({"bytes": integer()})),
    ]
}

fn ask_tools() -> Vec<Value> {
    let kind = json!({"type": "string", "enum": ["sampling", "elicitation", "roots", "ping"]});
    vec![
        tool("ask", "Asks the client and returns its answer", json!({"kind": kind, "tag": string()})),
        tool(
            "ask_unowned",
            "Answers, and asks the client that much later",
            json!({"kind": kind, "tag": string(), "ms": integer()}),
        ),
        tool("ask_unowned_result", "What came back to ask_unowned, or pending", json!({})),
    ]
}
