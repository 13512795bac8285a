//! What is different in a copy from its base.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::StagingError;
use crate::path_text;

/// How to look for changes.
#[derive(Clone, Debug, Default)]
pub struct ChangeOptions {
    /// List what the project's `.gitignore` files ignore (`target/`, `node_modules/`), which is only counted otherwise.
    pub include_ignored: bool,
    /// Paths relative to the base, beside the known names, whose files programs outside execute: `core.hooksPath` and
    /// the like.
    pub executed: Vec<PathBuf>,
}

/// Everything that changed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Changes {
    /// Sorted by path.
    pub entries: Vec<Change>,
    /// What is shown and never taken over: special files, what is too deep, git's own files.
    pub left_aside: Vec<LeftAside>,
    /// Ignored files, counted by the topmost ignored directory or file.
    pub ignored: Vec<IgnoredTree>,
    #[serde(skip)]
    pub(crate) sides: Option<std::sync::Arc<Sides>>,
}

/// One path that changed.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Relative to the base.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    pub kind: ChangeKind,
    /// In the base, as it is now.
    pub before: Option<EntryFacts>,
    /// In the copy.
    pub after: Option<EntryFacts>,
    pub content: ContentKind,
    /// For an addition: the deleted file that had the same content.
    #[serde(with = "path_text::option", skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<PathBuf>,
    /// For a deletion: the added file that has the same content.
    #[serde(with = "path_text::option", skip_serializing_if = "Option::is_none")]
    pub renamed_to: Option<PathBuf>,
    /// Programs outside execute or obey it: git, editors, agents, shells, build tools.
    pub executed_later: bool,
    /// `.gitignore` names it. Listed only if that was asked for.
    pub ignored: bool,
    pub base: BaseState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
    /// The content is the same.
    ModeChanged,
    /// A file became a link or a directory, or the other way round.
    TypeChanged,
}

/// What the base did at a path since the copy was made, or since the last apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseState {
    AsAtStart,
    /// It was changed, made or deleted there too: an apply has to merge.
    Changed,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryFacts {
    pub kind: EntryKind,
    pub bytes: u64,
    /// The permissions.
    pub mode: u32,
    /// Where a link leads, as it is written.
    #[serde(with = "path_text::option", skip_serializing_if = "Option::is_none")]
    pub target: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentKind {
    Text,
    Binary,
    /// Directories and links.
    None,
}

/// A path that changed and is never taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftAside {
    #[serde(with = "path_text")]
    pub path: PathBuf,
    pub reason: LeftAsideReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftAsideReason {
    Fifo,
    Socket,
    Device,
    /// `.git` and what is below it: commits travel as a bundle.
    Git,
    TooDeep,
    /// It could not be read: it was replaced meanwhile, or its permissions forbid it.
    Unreadable,
}

/// Ignored files that were only counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IgnoredTree {
    #[serde(with = "path_text")]
    pub path: PathBuf,
    pub files: u64,
    pub bytes: u64,
}

/// Where the contents of both sides are read.
#[derive(Debug)]
pub(crate) struct Sides;

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Both contents of a file that changed, at most `most` bytes of each; for comparing two copies.
    pub fn contents(
        &self,
        path: &Path,
        most: u64,
    ) -> Result<(Option<Vec<u8>>, Option<Vec<u8>>), StagingError> {
        let _ = (path, most);
        todo!()
    }
}
