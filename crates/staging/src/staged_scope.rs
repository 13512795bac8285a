//! Makes a copy the scope of fenced commands.

use std::io;

use fence::{MAX_STAGED_TREES, StagedScope, StagedTree, VettedDirectory};

use crate::copy::WorkspaceCopy;
use crate::error::StagingError;
use crate::record::Tree;

impl WorkspaceCopy {
    /// Takes the copy for this process and has it mounted. It is free again when the last clone of the result and the
    /// last fence with it are gone. The base must be the directory that it was at the start.
    pub fn stage(&self) -> Result<StagedScope, StagingError> {
        let base = self.record.base_path();
        let failed = |source: io::Error| StagingError::io("cannot show the copy of", base, source);
        if self.trees().len() > MAX_STAGED_TREES {
            return Err(failed(io::Error::other("it has too many trees")));
        }
        let occupied = self.occupy()?;
        let vetted = VettedDirectory::own(base).ok().filter(|vetted| self.record.base.is_of(vetted));
        if vetted.is_none() {
            return Err(StagingError::BaseReplaced { base: base.to_owned() });
        }
        let trees = self.trees().iter().map(staged_tree).collect::<io::Result<_>>().map_err(failed)?;
        Ok(StagedScope::new(self.record.name.to_string(), trees, occupied.into_lock()))
    }
}

fn staged_tree(tree: &Tree) -> io::Result<StagedTree> {
    let base = VettedDirectory::own(tree.base()).map_err(io::Error::other)?;
    match tree {
        Tree::Overlay { upper, work, .. } => StagedTree::overlay(base, upper, work),
        Tree::Files { files, .. } => StagedTree::directory(base, files),
    }
}
