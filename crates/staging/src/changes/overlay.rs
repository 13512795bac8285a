//! Changes of an overlay, read from its upper directory as the kernel writes it with `userxattr`: whiteouts are devices
//! 0/0, or files marked so in a directory that is marked; opaque directories hide all that is below them in the base.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::fgetxattr;

use super::finder::{Finder, InBase, special};
use super::{EntryKind, LeftAsideReason};
use crate::apply::is_own;
use crate::error::StagingError;
use crate::held_tree::Seen;
use crate::walk::MAX_DEPTH;

const OPAQUE: &str = "user.overlay.opaque";
const WHITEOUT: &str = "user.overlay.whiteout";

/// What a directory of the upper layer lies over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    /// A directory of the base, whose entries are seen through it.
    Seen,
    /// A directory of the base that it hides.
    Hidden,
    Nothing,
}

/// The attributes of a directory of the upper layer.
#[derive(Clone, Copy, Default)]
struct Marks {
    is_opaque: bool,
    /// Files in it may be marked as whiteouts.
    may_have_marked_whiteouts: bool,
}

impl Finder<'_> {
    pub(crate) fn look_at_upper(&mut self) -> Result<(), StagingError> {
        let mut waiting = vec![(PathBuf::new(), Below::Seen)];
        while let Some((path, below)) = waiting.pop() {
            self.look_at_directory(&path, below, &mut waiting)?;
        }
        Ok(())
    }

    fn look_at_directory(
        &mut self,
        directory: &Path,
        below: Below,
        waiting: &mut Vec<(PathBuf, Below)>,
    ) -> Result<(), StagingError> {
        let Ok(entries) = self.copy().entries(directory) else {
            self.set_aside(directory, LeftAsideReason::Unreadable);
            return Ok(());
        };
        let marks = self.marks(directory);
        let mut present = BTreeSet::new();
        for (name, seen) in entries {
            let path = directory.join(&name);
            if directory.as_os_str().is_empty() && is_own(&name) {
                continue;
            }
            if name == ".git" {
                self.set_aside(&path, LeftAsideReason::Git);
                present.insert(name);
                continue;
            }
            let before = match below {
                Below::Nothing => None,
                Below::Seen | Below::Hidden => match self.look_at_base(&path)? {
                    InBase::Is(before) => before,
                    InBase::Mount => continue,
                },
            };
            if self.is_whiteout(&path, &seen, marks) {
                if let Some(before) = before.filter(|_| below == Below::Seen) {
                    self.delete(&path, before)?;
                }
                continue;
            }
            present.insert(name);
            self.look_at_entry(&path, before, seen, waiting)?;
        }
        if below == Below::Hidden { self.delete_all_but(directory, &present) } else { Ok(()) }
    }

    fn look_at_entry(
        &mut self,
        path: &Path,
        before: Option<Seen>,
        seen: Seen,
        waiting: &mut Vec<(PathBuf, Below)>,
    ) -> Result<(), StagingError> {
        match seen.kind {
            EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => {
                self.set_aside(path, special(seen.kind));
            }
            EntryKind::Directory => self.enter(path, before, seen, waiting)?,
            EntryKind::File | EntryKind::Link if self.taken.knows(path, Some(&seen)) => {}
            EntryKind::File | EntryKind::Link => {
                self.compare(path, before, seen)?;
                if before.is_some_and(|before| before.is_directory()) {
                    self.delete_all_but(path, &BTreeSet::new())?;
                }
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        path: &Path,
        before: Option<Seen>,
        seen: Seen,
        waiting: &mut Vec<(PathBuf, Below)>,
    ) -> Result<(), StagingError> {
        if path.components().count() >= MAX_DEPTH {
            self.set_aside(path, LeftAsideReason::TooDeep);
            return Ok(());
        }
        if !self.taken.knows(path, Some(&seen)) {
            self.compare(path, before, seen)?;
        }
        let below = match before {
            Some(before) if before.is_directory() && self.marks(path).is_opaque => Below::Hidden,
            Some(before) if before.is_directory() => Below::Seen,
            _ => Below::Nothing,
        };
        waiting.push((path.to_owned(), below));
        Ok(())
    }

    fn delete_all_but(&mut self, directory: &Path, present: &BTreeSet<OsString>) -> Result<(), StagingError> {
        for (name, before) in self.base().entries(directory).unwrap_or_default() {
            if !present.contains(&name) {
                self.delete(&directory.join(name), before)?;
            }
        }
        Ok(())
    }

    fn marks(&self, directory: &Path) -> Marks {
        let mut value = [0; 2];
        let opened = self.copy().directory(directory);
        match opened.and_then(|opened| fgetxattr(&opened, OPAQUE, &mut value)) {
            Ok(1) if value[0] == b'y' => Marks { is_opaque: true, ..Marks::default() },
            Ok(1) if value[0] == b'x' => Marks { may_have_marked_whiteouts: true, ..Marks::default() },
            _ => Marks::default(),
        }
    }

    fn is_whiteout(&self, path: &Path, seen: &Seen, marks: Marks) -> bool {
        match seen.kind {
            EntryKind::Device => seen.names_device == 0,
            EntryKind::File if marks.may_have_marked_whiteouts && seen.bytes == 0 => {
                let attribute =
                    self.copy().file(path).map(|(file, _)| fgetxattr(&file, WHITEOUT, &mut [0_u8; 2]));
                matches!(attribute, Ok(Ok(_)))
            }
            _ => false,
        }
    }
}

/// Whether the upper layer hides or replaces a name of the base.
pub(super) fn is_hidden(sides: &super::Sides, path: &Path) -> bool {
    debug_assert!(!path.as_os_str().is_empty() && path != OsStr::new("/"));
    matches!(sides.copy.look(path), Ok(Some(seen)) if seen.kind == EntryKind::Device && seen.names_device == 0)
}
