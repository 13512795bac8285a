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
        "link_in_home" => link_in_home,
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LinkArguments {
    path: String,
    target: String,
}

/// Replaces what is at the path.
fn link_in_home(_server: &Arc<Server>, arguments: &str) -> Result<ToolOutcome, String> {
    let link: LinkArguments = parse_arguments(arguments)?;
    let home = std::env::var_os("HOME").ok_or("there is no home")?;
    let path = std::path::Path::new(&home).join(&link.path);
    let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
    std::os::unix::fs::symlink(&link.target, &path).map_err(|error| error.to_string())?;
    Ok(text_outcome("linked"))
}
