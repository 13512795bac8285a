//! Why a package is not there: a message without anything private, and what to do about it.

use std::io;

use thiserror::Error;

use crate::error::Failure;
use crate::fenced::FenceFailure;

#[derive(Debug, Error)]
pub(crate) enum PackageFailure {
    #[error("`{0}` does not launch a package in a form that ringfence understands")]
    NotAPackage(String),
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
    #[error("{} could not be installed anew", .0.join(", "))]
    NotRefreshed(Vec<String>),
    #[error("{}", .0.message())]
    Program(Failure),
    #[error("{}", .0.message())]
    Fence(FenceFailure),
    #[error("cannot {what}: {error}")]
    Directory { what: &'static str, error: io::Error },
}

impl PackageFailure {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NotAPackage(_) => {
                Some("write npx -y PACKAGE, or uvx PACKAGE, with a package of a registry".to_owned())
            }
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
            Self::NotRefreshed(_) => Some("those that were there before are still there".to_owned()),
            Self::Program(failure) => failure.hint(),
            Self::Fence(failure) => failure.hint(),
            Self::Directory { .. } => None,
        }
    }

    /// What it says in one line, for progress.
    pub(super) fn in_one_line(&self) -> String {
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

    pub(super) fn directory(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Directory { what, error }
    }
}

impl From<FenceFailure> for PackageFailure {
    fn from(failure: FenceFailure) -> Self {
        Self::Fence(failure)
    }
}
