//! The changes that `ringfence register` makes to one file of a client, and how they are taken back.

use std::path::PathBuf;

use config::client_file::{self, ClientFileError, ClientSyntax};
use serde_json::{Value, json};

use super::entry::Fields;
use crate::clients::{Client, Off, Setting};
use crate::config_file_error::ConfigFileError;
use crate::text_file;

/// A file of a client, with the copy that is kept of it.
pub(super) struct ClientFile {
    pub(super) path: PathBuf,
    /// The file as it was before the first registration.
    pub(super) backup: PathBuf,
    pub(super) syntax: ClientSyntax,
}

impl ClientFile {
    pub(super) fn new(client: Client, path: PathBuf) -> Self {
        let mut backup = path.clone().into_os_string();
        backup.push(".before-ringfence");
        Self { path, backup: backup.into(), syntax: client.syntax() }
    }

    pub(super) fn read(&self) -> Result<Option<String>, ConfigFileError> {
        text_file::read(&self.path)
    }

    pub(super) fn read_backup(&self) -> Result<Option<String>, ConfigFileError> {
        text_file::read(&self.backup)
    }

    /// Makes all changes in the text.
    pub(super) fn apply(&self, changes: &[Change<'_>], text: &str) -> Result<String, ConfigFileError> {
        let made = changes.iter().try_fold(text.to_owned(), |text, change| change.apply(&text, self.syntax));
        made.map_err(|error| self.failed(error))
    }

    /// Whether the text has all of them.
    pub(super) fn has_all(&self, changes: &[Change<'_>], text: &str) -> Result<bool, ConfigFileError> {
        for change in changes {
            if !change.is_made(text, self.syntax).map_err(|error| self.failed(error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes all changes back. Returns the backup if nothing else differs from it; else keeps the rest as it is now.
    pub(super) fn revert(
        &self,
        changes: &[Change<'_>],
        now: &str,
        backup: Option<&str>,
    ) -> Result<String, ConfigFileError> {
        if let Some(backup) = backup
            && self.apply(changes, backup).is_ok_and(|made| made == now)
        {
            return Ok(backup.to_owned());
        }
        let reverted =
            changes.iter().try_fold(now.to_owned(), |text, change| change.revert(&text, backup, self.syntax));
        reverted.map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: ClientFileError) -> ConfigFileError {
        ConfigFileError::Client { path: self.path.clone(), error }
    }
}

/// One change in a file.
pub(super) enum Change<'a> {
    /// The entry of ringfence among the servers.
    Entry { section: &'a [&'a str], name: &'a str, fields: Fields },
    /// A setting that switches off tools of the client.
    Setting(Setting),
}

impl Change<'_> {
    fn apply(&self, text: &str, syntax: ClientSyntax) -> Result<String, ClientFileError> {
        match self {
            Self::Entry { section, name, fields } => {
                client_file::with_entry(text, syntax, section, name, fields.clone())
            }
            Self::Setting(Setting { section, key, off }) => match off {
                Off::Listed(items) => client_file::with_list_items(text, section, key, items),
                Off::False | Off::Text(_) => {
                    client_file::with_value(text, syntax, section, key, plain_value(*off))
                }
            },
        }
    }

    /// Whether the text has it.
    fn is_made(&self, text: &str, syntax: ClientSyntax) -> Result<bool, ClientFileError> {
        match self {
            Self::Entry { section, name, fields } => {
                Ok(client_file::entry(text, syntax, section, name)?.as_ref() == Some(fields))
            }
            Self::Setting(Setting { section, key, off }) => {
                let value = client_file::value(text, syntax, section, key)?;
                Ok(match off {
                    Off::Listed(items) => {
                        let listed = value.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
                        items.iter().all(|item| listed.iter().any(|known| known == item))
                    }
                    Off::False | Off::Text(_) => value == Some(plain_value(*off)),
                })
            }
        }
    }

    /// Takes it out of the text, and puts back what the backup has in its place. A backup that cannot be parsed counts
    /// for nothing.
    fn revert(
        &self,
        text: &str,
        backup: Option<&str>,
        syntax: ClientSyntax,
    ) -> Result<String, ClientFileError> {
        match self {
            Self::Entry { section, name, .. } => {
                let previous = backup
                    .and_then(|backup| client_file::entry(backup, syntax, section, name).ok().flatten());
                match previous {
                    Some(previous) => client_file::with_entry(text, syntax, section, name, previous),
                    None => client_file::without_entry(text, syntax, section, name),
                }
            }
            Self::Setting(Setting { section, key, off }) => {
                let previous =
                    backup.and_then(|backup| client_file::value(backup, syntax, section, key).ok().flatten());
                match (off, previous) {
                    (Off::Listed(items), previous) => {
                        let before = previous.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
                        let ours: Vec<&str> = items
                            .iter()
                            .copied()
                            .filter(|item| !before.iter().any(|known| known == item))
                            .collect();
                        client_file::without_list_items(text, section, key, &ours)
                    }
                    (_, Some(previous)) => client_file::with_value(text, syntax, section, key, previous),
                    (_, None) => client_file::without_entry(text, syntax, section, key),
                }
            }
        }
    }
}

fn plain_value(off: Off) -> Value {
    match off {
        Off::False | Off::Listed(_) => json!(false),
        Off::Text(text) => json!(text),
    }
}

/// The settings that switch a client's own tools off, as changes.
pub(super) fn own_tools_off(settings: &'static [Setting]) -> Vec<Change<'static>> {
    settings.iter().map(|setting| Change::Setting(*setting)).collect()
}
