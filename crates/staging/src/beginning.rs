//! Where a copy begins: by which method it is made, and the state that its changes are told from.

use std::path::Path;

use fence::StagedScope;

use crate::changes::ChangeOptions;
use crate::copy::{Unsaved, WorkspaceCopy, load};
use crate::error::StagingError;
use crate::method::{Method, can_reflink};
use crate::workspaces::{NewCopy, Workspaces};

/// A copy that can be used, and the methods that were tried before in vain.
#[derive(Debug)]
pub struct Begun {
    pub copy: WorkspaceCopy,
    pub staged: StagedScope,
    pub tried: Vec<(Method, StagingError)>,
}

impl Workspaces {
    /// The methods that may work for a base, the one that costs least first.
    pub fn methods(&self, base: &Path) -> Vec<Method> {
        let reflink = can_reflink(base, self.root()).then_some(Method::Reflink);
        let other = reflink.unwrap_or(Method::Copy);
        vec![Method::Overlay, other]
    }

    /// Makes a copy by the first of the methods that works here, and takes it for this process.
    pub fn begin(&self, new: &NewCopy, methods: &[Method]) -> Result<Begun, StagingError> {
        let mut tried = Vec::new();
        for (number, method) in methods.iter().enumerate() {
            let copy = self.create(NewCopy { method: *method, ..new.clone() })?;
            match copy.stage() {
                Ok(staged) => return Ok(Begun { copy, staged, tried }),
                Err(error) => {
                    self.remove(copy)?;
                    if number + 1 == methods.len() {
                        return Err(error);
                    }
                    tried.push((*method, error));
                }
            }
        }
        Err(StagingError::Cancelled)
    }

    /// Removes a copy that nothing was done with.
    pub fn remove(&self, copy: WorkspaceCopy) -> Result<(), StagingError> {
        let trashed = self.discard(copy, Unsaved::default(), true)?;
        self.delete(&trashed)
    }
}

impl WorkspaceCopy {
    /// Lets the copy begin with what it has now, for one whose files were set to another commit before its first use:
    /// changes are told from this state. Where it differs from the base, an apply merges, although the base did not
    /// change. Not while a command runs in it.
    pub fn begin_here(&self) -> Result<(), StagingError> {
        let files = self.files();
        let (mut start, mut taken) = (load(&files.base_manifest())?, load(&files.copy_manifest())?);
        let changes = self.changes(&ChangeOptions { include_ignored: true, ..ChangeOptions::default() })?;
        for change in &changes.entries {
            taken.set_state(&change.path, taken.state(change.seen.after.as_ref()));
            if change.seen.before.is_some() {
                start.set_unlike(&change.path);
            }
        }
        let written = start.save(&files.base_manifest()).and_then(|()| taken.save(&files.copy_manifest()));
        written.map_err(|error| StagingError::io("cannot write", self.directory(), error))
    }
}
