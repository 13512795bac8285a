//! The prompts that the conformance suite asks for, and completion of their arguments.

use serde_json::{Value, json};

use crate::outgoing::{INVALID_PARAMS, RpcError, to_json};
use crate::resources::PNG_BASE64;

const COMPLETIONS: [&str; 4] = ["paris", "park", "party", "testing"];

pub(crate) fn list_result() -> String {
    to_json(&json!({"prompts": [
        {"name": "test_simple_prompt", "description": "A prompt without arguments"},
        {
            "name": "test_prompt_with_arguments",
            "description": "A prompt that repeats its arguments",
            "arguments": [
                {"name": "arg1", "description": "First test argument", "required": true},
                {"name": "arg2", "description": "Second test argument", "required": true},
            ],
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt that embeds a resource",
            "arguments": [
                {"name": "resourceUri", "description": "URI of the resource to embed", "required": true},
            ],
        },
        {"name": "test_prompt_with_image", "description": "A prompt that includes an image"},
    ]}))
}

pub(crate) fn get_result(params: &Value) -> Result<String, RpcError> {
    let argument = |name: &str| params["arguments"][name].as_str().unwrap_or_default();
    let contents = match params["name"].as_str().unwrap_or_default() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => vec![
            json!({"type": "resource", "resource": {
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }}),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![
            json!({"type": "image", "data": PNG_BASE64, "mimeType": "image/png"}),
            text("Please analyze the image above."),
        ],
        unknown => return Err(RpcError::new(INVALID_PARAMS, format!("Unknown prompt: {unknown}"))),
    };
    let messages: Vec<Value> =
        contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
    Ok(to_json(&json!({ "messages": messages })))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(crate) fn completion_result(params: &Value) -> Result<String, RpcError> {
    let Some(begun) = params["argument"]["value"].as_str() else {
        return Err(RpcError::new(INVALID_PARAMS, "argument.value is missing"));
    };
    let values: Vec<&str> = COMPLETIONS.into_iter().filter(|value| value.starts_with(begun)).collect();
    let total = values.len();
    Ok(to_json(&json!({"completion": {"values": values, "total": total, "hasMore": false}})))
}
