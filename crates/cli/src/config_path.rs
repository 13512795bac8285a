//! Where the operator's configuration is if nobody says.

use std::path::PathBuf;

use crate::config_failure::ConfigFailure;

/// `$XDG_CONFIG_HOME/ringfence/config.yaml`, else `~/.config/ringfence/config.yaml`. Nothing if there is no home.
pub(crate) fn default_path() -> Option<PathBuf> {
    Some(configuration_directory()?.join("ringfence").join("config.yaml"))
}

/// The file that was named, else the default one.
pub(crate) fn chosen_path(named: Option<&PathBuf>) -> Result<PathBuf, ConfigFailure> {
    named.cloned().or_else(default_path).ok_or(ConfigFailure::NoPlace)
}

/// Where programs keep their settings. Relative values mean nothing, says the specification of XDG.
pub(crate) fn configuration_directory() -> Option<PathBuf> {
    absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))
}

pub(crate) fn home() -> Option<PathBuf> {
    absolute("HOME")
}

/// A directory that a variable names.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
