//! Why a package cannot be used: a message without anything private, and a hint for the user.

use std::io;

use fence::{FenceError, FenceSetupError};
use thiserror::Error;

use crate::program::ProgramError;

#[derive(Debug, Error)]
pub enum PackageError {
    #[error("`{0}` cannot be installed: the network is off")]
    NoNetwork(String),
    #[error("{installer} could not install `{package}`")]
    Install { installer: &'static str, package: String, last_words: String },
    #[error("{installer} took longer than {minutes} minutes to install `{package}`")]
    TooLong { installer: &'static str, package: String, minutes: u64, last_words: String },
    #[error("`{package}` has no program {}", .wanted.as_ref().map_or("that can be run".to_owned(), |name| format!("`{name}`")))]
    NoProgram { package: String, wanted: Option<String>, found: Vec<String> },
    #[error("`{0}` is not among the installed packages")]
    Unknown(String),
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The installer does not run in its fence.
    #[error("{}", .0.message())]
    Fence(#[from] FenceError),
    #[error("cannot {what}: {error}")]
    Directory { what: &'static str, error: io::Error },
}

impl PackageError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoNetwork(_) => Some(
                "it is not installed yet; install it while there is a network, with ringfence cache add -- COMMAND"
                    .to_owned(),
            ),
            Self::Install { last_words, installer, .. } | Self::TooLong { last_words, installer, .. } => {
                if last_words.is_empty() {
                    return Some(format!("{installer} said nothing; try the same command without ringfence"));
                }
                Some(format!("the last words of {installer} were:\n{last_words}"))
            }
            Self::NoProgram { found, .. } if !found.is_empty() => Some(format!(
                "name one of its programs (npx -y -p PACKAGE PROGRAM, uvx --from PACKAGE PROGRAM): {}",
                found.join(", ")
            )),
            Self::NoProgram { .. } => Some("check the name of the package".to_owned()),
            Self::Unknown(_) => Some("ringfence cache list shows what is installed".to_owned()),
            Self::Program(error) => Some(error.hint()),
            Self::Fence(error) => error.hint(),
            Self::Directory { .. } => None,
        }
    }

    /// The message on one line, with the installer's own error if it named one.
    pub(crate) fn in_one_line(&self) -> String {
        let error = match self {
            Self::Install { last_words, .. } => {
                last_words.lines().find(|line| line.contains("error")).map(str::trim)
            }
            _ => None,
        };
        match error {
            Some(line) => format!("{self}: {line}"),
            None => self.to_string(),
        }
    }

    /// Turns an I/O error into "cannot `what`: …".
    pub(crate) fn directory(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Directory { what, error }
    }
}

impl From<FenceSetupError> for PackageError {
    fn from(error: FenceSetupError) -> Self {
        Self::Fence(error.into())
    }
}
