//! `ringfence register --undo`: removes the entry from a client's file and keeps later changes of the user.

use std::fs;

use super::Target;
use crate::config_file_error::ConfigFileError;
use crate::output::print;
use crate::text_file;

pub(super) fn run(target: &Target<'_>, is_dry: bool) -> Result<(), ConfigFileError> {
    let (client, path, name) = (target.client.name(), target.path.display(), target.name);
    let now = text_file::read(&target.path)?.unwrap_or_default();
    if target.entry(&now)?.is_none() {
        print(&format!("{client} has no `{name}`: {path}\n"));
        return Ok(());
    }
    let backup = text_file::read(&target.backup)?;
    let after = text_without(target, &now, backup.as_deref())?;
    if is_dry {
        print(&text_file::diff(&target.path, &now, &after));
        return Ok(());
    }
    if backup.is_none() && says_nothing(&after) {
        // Registering created the file.
        remove(&target.path)?;
    } else {
        text_file::write(&target.path, &after)?;
    }
    if backup.is_some() {
        remove(&target.backup)?;
    }
    print(&format!("{client} no longer has `{name}`: {path}\n"));
    Ok(())
}

/// Returns the backup if only the entry differs from it. Else returns the current text without the entry, or with the
/// entry that had its name before.
fn text_without(target: &Target<'_>, now: &str, backup: Option<&str>) -> Result<String, ConfigFileError> {
    let Some(backup) = backup else { return target.without(now) };
    let ours = target.entry(now)?.unwrap_or_default();
    // Ignore a backup that cannot be parsed.
    let previous = target.entry(backup).ok().flatten();
    if target.with(backup, ours).is_ok_and(|registered| registered == now) {
        return Ok(backup.to_owned());
    }
    match previous {
        Some(previous) => target.with(now, previous),
        None => target.without(now),
    }
}

/// Whether the text holds only empty maps.
fn says_nothing(text: &str) -> bool {
    let text = text.replace(['"', ':', '{', '}', ','], " ");
    text.split_whitespace().all(|word| matches!(word, "servers" | "mcpServers"))
}

fn remove(path: &std::path::Path) -> Result<(), ConfigFileError> {
    fs::remove_file(path).map_err(|error| ConfigFileError::Write { path: path.to_owned(), error })
}
