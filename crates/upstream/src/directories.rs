//! The directories that a server may write in, as they were vetted: by path, device and inode.

use std::path::{Path, PathBuf};

use fence::{StagedScope, VettedDirectory};

/// What one server may write. The first root is the primary one, where the server starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directories {
    /// The session's workspace, which servers are told as their MCP roots.
    pub roots: Vec<VettedDirectory>,
    /// Where the server keeps data across sessions. It is no root.
    pub storage: Option<VettedDirectory>,
    /// What stands at the places of roots, which then stay as they are.
    pub staged: Option<StagedScope>,
}

impl Directories {
    pub fn of(roots: Vec<VettedDirectory>) -> Self {
        Self { roots, ..Self::default() }
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.roots.iter().map(|root| root.path().to_owned()).collect()
    }

    pub fn primary(&self) -> Option<&Path> {
        self.roots.first().map(VettedDirectory::path)
    }

    /// The roots that the session itself changes.
    pub(crate) fn changed_roots(&self) -> &[VettedDirectory] {
        if self.staged.is_some() { &[] } else { &self.roots }
    }

    /// Roots and storage, as the fence must find them.
    pub(crate) fn vetted(&self) -> Vec<VettedDirectory> {
        self.roots.iter().chain(&self.storage).cloned().collect()
    }

    /// Whether every root of `other` lies below a root of this.
    pub fn contain(&self, other: &Self) -> bool {
        let is_inside = |path: &Path| self.roots.iter().any(|root| path.starts_with(root.path()));
        other.roots.iter().all(|root| is_inside(root.path()))
    }

    /// Whether a root of one lies in a root of the other.
    pub fn overlap(&self, other: &Self) -> bool {
        let meets = |mine: &Path, theirs: &Path| mine.starts_with(theirs) || theirs.starts_with(mine);
        self.roots.iter().any(|mine| other.roots.iter().any(|theirs| meets(mine.path(), theirs.path())))
    }
}
