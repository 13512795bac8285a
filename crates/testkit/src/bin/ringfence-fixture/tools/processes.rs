//! Tools for the process itself: its identity, its children, and how it ends or refuses to.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use serde::Deserialize;

use crate::lingering;
use crate::outgoing::{ToolOutcome, structured_outcome, text_outcome, text_result, to_json};
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::tool::QuickTool;

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    Some(match name {
        "crash" => crash,
        "exit_after_answer" => exit_after_answer,
        "pid" => pid,
        "environment" => environment,
        "working_directory" => working_directory,
        "spawn_daemon" => spawn_daemon,
        "spawn_child" => spawn_child,
        "ignore_term" => ignore_term,
        "stop_reading" => stop_reading,
        _ => return None,
    })
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Crash {
    code: i32,
    stderr: String,
}

impl Default for Crash {
    fn default() -> Self {
        Self { code: 3, stderr: String::new() }
    }
}

fn crash(server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let crash: Crash = parse_arguments(arguments)?;
    // Earlier answers are not lost; only this call stays unanswered.
    server.output.flush();
    drop(std::io::stderr().write_all(crash.stderr.as_bytes()));
    std::process::exit(crash.code);
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Exit {
    code: i32,
}

fn exit_after_answer(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let exit: Exit = parse_arguments(arguments)?;
    Ok(ToolOutcome::ResultThenExit(text_result("exiting"), exit.code))
}

fn pid(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(text_outcome(std::process::id().to_string()))
}

fn environment(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    let variables = to_json(&variables);
    Ok(structured_outcome(&variables, &variables))
}

fn working_directory(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    Ok(text_outcome(directory.to_string_lossy()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpawnDaemon {
    keep_stderr: bool,
}

fn spawn_daemon(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let spawn: SpawnDaemon = parse_arguments(arguments)?;
    let pid = lingering::spawn_daemon(spawn.keep_stderr).map_err(|error| error.to_string())?;
    Ok(text_outcome(pid.to_string()))
}

fn spawn_child(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    let pid = lingering::spawn_child().map_err(|error| error.to_string())?;
    Ok(text_outcome(pid.to_string()))
}

fn ignore_term(server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    server.stubbornness.begin();
    Ok(text_outcome("ignoring"))
}

fn stop_reading(_server: &Arc<Server>, _arguments: &str) -> Result<ToolOutcome, String> {
    Ok(ToolOutcome::ResultThenStopReading(text_result("no longer reading")))
}
