//! Staged scopes: opens what is mounted at the places of directories that stay as they are.

use std::collections::BTreeMap;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use super::super::ruleset::open_vetted;
use super::super::{InStep, StepError};
use super::shown::Tree;
use crate::staged::{StagedMount, StagedPlace};

/// The trees by the path at which they are to be mounted. `first_mount` is the first descriptor that holds one.
pub(super) fn open(places: &[StagedPlace], first_mount: RawFd) -> Result<BTreeMap<PathBuf, Tree>, StepError> {
    let mut trees = BTreeMap::new();
    for place in places {
        let tree = match &place.mount {
            StagedMount::Directory(directory) => Tree::opened(open_vetted(directory)?),
            StagedMount::Passed(number) => {
                let descriptor = first_mount + RawFd::try_from(*number).step("overlay")?;
                // SAFETY: the descriptor was given to this process for this mount, which is counted once.
                Tree::detached(unsafe { OwnedFd::from_raw_fd(descriptor) })
            }
        };
        trees.insert(place.shown.path().to_owned(), tree);
    }
    Ok(trees)
}
