//! The tools that the official conformance suite calls, with the texts and schemas it documents.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::outgoing::{ToolOutcome, text_outcome, to_json};
use crate::resources::PNG_BASE64;
use crate::running_calls::{BlockingCall, ClientAnswer};
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::asking::{ask_client, sampling_params};
use crate::tools::tool::{BlockingTool, Interruption, QuickTool};

/// A WAV header without samples.
const WAV_BASE64: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

const STEP: Duration = Duration::from_millis(50);

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    Some(match name {
        "test_simple_text" => simple_text,
        "test_image_content" => image_content,
        "test_audio_content" => audio_content,
        "test_embedded_resource" => embedded_resource,
        "test_multiple_content_types" => multiple_content_types,
        "test_error_handling" => error_handling,
        "json_schema_2020_12_tool" => json_schema_2020_12,
        _ => return None,
    })
}

pub(crate) fn find_blocking(name: &str) -> Option<BlockingTool> {
    Some(match name {
        "test_tool_with_logging" => with_logging,
        "test_tool_with_progress" => with_progress,
        "test_sampling" => sampling,
        "test_elicitation" => elicitation,
        "test_elicitation_sep1034_defaults" => elicitation_defaults,
        "test_elicitation_sep1330_enums" => elicitation_enums,
        "test_reconnection" => reconnection,
        _ => return None,
    })
}

fn content_outcome(content: &Value) -> ToolOutcome {
    ToolOutcome::Result(to_json(&json!({ "content": content })))
}

fn simple_text(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(text_outcome("This is a simple text response for testing."))
}

fn image_content(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(content_outcome(&json!([{"type": "image", "data": PNG_BASE64, "mimeType": "image/png"}])))
}

fn audio_content(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(content_outcome(&json!([{"type": "audio", "data": WAV_BASE64, "mimeType": "audio/wav"}])))
}

fn embedded_resource(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(content_outcome(&json!([{
        "type": "resource",
        "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        },
    }])))
}

fn multiple_content_types(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(content_outcome(&json!([
        {"type": "text", "text": "Multiple content types test:"},
        {"type": "image", "data": PNG_BASE64, "mimeType": "image/png"},
        {
            "type": "resource",
            "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": "{\"test\":\"data\",\"value\":123}",
            },
        },
    ])))
}

fn error_handling(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Err("This tool intentionally returns an error for testing".to_owned())
}

fn json_schema_2020_12(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    Ok(text_outcome(format!("JSON Schema 2020-12 tool called with: {arguments}")))
}

fn with_logging(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    server.send_log("info", "Tool execution started");
    call.pause(STEP)?;
    server.send_log("info", "Tool processing data");
    call.pause(STEP)?;
    server.send_log("info", "Tool execution completed");
    Ok(text_outcome("Tool with logging executed successfully"))
}

fn with_progress(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let report = |progress| {
        if let Some(token) = &call.raw_progress_token {
            server.output.send_progress(token, progress, 100);
        }
    };
    report(0);
    call.pause(STEP)?;
    report(50);
    call.pause(STEP)?;
    report(100);
    Ok(text_outcome("Tool with progress executed successfully"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sampling {
    prompt: String,
}

fn sampling(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let sampling: Sampling = parse_arguments(&call.arguments)?;
    let params = sampling_params(&sampling.prompt);
    let result = ask_declared(server, call, "sampling", "sampling/createMessage", &params)?;
    let text = result["content"]["text"].as_str().unwrap_or("No response");
    Ok(text_outcome(format!("LLM response: {text}")))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Elicitation {
    message: String,
}

fn elicitation(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let elicitation: Elicitation = parse_arguments(&call.arguments)?;
    let schema = json!({
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    });
    let result = elicit(server, call, &elicitation.message, &schema)?;
    Ok(text_outcome(format!("User response: {}", describe_elicitation(&result))))
}

fn elicitation_defaults(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "User name", "default": "John Doe"},
            "age": {"type": "integer", "description": "User age", "default": 30},
            "score": {"type": "number", "description": "User score", "default": 95.5},
            "status": {
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "description": "Verification status", "default": true},
        },
        "required": [],
    });
    let result = elicit(server, call, "Please review and update the form fields with defaults", &schema)?;
    Ok(text_outcome(format!("Elicitation completed: {}", describe_elicitation(&result))))
}

fn elicitation_enums(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let titled = |first: &str, second: &str, third: &str| {
        json!([
            {"const": "value1", "title": first},
            {"const": "value2", "title": second},
            {"const": "value3", "title": third},
        ])
    };
    let plain = ["option1", "option2", "option3"];
    let schema = json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle":
                {"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {
                "type": "array",
                "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")},
            },
        },
        "required": [],
    });
    let result = elicit(server, call, "Please select options from the enum fields", &schema)?;
    Ok(text_outcome(format!("Elicitation completed: {}", describe_elicitation(&result))))
}

fn elicit(
    server: &Server,
    call: &BlockingCall,
    message: &str,
    schema: &Value,
) -> Result<Value, Interruption> {
    let params = json!({"message": message, "requestedSchema": schema});
    ask_declared(server, call, "elicitation", "elicitation/create", &params)
}

fn describe_elicitation(result: &Value) -> String {
    let action = result["action"].as_str().unwrap_or("none");
    let content = result.get("content").map_or_else(|| "{}".to_owned(), to_json);
    format!("action={action}, content={content}")
}

/// Asks the client only if it declared `capability`, as the suite's notes require.
fn ask_declared(
    server: &Server,
    call: &BlockingCall,
    capability: &str,
    method: &str,
    params: &Value,
) -> Result<Value, Interruption> {
    if !server.client_has_capability(capability) {
        return Err(Interruption::Failed(format!("the client does not support {capability}")));
    }
    match ask_client(server, call, method, Some(params))? {
        ClientAnswer::Result(raw) => Ok(parse_arguments(&raw)?),
        ClientAnswer::Error(raw) => Err(Interruption::Failed(format!("the client answered {raw}"))),
    }
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Reconnection {
    ms: u64,
}

impl Default for Reconnection {
    fn default() -> Self {
        Self { ms: 6000 }
    }
}

fn reconnection(_server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let reconnection: Reconnection = parse_arguments(&call.arguments)?;
    call.pause(Duration::from_millis(reconnection.ms))?;
    Ok(text_outcome("Reconnection test completed successfully"))
}
