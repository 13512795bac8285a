//! What is known of a copy, as it is written beside it.

use std::fmt;
use std::path::{Path, PathBuf};

use fence::DirectoryIdentity;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::method::Method;
use crate::name::WorkspaceName;
use crate::path_text;

/// The version of the record's format.
pub(crate) const VERSION: u32 = 1;

/// Random; the name of the copy's directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CopyId(pub(crate) String);

impl CopyId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CopyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A copy's record. [`crate::WorkspaceCopy::update`] changes what callers may change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub id: CopyId,
    pub name: WorkspaceName,
    pub method: Method,
    pub created: Timestamp,
    /// The last time that a session or command used it.
    pub used: Timestamp,
    /// The project's directory, and what tells it again.
    pub base: DirectoryIdentity,
    /// The first is the project; others are git directories outside it.
    pub trees: Vec<Tree>,
    /// What looked like a secret at the start and was left out, relative to the base. These are no deletions.
    #[serde(with = "path_text::list", default)]
    pub left_out: Vec<PathBuf>,
    /// FIFOs, sockets and devices of the base, which trees of files do not copy.
    #[serde(with = "path_text::list", default)]
    pub not_copied: Vec<PathBuf>,
    /// For the names of tracked files.
    #[serde(default)]
    pub repositories: Vec<OutsideRepository>,
    /// The commit that was checked out in the base at the start.
    #[serde(default)]
    pub start: Option<StartCommit>,
    #[serde(default)]
    pub set_up: Option<SetUp>,
    /// The instance or client that the copy was made for by itself (`serve --stage`).
    #[serde(default)]
    pub staged_for: Option<String>,
    #[serde(default)]
    pub notes: String,
    /// When the trash gives it up. Set while it is discarded.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// Whatever callers keep with the copy.
    #[serde(default)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Record {
    /// The project's directory.
    pub fn base_path(&self) -> &Path {
        self.base.path()
    }
}

/// The commit at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommit {
    pub id: String,
    /// A ref such as `refs/heads/main`, unless the head was detached.
    pub reference: Option<String>,
}

/// A git directory outside the base, and the top of its tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideRepository {
    #[serde(with = "path_text")]
    pub git_directory: PathBuf,
    #[serde(with = "path_text")]
    pub worktree: PathBuf,
}

/// The set-up command that ran in the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetUp {
    pub command: String,
    pub exit_code: Option<i32>,
    pub finished: Option<Timestamp>,
}

/// A directory of the host and where its copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Tree {
    /// Mounted by the fence: `upper` over `base`, at the path of `base`, with `userxattr` and without redirects and
    /// metadata-only copies.
    Overlay {
        #[serde(with = "path_text")]
        base: PathBuf,
        #[serde(with = "path_text")]
        upper: PathBuf,
        #[serde(with = "path_text")]
        work: PathBuf,
    },
    /// A tree of files, shown at the path of `base`.
    Files {
        #[serde(with = "path_text")]
        base: PathBuf,
        #[serde(with = "path_text")]
        files: PathBuf,
    },
}

impl Tree {
    pub fn base(&self) -> &Path {
        match self {
            Self::Overlay { base, .. } | Self::Files { base, .. } => base,
        }
    }
}
