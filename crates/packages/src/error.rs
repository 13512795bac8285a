//! Why a package cannot be used: a message without anything private, and a hint for the user.

use std::io;

use fence::{FenceError, FenceSetupError};
use thiserror::Error;

use crate::pins::PinsError;
use crate::program::ProgramError;
use crate::recognition::Package;
use crate::tools::NO_GIT;

/// How npm and uv say that a file has another hash than the lock.
const HASH_MISMATCH: &[&str] = &["EINTEGRITY", "Hash mismatch"];
/// How uv says that only a build from source could install a package.
const NO_WHEEL: &[&str] =
    &["no usable wheels", "no wheels with a matching", "building from source is disabled"];

#[derive(Debug, Error)]
pub enum PackageError {
    #[error("`{0}` cannot be installed: the network is off")]
    NoNetwork(String),
    #[error("{installer} could not install `{package}`")]
    Install { installer: &'static str, package: String, last_words: String },
    #[error("{installer} took longer than {minutes} minutes to install `{package}`")]
    TooLong { installer: &'static str, package: String, minutes: u64, last_words: String },
    /// The registry serves something else under the same version than when the lock was made.
    #[error(
        "{installer} refused `{package}`: a file of the registry does not have the hash that the lock says"
    )]
    Mismatch { installer: &'static str, package: String, last_words: String },
    #[error("`{package}` cannot be installed without running code of packages: {reason}")]
    NeedsCode { installer: &'static str, package: String, reason: String, last_words: String },
    /// The lock that the installer has just made does not pin everything.
    #[error("`{package}` cannot be pinned by the lock that {installer} made: {reason}")]
    NotPinned { installer: &'static str, package: String, reason: String },
    /// The lock of an installed package was changed from outside.
    #[error("the lock of `{package}` cannot be used: {reason}")]
    Lock { package: String, reason: String },
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
            Self::Mismatch { last_words, .. } => Some(format!(
                "do not use it before you know why; ringfence cache refresh --dry-run shows what changed. \
                 The last words were:\n{last_words}"
            )),
            Self::NeedsCode { installer, last_words, .. } => Some(format!(
                "to allow it, start ringfence with --allow-install-scripts, or write `allowInstallScripts: true` for \
                 the server in the configuration. The last words of {installer} were:\n{last_words}"
            )),
            Self::NotPinned { .. } => Some(
                "packages of a registry that names hashes can be pinned; --no-package-cache runs the command as \
                 written in every session"
                    .to_owned(),
            ),
            Self::Lock { package, .. } => Some(format!("to make a new lock: ringfence cache refresh {package}")),
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

    /// Finds out from the words of an installer why it failed.
    pub(crate) fn of_installer(package: &Package, last_words: String) -> Self {
        let says = |signs: &[&str]| signs.iter().any(|sign| last_words.contains(sign));
        let (installer, specification) = (package.tool.installer(), package.specification());
        if says(HASH_MISMATCH) {
            Self::Mismatch { installer, package: specification, last_words }
        } else if let Some(reason) = needed_code(&last_words).filter(|_| !package.install_scripts) {
            Self::NeedsCode { installer, package: specification, reason, last_words }
        } else {
            Self::Install { installer, package: specification, last_words }
        }
    }

    pub(crate) fn not_pinned(package: &Package, reason: &PinsError) -> Self {
        let installer = package.tool.installer();
        Self::NotPinned { installer, package: package.specification(), reason: reason.to_string() }
    }

    pub(crate) fn lock(package: &Package, reason: &PinsError) -> Self {
        Self::Lock { package: package.specification(), reason: reason.to_string() }
    }

    /// The message on one line, with the installer's own reason if it named one.
    pub fn in_one_line(&self) -> String {
        let reason = match self {
            Self::Install { last_words, .. } => installers_reason(last_words),
            _ => None,
        };
        match reason {
            Some(reason) => format!("{self}: {reason}"),
            None => self.to_string(),
        }
    }

    /// Turns an I/O error into "cannot `what`: …".
    pub(crate) fn directory(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Directory { what, error }
    }
}

/// The reason that npm or uv gives among its last words: npm's code with what it says of it, uv's error or the end of its
/// explanation.
fn installers_reason(last_words: &str) -> Option<String> {
    let npm: Vec<&str> =
        last_words.lines().filter_map(|line| line.trim().strip_prefix("npm error ")).map(str::trim).collect();
    if let Some(code) = npm.iter().find_map(|line| line.strip_prefix("code ")) {
        let more = npm.iter().find(|line| !line.starts_with("code ") && line.contains(' '));
        return Some(more.map_or_else(|| code.to_owned(), |more| format!("{code}: {more}")));
    }
    let is_explanation = |line: &&str| line.contains("╰─▶") || line.starts_with("error: ");
    let mut lines = last_words.lines().map(str::trim).skip_while(|line| !is_explanation(line));
    let first = lines.next()?.trim_start_matches(['╰', '─', '▶', ' ']).trim_start_matches("error: ");
    // uv breaks its explanation at the width of a terminal.
    let rest =
        lines.take_while(|line| !line.is_empty() && !line.starts_with("hint") && !line.starts_with("help"));
    let words: Vec<&str> = std::iter::once(first).chain(rest).collect();
    Some(words.join(" "))
}

/// Why an installer would have to run code of packages, if that is why it failed.
fn needed_code(last_words: &str) -> Option<String> {
    let says = |signs: &[&str]| signs.iter().any(|sign| last_words.contains(sign));
    if says(&["EALLOWGIT", NO_GIT]) {
        return Some("a dependency is in a git repository, and its scripts would prepare it".to_owned());
    }
    // uv names the packages in its hints: "Wheels are required for `NAME` because …".
    let hints = last_words.lines().filter(|line| line.contains("Wheels are required for"));
    let names: Vec<&str> = hints.filter_map(|hint| hint.split('`').nth(1)).collect();
    match &names[..] {
        [] if !says(NO_WHEEL) => None,
        [] => Some("there is no wheel for this system".to_owned()),
        names => Some(format!("there is no wheel of {} for this system", names.join(", "))),
    }
}

impl From<FenceSetupError> for PackageError {
    fn from(error: FenceSetupError) -> Self {
        Self::Fence(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_npm_and_uv_is_found_among_their_last_words() {
        let npm = "  npm error code E404\n  npm error 404 Not Found - GET http://r/no-such - Not found\n  npm error 404\n  \
                   npm error 404  'no-such@*' is not in this registry.";
        let offline =
            "  npm error code ECONNREFUSED\n  npm error syscall connect\n  npm error errno ECONNREFUSED";
        let uv = "    × No solution found when resolving dependencies:\n    ╰─▶ Because no-such was not found in the package\n        \
                  registry and you require no-such, we can conclude that your\n        requirements are unsatisfiable.";
        for (words, expected) in [
            (npm, Some("E404: 404 Not Found - GET http://r/no-such - Not found")),
            (offline, Some("ECONNREFUSED: syscall connect")),
            (
                uv,
                Some(
                    "Because no-such was not found in the package registry and you require no-such, we can conclude that \
                     your requirements are unsatisfiable.",
                ),
            ),
            ("  error: Failed to fetch: `http://r/`", Some("Failed to fetch: `http://r/`")),
            ("  something else", None),
        ] {
            assert_eq!(installers_reason(words).as_deref(), expected, "{words}");
        }
    }
}
