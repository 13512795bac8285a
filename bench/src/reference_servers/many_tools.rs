//! An MCP server on stdio with any number of tools, which all echo. It runs as a process of its own.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

use crate::error::Error;
use crate::mcp_client::messages::PROTOCOL_VERSION;

pub(crate) fn run(tools: u32) -> Result<(), Error> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        if request["id"].is_null() {
            continue;
        }
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "many-tools", "version": "1" },
            }),
            "tools/list" => json!({ "tools": (0..tools).map(tool).collect::<Vec<_>>() }),
            "tools/call" => {
                json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["text"] }] })
            }
            _ => json!({}),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        output.write_all(answer.as_bytes())?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

fn tool(number: u32) -> Value {
    json!({
        "name": format!("tool_{number}"),
        "description": "Echoes its text. It says so at some length, because the descriptions of real tools are as long.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": { "type": "string", "description": "What comes back" },
                "times": { "type": "integer", "minimum": 1, "description": "Has no effect" },
            },
            "required": ["text"],
        },
    })
}
