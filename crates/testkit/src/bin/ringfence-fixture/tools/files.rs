//! Tools that read and write files anywhere, and report the kernel's answer.

use std::sync::Arc;

use serde::Deserialize;

use crate::outgoing::{ToolOutcome, text_outcome};
use crate::server::Server;
use crate::tools::arguments::parse_arguments;
use crate::tools::tool::QuickTool;

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
