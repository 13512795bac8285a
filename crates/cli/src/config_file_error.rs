//! Errors of configuration files, ours and those of other clients.

use std::io;
use std::path::PathBuf;

use config::ConfigError;
use config::client_file::ClientFileError;
use config::edit::EditError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigFileError {
    #[error("{0}")]
    Read(ConfigError),
    #[error("{}: {error}", path.display())]
    Edit { path: PathBuf, error: EditError },
    #[error("{}: {error}", path.display())]
    Client { path: PathBuf, error: ClientFileError },
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("there is no place for a configuration: neither XDG_CONFIG_HOME nor HOME is set")]
    NoPlace,
    #[error("cannot find the configuration of {0}: HOME is not set")]
    NoClientPlace(&'static str),
    #[error("{0} starts its servers itself and takes no URL")]
    OnlyStdio(&'static str),
    #[error("--env {0}: expected NAME or NAME=VALUE")]
    BadVariable(String),
    #[error("cannot find the path of this program: {0}")]
    NoExecutable(io::Error),
}

impl ConfigFileError {
    /// Whether the command line is to blame.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::OnlyStdio(_) | Self::BadVariable(_) | Self::Edit { error: EditError::BadName(_), .. }
        )
    }

    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Read(ConfigError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Some(
                "`ringfence add NAME -- COMMAND` begins one; `ringfence config path` prints where".to_owned(),
            ),
            Self::Edit { error, .. } => error.hint(),
            Self::Client { .. } => Some("correct it, or name another file with --file".to_owned()),
            Self::NoPlace => Some("name a file with --config".to_owned()),
            Self::NoClientPlace(_) => Some("name the file with --file".to_owned()),
            Self::OnlyStdio(_) => Some("leave --url out".to_owned()),
            _ => None,
        }
    }
}
