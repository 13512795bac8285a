//! Changes of a copy that has a whole tree: entries that are not as they were made, and those that are gone.

use std::collections::HashSet;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::finder::{Finder, InBase, special};
use super::{EntryKind, LeftAsideReason};
use crate::error::StagingError;
use crate::held_tree::Seen;
use crate::walk::{Extent, MAX_DEPTH, walk};

type Found = Vec<(PathBuf, Seen)>;

impl Finder<'_> {
    pub(crate) fn look_at_files(&mut self) -> Result<(), StagingError> {
        let (changed, present) = self.differing()?;
        for (path, seen) in changed {
            if path.components().count() >= MAX_DEPTH {
                self.set_aside(&path, LeftAsideReason::TooDeep);
                continue;
            }
            match seen.kind {
                EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => {
                    self.set_aside(&path, special(seen.kind));
                }
                EntryKind::File | EntryKind::Link | EntryKind::Directory => {
                    if let InBase::Is(before) = self.look_at_base(&path)? {
                        self.compare(&path, before, seen)?;
                    }
                }
            }
        }
        for (path, before) in self.missing(&present)? {
            self.delete_one(&path, before)?;
        }
        Ok(())
    }

    /// The entries that are not as they were made, and the hashes of all paths.
    fn differing(&self) -> Result<(Found, HashSet<u64>), StagingError> {
        let (changed, present) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
        let walked = walk(self.copy(), Extent::WithoutGit, &|visit| {
            let mut hashes = Vec::with_capacity(visit.entries.len());
            for (name, seen) in visit.entries {
                let path = visit.path.join(name);
                hashes.push(self.start.hash(&path));
                if !self.taken.knows(&path, Some(seen)) {
                    changed.lock().push((path, *seen));
                }
            }
            present.lock().extend(hashes);
            Ok(())
        });
        walked.map_err(|error| StagingError::io("cannot walk", self.copy().path(), error))?;
        Ok((changed.into_inner(), present.into_inner()))
    }

    /// What the base had at the start and still has, and the copy has no more.
    fn missing(&self, present: &HashSet<u64>) -> Result<Found, StagingError> {
        let missing = Mutex::new(Vec::new());
        let walked = walk(self.base(), Extent::WithoutGit, &|visit| {
            for (name, seen) in visit.entries {
                let path = visit.path.join(name);
                let is_regular =
                    matches!(seen.kind, EntryKind::File | EntryKind::Link | EntryKind::Directory);
                let is_gone = !present.contains(&self.start.hash(&path)) && self.start.has(&path);
                if is_gone && is_regular && !self.sides.is_left_out(&path) && !self.taken.knows(&path, None) {
                    missing.lock().push((path, *seen));
                }
            }
            Ok(())
        });
        walked.map_err(|error| StagingError::io("cannot walk", self.base().path(), error))?;
        Ok(missing.into_inner())
    }
}
