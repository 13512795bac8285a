//! `ringfence register --undo`: removes the entry from a client's file, switches the client's own tools on again, and
//! keeps later changes of the user.

use std::fs;
use std::path::Path;

use config::client_file;

use super::Registration;
use super::change::{Change, ClientFile, own_tools_off};
use crate::config_file_error::ConfigFileError;
use crate::output::print;
use crate::text_file;

pub(super) fn run(registration: &Registration<'_>, is_dry: bool) -> Result<(), ConfigFileError> {
    let (client, name, file) = (registration.client.name(), registration.name, &registration.file);
    let path = file.path.display();
    let now = file.read()?.unwrap_or_default();
    let mut changes: Vec<Change<'_>> = registration.entry_in(&now)?.into_iter().collect();
    if changes.is_empty() {
        print(&format!("{client} has no `{name}`: {path}\n"));
        return Ok(());
    }
    let own_tools = registration.own_tools();
    let mut switched_on = None;
    if let Some((None, settings)) = &own_tools {
        let settings = made(file, own_tools_off(settings), &now)?;
        switched_on = (!settings.is_empty()).then_some(&file.path);
        changes.extend(settings);
    }
    take_back(file, &changes, &now, is_dry)?;
    if let Some((Some(file), settings)) = &own_tools {
        let now = file.read()?.unwrap_or_default();
        let settings = made(file, own_tools_off(settings), &now)?;
        if !settings.is_empty() {
            take_back(file, &settings, &now, is_dry)?;
            switched_on = Some(&file.path);
        }
    }
    if is_dry {
        return Ok(());
    }
    print(&format!("{client} no longer has `{name}`: {path}\n"));
    if let Some(path) = switched_on {
        print(&format!("its own shell and file tools are on again: {}\n", path.display()));
    }
    Ok(())
}

/// All settings, if the file has every one of them and did not have them before.
fn made(
    file: &ClientFile,
    settings: Vec<Change<'static>>,
    now: &str,
) -> Result<Vec<Change<'static>>, ConfigFileError> {
    let backup = file.read_backup()?;
    let had_them = backup.is_some_and(|backup| file.has_all(&settings, &backup).unwrap_or(false));
    Ok(if file.has_all(&settings, now)? && !had_them { settings } else { Vec::new() })
}

fn take_back(
    file: &ClientFile,
    changes: &[Change<'_>],
    now: &str,
    is_dry: bool,
) -> Result<(), ConfigFileError> {
    let backup = file.read_backup()?;
    let after = file.revert(changes, now, backup.as_deref())?;
    if is_dry {
        print(&text_file::diff(&file.path, now, &after));
        return Ok(());
    }
    if backup.is_none() && client_file::says_nothing(&after, file.syntax) {
        // Registering created the file.
        remove(&file.path)?;
    } else {
        text_file::write(&file.path, &after)?;
    }
    if backup.is_some() {
        remove(&file.backup)?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), ConfigFileError> {
    fs::remove_file(path).map_err(|error| ConfigFileError::Write { path: path.to_owned(), error })
}
