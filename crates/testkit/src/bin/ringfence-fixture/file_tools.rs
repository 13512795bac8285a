//! Tools that do plain file work wherever they are told to, and report what the kernel says to it.

use std::sync::Arc;

use serde::Deserialize;

use crate::argument::parse_arguments;
use crate::dispatch::QuickTool;
use crate::outgoing::{ToolOutcome, text_outcome};
use crate::server::Server;

pub(crate) fn find_quick(name: &str) -> Option<QuickTool> {
    Some(match name {
        "write_file" => write_file,
        "read_file" => read_file,
        _ => return None,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FileArguments {
    path: String,
    text: String,
}

fn write_file(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let file: FileArguments = parse_arguments(arguments)?;
    std::fs::write(&file.path, &file.text).map_err(|error| error.to_string())?;
    Ok(text_outcome("written"))
}

fn read_file(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let file: FileArguments = parse_arguments(arguments)?;
    let text = std::fs::read_to_string(&file.path).map_err(|error| error.to_string())?;
    Ok(text_outcome(text))
}
