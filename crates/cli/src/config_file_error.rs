//! Errors of configuration files, ours and those of other clients.

use std::io;
use std::path::PathBuf;

use config::client_file::ClientFileError;
use config::edit::EditError;
use config::{ConfigError, PrivateFileError};
use fence::{FenceSetupError, ScopeError};

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
    #[error("{0:?} is not the URL of a gateway")]
    NotAUrl(String),
    #[error("several gateways of this user run: {0}")]
    SeveralGateways(String),
    #[error("{0} has no project of its own and names no directory")]
    NoScope(&'static str),
    #[error("{0} does not tell a server at a URL which directory it works in")]
    NoScopeAtUrl(&'static str),
    #[error("{0} has no setting that switches off its own shell and file tools")]
    NotExclusive(&'static str),
    #[error("--scope: {0}")]
    Scope(ScopeError),
    #[error("{0}")]
    Token(PrivateFileError),
    #[error("{0}")]
    Host(FenceSetupError),
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
            Self::OnlyStdio(_)
                | Self::NotAUrl(_)
                | Self::SeveralGateways(_)
                | Self::NoScope(_)
                | Self::NoScopeAtUrl(_)
                | Self::NotExclusive(_)
                | Self::Scope(_)
                | Self::Token(_)
                | Self::BadVariable(_)
                | Self::Edit { error: EditError::BadName(_), .. }
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
            Self::NotAUrl(_) => Some("write it as http://127.0.0.1:3000/mcp".to_owned()),
            Self::SeveralGateways(_) => Some("name one with --url".to_owned()),
            Self::NoScope(_) => {
                Some("name the directory that its tools may work in: --scope DIR".to_owned())
            }
            Self::NoScopeAtUrl(_) => Some(
                "leave --url out, and it starts `ringfence stdio` in its project; or name one directory for all \
                 its sessions with --scope DIR, or a workspace of the gateway with a URL such as \
                 http://127.0.0.1:3000/mcp/w/NAME"
                    .to_owned(),
            ),
            Self::NotExclusive(_) => {
                Some("leave --exclusive out, and refuse its own tools when it asks".to_owned())
            }
            Self::Scope(error) => Some(error.hint().to_owned()),
            Self::Token(error) => Some(error.hint()),
            Self::Host(error) => error.hint(),
            _ => None,
        }
    }
}
