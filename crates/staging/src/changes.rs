//! What is different in a copy from its base.

mod executed;
mod files;
mod finder;
mod ignored;
mod overlay;
mod renames;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;

use crate::error::StagingError;
use crate::held_tree::{HeldTree, Seen};
use crate::path_text;

pub(crate) use executed::ExecutedNames;
pub use executed::is_executed_outside;
pub(crate) use finder::Finder;

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
    pub(crate) sides: Option<Arc<Sides>>,
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
    #[serde(skip)]
    pub(crate) seen: BothSeen,
    #[serde(skip)]
    pub(crate) first_read: FirstRead,
}

/// The digest of the content that was first read of a file of the copy. Its size and times do not tell: what an agent
/// writes through a mapping changes neither until the kernel writes it out. So all that is shown, named by a
/// fingerprint and taken over after a review must be this content.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstRead(Arc<OnceLock<[u8; 32]>>);

impl FirstRead {
    /// Whether a content is the one that was read first. The first one is noted.
    pub(crate) fn is(&self, digest: [u8; 32]) -> bool {
        *self.0.get_or_init(|| digest) == digest
    }

    fn get(&self) -> Option<[u8; 32]> {
        self.0.get().copied()
    }
}

/// What looks at both sides told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BothSeen {
    pub(crate) before: Option<Seen>,
    pub(crate) after: Option<Seen>,
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftAside {
    #[serde(with = "path_text")]
    pub path: PathBuf,
    pub reason: LeftAsideReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftAsideReason {
    Fifo,
    Socket,
    Device,
    /// `.git` and what is below it: commits travel as a bundle.
    Git,
    TooDeep,
    /// The base has a mount point there.
    OtherFileSystem,
    /// It could not be read: it was replaced meanwhile, or its permissions forbid it.
    Unreadable,
}

impl std::fmt::Display for LeftAsideReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Git => "of git; commits are merged",
            Self::TooDeep => "too deep",
            Self::OtherFileSystem => "on another file system than the project",
            Self::Unreadable => "cannot be read",
        })
    }
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
pub(crate) struct Sides {
    pub(crate) base: HeldTree,
    pub(crate) copy: HeldTree,
    /// Secrets of the base that the copy must not be shown, sorted.
    pub(crate) left_out: Vec<PathBuf>,
}

impl Sides {
    pub(crate) fn is_left_out(&self, path: &Path) -> bool {
        self.left_out.binary_search_by(|left_out| left_out.as_path().cmp(path)).is_ok()
    }
}

/// Both contents of a path; `None` where there is no file or link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of a path.
    pub fn entry(&self, path: &Path) -> Option<&Change> {
        let place = self.entries.binary_search_by(|change| change.path.as_path().cmp(path)).ok()?;
        self.entries.get(place)
    }

    /// Both contents of an entry; of a link where it leads. Fails for files of more than `most` bytes.
    pub fn contents(&self, change: &Change, most: u64) -> Result<Contents, StagingError> {
        let Some(sides) = &self.sides else { return Ok(Contents::default()) };
        let read = |tree: &HeldTree, facts: Option<&EntryFacts>| {
            let Some(facts) = facts else { return Ok(None) };
            match facts.kind {
                EntryKind::File => tree.read(&change.path, most).map(Some),
                EntryKind::Link => {
                    Ok(facts.target.as_ref().map(|target| target.as_os_str().as_bytes().to_vec()))
                }
                _ => Ok(None),
            }
        };
        let failed = |error: io::Error| StagingError::io("cannot read", &change.path, error);
        let before = read(&sides.base, change.before.as_ref()).map_err(failed)?;
        let after = read(&sides.copy, change.after.as_ref()).map_err(failed)?;
        let is_file = change.after.as_ref().is_some_and(|facts| facts.kind == EntryKind::File);
        if let (true, Some(after)) = (is_file, &after)
            && !change.first_read.is(Sha256::digest(after).into())
        {
            return Err(failed(io::Error::other("its agent changes it")));
        }
        Ok(Contents { before, after })
    }

    /// What tells these changes from others, with all contents: an apply that names it takes over these, or is refused.
    /// Reads the files that changed.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        for change in &self.entries {
            for path in [Some(&change.path), change.renamed_from.as_ref()] {
                let bytes = path.map_or(&b""[..], |path| path.as_os_str().as_bytes());
                digest.update((bytes.len() as u64).to_le_bytes());
                digest.update(bytes);
            }
            digest.update(format!("{:?} {}", change.kind, change.executed_later));
            for seen in [change.seen.before, change.seen.after] {
                digest.update(format!("{seen:?}"));
            }
            if change.after.as_ref().is_some_and(|facts| facts.kind == EntryKind::File) {
                // One that cannot be read is refused when it is staged.
                digest.update(self.read_first(change).unwrap_or_default());
            }
        }
        let bytes = digest.finalize();
        bytes.iter().take(16).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }
}

impl Changes {
    /// The digest of the content that is reviewed.
    fn read_first(&self, change: &Change) -> Option<[u8; 32]> {
        if let Some(known) = change.first_read.get() {
            return Some(known);
        }
        let sides = self.sides.as_ref()?;
        // What is shown as a change of the mode has to have the content of the base.
        let shown = if change.kind == ChangeKind::ModeChanged { &sides.base } else { &sides.copy };
        let (file, _) = shown.file(&change.path).ok()?;
        change.first_read.is(digest_of(&file).ok()?);
        change.first_read.get()
    }
}

/// The digest of a whole file.
pub(crate) fn digest_of(mut file: &File) -> io::Result<[u8; 32]> {
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; BUFFER_BYTES]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(read) => digest.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first bytes of a file say whether it is text, as they do for git.
const SNIFFED_BYTES: u64 = 8000;
const BUFFER_BYTES: usize = 128 * 1024;

pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    let most = usize::try_from(SNIFFED_BYTES).unwrap_or(usize::MAX).min(bytes.len());
    bytes[..most].contains(&0)
}

fn content_kind(tree: &HeldTree, path: &Path) -> io::Result<ContentKind> {
    let (file, _) = tree.file(path)?;
    let mut bytes = Vec::new();
    file.take(SNIFFED_BYTES).read_to_end(&mut bytes)?;
    Ok(if is_binary(&bytes) { ContentKind::Binary } else { ContentKind::Text })
}
