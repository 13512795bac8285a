//! Tools that make the server send something besides answers: logs, notifications, raw lines, floods.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::outgoing::{ToolOutcome, text_outcome, text_result};
use crate::running_calls::BlockingCall;
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::tool::{BlockingTool, Interruption, QuickTool};

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    Some(match name {
        "log" => log,
        "log_unowned" => log_unowned,
        "notify_resource" => notify_resource,
        "notify_list_changed" => notify_list_changed,
        "raw_stdout" => raw_stdout,
        "long_line" => long_line,
        _ => return None,
    })
}

pub(crate) fn find_blocking(name: &str) -> Option<BlockingTool> {
    // Not a quick tool: it blocks while standard error is not read.
    (name == "stderr_flood").then_some(stderr_flood)
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Log {
    level: String,
    text: String,
    ms: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), text: "a log message".to_owned(), ms: 0 }
    }
}

fn log(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let log: Log = parse_arguments(arguments)?;
    server.send_log(&log.level, &log.text);
    Ok(text_outcome("logged"))
}

fn log_unowned(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let log: Log = parse_arguments(arguments)?;
    let server = Arc::clone(server);
    let work = move || {
        std::thread::sleep(Duration::from_millis(log.ms));
        server.send_log(&log.level, &log.text);
    };
    Ok(ToolOutcome::ResultThenWork(text_result("will log"), Box::new(work)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resource {
    uri: String,
}

fn notify_resource(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let resource: Resource = parse_arguments(arguments)?;
    let subscribed = server.subscriptions.lock().contains(&resource.uri);
    if subscribed {
        let params = json!({"uri": resource.uri});
        server.output.send_notification("notifications/resources/updated", Some(&params));
    }
    Ok(text_outcome(if subscribed { "notified" } else { "not subscribed" }))
}

fn notify_list_changed(server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    server.output.send_notification("notifications/tools/list_changed", None);
    Ok(text_outcome("notified"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawLine {
    line: String,
}

fn raw_stdout(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let raw: RawLine = parse_arguments(arguments)?;
    server.output.send_line(&[raw.line.as_bytes()]);
    Ok(text_outcome("written"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Size {
    bytes: usize,
}

/// Sends a log notification of exactly `bytes` bytes, newline not counted.
fn long_line(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    const START: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""#;
    const END: &str = r#""}}"#;
    let size: Size = parse_arguments(arguments)?;
    let padding = "x".repeat(size.bytes.saturating_sub(START.len() + END.len()));
    server.output.send_line(&[START.as_bytes(), padding.as_bytes(), END.as_bytes()]);
    Ok(text_outcome("written"))
}

/// Writes lines of 80 bytes to standard error; the last one may be shorter.
fn stderr_flood(_server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let size: Size = parse_arguments(&call.arguments)?;
    let line = format!("{}\n", "e".repeat(79));
    let mut flood = line.repeat(size.bytes.div_ceil(line.len()));
    flood.truncate(size.bytes);
    let written = std::io::stderr().write_all(flood.as_bytes());
    written.map_err(|error| format!("standard error: {error}"))?;
    Ok(text_outcome("written"))
}
