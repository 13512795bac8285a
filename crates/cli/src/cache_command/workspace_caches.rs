//! `ringfence cache workspaces`: what package managers have downloaded inside fences, for each workspace and principal.

use std::path::PathBuf;

use clap::Args;
use fence::{HostEnvironment, KeptCache};
use serde_json::{Value, json};

use super::{progress, size};
use crate::error::Error;
use crate::output::print_line;

const EXAMPLES: &str = "\
Examples:
  ringfence cache workspaces                   the least recently used first
  ringfence cache workspaces ~/src/api         one workspace
  ringfence cache workspaces --clear           remove all that no session uses
  ringfence cache workspaces --clear ~/src/api

Caches beyond --cache-size of `serve`, `stdio` and `run` are removed by themselves, the least recently used first.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WorkspacesArguments {
    /// Remove them, unless a session uses them.
    #[arg(long)]
    clear: bool,
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
    /// Only the caches of these workspaces.
    #[arg(value_name = "DIR")]
    workspaces: Vec<PathBuf>,
}

pub(super) fn run(arguments: &WorkspacesArguments, host: &HostEnvironment) -> Result<(), Error> {
    let mut rows = Vec::new();
    for cache in chosen(arguments, host) {
        let is_removed = arguments.clear && host.remove_cache(&cache)?;
        if arguments.json {
            rows.push(as_json(&cache, is_removed));
        } else if !arguments.clear || is_removed {
            print_line(&in_words(&cache));
        } else {
            progress(&format!("in use, and not removed: {}", cache.scope.display()));
        }
    }
    if arguments.json {
        print_line(&Value::from(rows).to_string());
    }
    Ok(())
}

fn chosen(arguments: &WorkspacesArguments, host: &HostEnvironment) -> Vec<KeptCache> {
    let named: Vec<PathBuf> = arguments
        .workspaces
        .iter()
        .map(|named| named.canonicalize().or_else(|_| std::path::absolute(named)).unwrap_or_default())
        .collect();
    let is_chosen = |cache: &KeptCache| named.is_empty() || named.contains(&cache.scope);
    host.kept_caches().into_iter().filter(is_chosen).collect()
}

fn in_words(cache: &KeptCache) -> String {
    let owner = if cache.owner.is_empty() { String::new() } else { format!("  of {}", cache.owner) };
    let use_now = if cache.is_in_use { "  in use" } else { "" };
    format!("{}  {}{owner}{use_now}", size(cache.bytes), cache.scope.display())
}

fn as_json(cache: &KeptCache, is_removed: bool) -> Value {
    let used = cache.used.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({
        "workspace": cache.scope,
        "principal": (!cache.owner.is_empty()).then_some(&cache.owner),
        "bytes": cache.bytes,
        "used_at": used,
        "in_use": cache.is_in_use,
        "removed": is_removed,
    })
}
