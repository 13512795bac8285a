//! The default paths of the operator's configuration and of what ringfence keeps.

use std::path::PathBuf;

use crate::config_file_error::ConfigFileError;

/// `$XDG_CONFIG_HOME/ringfence/config.yaml`, or else `~/.config/ringfence/config.yaml`. `None` without a home.
pub(crate) fn default_path() -> Option<PathBuf> {
    Some(configuration_directory()?.join("ringfence").join("config.yaml"))
}

/// Returns the named file, or else the default one.
pub(crate) fn chosen_path(named: Option<&PathBuf>) -> Result<PathBuf, ConfigFileError> {
    named.cloned().or_else(default_path).ok_or(ConfigFileError::NoPlace)
}

/// Where programs keep their settings. The XDG specification says to ignore relative values.
pub(crate) fn configuration_directory() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))
}

/// Where ringfence keeps what it must find again.
pub(crate) fn state_directory() -> Option<PathBuf> {
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(home()?.join(".local/state")))?;
    Some(state.join("ringfence"))
}

pub(crate) fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// Returns the directory that a variable names, if it is an absolute path.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
