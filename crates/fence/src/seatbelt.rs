//! The fence on macOS: what a command may do, written as a Seatbelt profile for `sandbox-exec`.
//!
//! [`profile`] is a pure function from a [`SeatbeltRequest`] to text and parameters, so it is tested on every
//! system. Every path of a request is passed as a `-D` parameter; none is ever part of the text. Whether a release
//! of macOS accepts the profile shows only there, so a report says no more than `verified: config`.

mod expression;
mod from_policy;
mod generate;
mod rule_path;
mod system;

#[cfg(test)]
mod evaluate;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[cfg(target_os = "macos")]
pub(crate) use from_policy::confinement;
#[cfg(target_os = "macos")]
pub(crate) use from_policy::request;

/// The program that applies a profile. Absolute, because one found along `PATH` could be anyone's.
pub(crate) const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// What a profile is made from.
///
/// Paths are matched as the kernel spells them: the caller gives them resolved and in the case that the
/// volume has, except that `/tmp`, `/var` and `/etc` may be written with or without `/private`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeatbeltRequest {
    /// Directories that can be written, and read.
    pub(crate) writable: Vec<PathBuf>,
    /// Inside what can be written, and yet read-only.
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) read: SeatbeltRead,
    /// Neither readable nor writable, whatever else allows it.
    pub(crate) deny_read: Vec<PathBuf>,
    pub(crate) network: SeatbeltNetwork,
    /// Sockets, or directories of sockets, that can be bound and connected to. `/` means all of them.
    pub(crate) unix_sockets: Vec<PathBuf>,
    /// New pseudo-terminals.
    pub(crate) pty: bool,
    /// Goes with every denial into the system's log, so that a line there can be given to its session.
    pub(crate) tag: String,
}

/// What can be read besides what can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SeatbeltRead {
    /// Everything but the deny list.
    Open,
    /// The system's programs and libraries, and the listed paths.
    Strict { readable: Vec<PathBuf> },
}

/// What can be reached over IP. A profile knows no addresses but `localhost` and `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeatbeltNetwork {
    /// Not restricted.
    All,
    None,
    /// Any port of this host's loopback; listening on any port of any interface, because a listener for
    /// both address families does not show as `localhost`.
    Localhost,
    /// One port of this host's loopback, where the proxy listens. No names are resolved but by the proxy.
    Proxy {
        port: u16,
    },
}

/// Text for `-p` and the `-D KEY=value` parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeatbeltProfile {
    pub(crate) text: String,
    /// In the order of their first use.
    pub(crate) parameters: Vec<(String, String)>,
}

/// Why no profile was made. The messages hold no path, so that they can be shown to any client.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum SeatbeltError {
    #[error("no writable directory is named")]
    NoWritable,
    #[error("{list} path {number} {error}")]
    Path {
        list: PathList,
        /// Counted from one.
        number: usize,
        error: PathError,
    },
    #[error("writable path {writable} lies inside deny-read path {denied}")]
    WritableIsDenied { writable: usize, denied: usize },
    #[error("the log tag is not 1 to 64 ASCII letters, digits, `.`, `_` and `-`")]
    Tag,
    #[error("port 0 is not a proxy's port")]
    ProxyPort,
}

/// The lists of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathList {
    Writable,
    Protected,
    Readable,
    DenyRead,
    UnixSockets,
}

impl fmt::Display for PathList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Writable => "writable",
            Self::Protected => "protected",
            Self::Readable => "readable",
            Self::DenyRead => "deny-read",
            Self::UnixSockets => "unix-socket",
        })
    }
}

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum PathError {
    #[error("is not absolute")]
    NotAbsolute,
    #[error("is not UTF-8")]
    NotUtf8,
    #[error("has a control character")]
    ControlCharacter,
    /// The kernel never sees one, so a rule with it would match nothing.
    #[error("has a `..` step")]
    ParentStep,
    #[error("is the whole file system")]
    WholeFileSystem,
    #[error("has a symbolic link in it")]
    SymbolicLink,
}

/// Writes the profile for a request, or says why it cannot be had.
pub(crate) fn profile(request: &SeatbeltRequest) -> Result<SeatbeltProfile, SeatbeltError> {
    generate::generate(request)
}

/// Refuses a writable path with a symbolic link in it, below the system's own `/tmp`, `/var` and `/etc`.
///
/// A process that can replace such a link chooses what is writable. The generator looks at no file system, so the
/// caller says what is a link; on macOS that is `Path::is_symlink`.
pub(crate) fn refuse_linked_writable(
    request: &SeatbeltRequest,
    is_link: impl Fn(&Path) -> bool,
) -> Result<(), SeatbeltError> {
    for (index, path) in request.writable.iter().enumerate() {
        let mut steps = path.ancestors().filter(|step| !rule_path::is_system_alias(step));
        if steps.any(&is_link) {
            let (list, error) = (PathList::Writable, PathError::SymbolicLink);
            return Err(SeatbeltError::Path { list, number: index + 1, error });
        }
    }
    Ok(())
}

/// What follows [`SANDBOX_EXEC`] to run a program under a profile.
pub(crate) fn sandbox_exec_arguments(
    profile: &SeatbeltProfile,
    program: &Path,
    arguments: &[OsString],
) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["-p".into(), profile.text.clone().into()];
    for (key, value) in &profile.parameters {
        all.push("-D".into());
        all.push(format!("{key}={value}").into());
    }
    // Whatever the program is called, it is not an option.
    all.push("--".into());
    all.push(program.into());
    all.extend_from_slice(arguments);
    all
}
