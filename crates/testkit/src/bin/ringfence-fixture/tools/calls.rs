//! Tools for plain calls: payloads of any size, slow calls and their cancellation, process memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::outgoing::{ToolOutcome, structured_outcome, text_outcome, text_result};
use crate::running_calls::{BlockingCall, Cancelled};
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::tool::{BlockingTool, Interruption, QuickTool};

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    Some(match name {
        "echo" => echo,
        "big" => big,
        "cancelled_count" => cancelled_count,
        "state_set" => state_set,
        "state_get" => state_get,
        _ => return None,
    })
}

pub(crate) fn find_blocking(name: &str) -> Option<BlockingTool> {
    (name == "sleep").then_some(sleep)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Echo {
    text: String,
}

/// Handles unusual calls of `echo`; the usual ones take the fast path.
fn echo(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let echo: Echo = parse_arguments(arguments)?;
    Ok(text_outcome(echo.text))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Big {
    bytes: usize,
    /// How long the whole server is busy first.
    after_ms: u64,
}

fn big(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let Big { bytes: wanted, after_ms } = parse_arguments(arguments)?;
    std::thread::sleep(Duration::from_millis(after_ms));
    let mut kept = server.big_result.lock();
    if let Some((bytes, result)) = kept.as_ref()
        && *bytes == wanted
    {
        return Ok(ToolOutcome::SharedResult(Arc::clone(result)));
    }
    let result: Arc<str> = Arc::from(text_result(&"x".repeat(wanted)));
    *kept = Some((wanted, Arc::clone(&result)));
    Ok(ToolOutcome::SharedResult(result))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sleep {
    ms: u64,
    progress_every_ms: Option<u64>,
}

fn sleep(server: &Arc<Server>, call: &BlockingCall) -> Result<ToolOutcome, Interruption> {
    let sleep: Sleep = parse_arguments(&call.arguments)?;
    pause_with_progress(server, call, &sleep)?;
    Ok(text_outcome("slept"))
}

fn pause_with_progress(server: &Server, call: &BlockingCall, sleep: &Sleep) -> Result<(), Cancelled> {
    let end = Instant::now() + Duration::from_millis(sleep.ms);
    if let (Some(every), Some(token)) = (sleep.progress_every_ms, &call.raw_progress_token) {
        let every = every.max(1);
        let steps = sleep.ms / every;
        for step in 1..=steps {
            call.pause(Duration::from_millis(every))?;
            server.output.send_progress(token, step, steps);
        }
    }
    call.pause(end.saturating_duration_since(Instant::now()))
}

fn cancelled_count(server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    let ids = server.running_calls.cancelled_ids();
    let structure = format!(r#"{{"cancelled":[{}]}}"#, ids.join(","));
    Ok(structured_outcome(&ids.len().to_string(), &structure))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    key: String,
    value: String,
}

fn state_set(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let entry: Entry = parse_arguments(arguments)?;
    server.memory.lock().insert(entry.key, entry.value);
    Ok(text_outcome("set"))
}

/// Returns an empty text for a key that was never set.
fn state_get(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let entry: Entry = parse_arguments(arguments)?;
    let memory = server.memory.lock();
    Ok(text_outcome(memory.get(&entry.key).map_or("", String::as_str)))
}
