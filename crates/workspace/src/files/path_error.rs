//! What can be wrong with a path, in words that an agent can act on.

use std::io;

use thiserror::Error;

/// Why an operation on a path was refused or failed. `path` is what the client wrote.
#[derive(Debug, Error)]
pub(crate) enum PathError {
    #[error("`{path}` is not a path here: {reason}")]
    Spelling { path: String, reason: SpellingError },
    #[error("`{path}` is outside the workspace")]
    Outside { path: String, workspace: String, inside: Option<String> },
    #[error("`{path}` does not exist")]
    NotFound { path: String, nearest: Vec<String> },
    #[error("`{path}` exists already")]
    Exists { path: String },
    #[error("`{path}` is a directory")]
    IsDirectory { path: String },
    #[error("`{path}` is not a directory")]
    NotADirectory { path: String },
    #[error("`{path}` is a {kind}, not a file")]
    Special { path: String, kind: &'static str },
    #[error("`{path}` is part of a loop of links, or behind too many of them")]
    LinkLoop { path: String },
    #[error("`{path}` is {size} bytes long, more than the {limit} that can be handled at once")]
    TooLarge { path: String, size: u64, limit: u64 },
    #[error("`{path}` has changed since it was read")]
    Changed { path: String },
    #[error("`{path}` is being moved by another process")]
    Restless { path: String },
    #[error("`{path}` is blocked: {rule}")]
    Blocked { path: String, rule: String },
    #[error("`{path}`: {error}")]
    Io { path: String, error: io::Error },
}

/// What is wrong with the spelling of a path.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum SpellingError {
    #[error("it is empty")]
    Empty,
    #[error("it contains a NUL character")]
    Nul,
    #[error("it is longer than the 4096 bytes that the system takes")]
    TooLong,
    #[error("it is a Windows path or contains a backslash; separate names with `/`")]
    Backslash,
    #[error("it does not name a file: it ends in `.`, `..` or nothing")]
    NoName,
    #[error(transparent)]
    Uri(#[from] wire::FileUriError),
    #[error("it hides where it leads, by encoding it twice or by `.` and `..`")]
    DoubleEncoding,
}

/// Whether an error is one by which a read-only or pinned path refuses a change.
fn refuses_change(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::ResourceBusy)
}

/// The name in a path that fences keep as it is.
fn kept_name(path: &str) -> Option<&str> {
    path.split('/').find(|part| fence::METADATA.contains(part))
}

impl PathError {
    /// A stable code for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Spelling { .. } => "bad_path",
            Self::Outside { .. } => "outside_workspace",
            Self::NotFound { .. } => "not_found",
            Self::Exists { .. } => "already_exists",
            Self::IsDirectory { .. } => "is_a_directory",
            Self::NotADirectory { .. } => "not_a_directory",
            Self::Special { .. } => "special_file",
            Self::LinkLoop { .. } => "link_loop",
            Self::TooLarge { .. } => "too_large",
            Self::Changed { .. } => "changed_since_read",
            Self::Restless { .. } => "path_restless",
            Self::Blocked { .. } => "blocked_by_rule",
            Self::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => "permission_denied",
            Self::Io { error, .. } if error.kind() == io::ErrorKind::ReadOnlyFilesystem => "read_only",
            Self::Io { error, path } if refuses_change(error) && kept_name(path).is_some() => "read_only",
            Self::Io { .. } => "io_error",
        }
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Spelling { path, .. }
            | Self::Outside { path, .. }
            | Self::NotFound { path, .. }
            | Self::Exists { path }
            | Self::IsDirectory { path }
            | Self::NotADirectory { path }
            | Self::Special { path, .. }
            | Self::LinkLoop { path }
            | Self::TooLarge { path, .. }
            | Self::Changed { path }
            | Self::Restless { path }
            | Self::Blocked { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Outside { workspace, inside: None, .. } => {
                format!("the workspace is {workspace}; use a path below it, or one relative to it")
            }
            Self::Outside { workspace, inside: Some(inside), .. } => {
                format!("the workspace is {workspace}, and `{inside}` exists in it; did you mean that?")
            }
            Self::NotFound { nearest, .. } if !nearest.is_empty() => {
                format!(
                    "there is {}",
                    nearest.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
                )
            }
            Self::NotFound { .. } => "list_dir shows a directory, file_search finds files by name".to_owned(),
            Self::Exists { .. } => "choose another name, or set `overwrite: true`".to_owned(),
            Self::IsDirectory { .. } => "list_dir shows what is in it".to_owned(),
            Self::TooLarge { .. } => {
                "grep_search finds the lines that matter, and run_terminal_cmd can show parts of it"
                    .to_owned()
            }
            Self::Changed { .. } => "read it again, and base the change on what is there now".to_owned(),
            Self::Restless { .. } => "try again when nothing else renames directories there".to_owned(),
            Self::Io { error, path } if refuses_change(error) => match kept_name(path) {
                Some(name) => format!(
                    "programs outside obey `{name}`, so sessions cannot change it; the operator can allow it with \
                     --allow-metadata {name}"
                ),
                None if error.kind() == io::ErrorKind::ResourceBusy => return None,
                None => "this session may only read".to_owned(),
            },
            _ => return None,
        })
    }

    /// Wraps a system error that needs no further explanation.
    pub(crate) fn io(path: &str, error: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), error: error.into() }
    }
}
