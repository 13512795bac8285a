//! `completion/complete`: completes paths in the workspace.

use std::os::fd::AsFd;

use rustix::fs::{Dir, FileType};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wire::ErrorReply;

use crate::context::ServerContext;
use crate::output::invalid_params;

/// The protocol's limit.
const MAX_VALUES: usize = 100;

pub(crate) fn complete(context: &ServerContext, params: Option<&RawValue>) -> Result<Value, ErrorReply> {
    #[derive(Deserialize)]
    struct Params {
        argument: Argument,
    }
    #[derive(Deserialize)]
    struct Argument {
        name: String,
        value: String,
    }
    let text = params.map_or("{}", RawValue::get);
    let Params { argument } =
        serde_json::from_str(text).map_err(|error| invalid_params(&error.to_string()))?;
    let mut values = if argument.name == "path" { paths(context, &argument.value) } else { Vec::new() };
    values.sort();
    let total = values.len();
    values.truncate(MAX_VALUES);
    Ok(json!({ "completion": { "values": values, "total": total, "hasMore": total > MAX_VALUES } }))
}

/// Paths that begin with what was typed; none if its directory cannot be opened.
fn paths(context: &ServerContext, typed: &str) -> Vec<String> {
    let (directory, begun) =
        typed.rsplit_once('/').map_or(("", typed), |(directory, begun)| (directory, begun));
    let place = match directory {
        "" if typed.starts_with('/') => "/",
        "" => ".",
        directory => directory,
    };
    let opened = context.workspace.path(place).and_then(|path| context.workspace.open_directory(&path));
    let Ok(open) = opened else { return Vec::new() };
    let rules = context.workspace.rules_in(open.as_fd());
    let Ok(entries) = Dir::new(open) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_str().ok()?.to_owned();
            let is_shown = name != "."
                && name != ".."
                && name.starts_with(begun)
                && (begun.starts_with('.') || !name.starts_with('.'));
            let is_directory = entry.file_type() == FileType::Directory;
            if !is_shown || rules.block(&name, is_directory) {
                return None;
            }
            let slash = if is_directory { "/" } else { "" };
            let above = if directory.is_empty() { String::new() } else { format!("{directory}/") };
            Some(format!("{above}{name}{slash}"))
        })
        .collect()
}
