//! Collects changes: compares entries of both sides and sorts out what is ignored, special or unreadable.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ignored::IgnoreRules;
use super::{
    BaseState, BothSeen, Change, ChangeKind, ChangeOptions, Changes, ContentKind, EntryFacts, EntryKind,
    ExecutedNames, FirstRead, IgnoredTree, LeftAside, LeftAsideReason, Sides, content_kind, renames,
};
use crate::error::StagingError;
use crate::file_copy::is_equal;
use crate::held_tree::{HeldTree, Seen};
use crate::manifest::Manifest;
use crate::tracked::Tracked;

/// More changes than this are no review any more.
const MAX_CHANGES: usize = 200_000;

/// What a look at one copy needs, and what it has found so far.
pub(crate) struct Finder<'a> {
    pub(super) sides: &'a Arc<Sides>,
    /// The base at the start, or after the last apply.
    pub(super) start: &'a Manifest,
    /// Entries of the copy that are no changes: as they were made, or taken over already.
    pub(super) taken: &'a Manifest,
    pub(super) options: &'a ChangeOptions,
    rules: IgnoreRules<'a>,
    entries: Vec<Change>,
    left_aside: Vec<LeftAside>,
    ignored: BTreeMap<PathBuf, IgnoredTree>,
}

/// What the base has at a path.
pub(super) enum InBase {
    /// An entry, or nothing.
    Is(Option<Seen>),
    /// Something of another file system.
    Mount,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(
        sides: &'a Arc<Sides>,
        (start, taken): (&'a Manifest, &'a Manifest),
        options: &'a ChangeOptions,
        tracked: &'a dyn Fn() -> Tracked,
    ) -> Self {
        Self {
            sides,
            start,
            taken,
            options,
            rules: IgnoreRules::new(sides, tracked),
            entries: Vec::new(),
            left_aside: Vec::new(),
            ignored: BTreeMap::new(),
        }
    }

    pub(super) fn base(&self) -> &'a HeldTree {
        &self.sides.base
    }

    pub(super) fn copy(&self) -> &'a HeldTree {
        &self.sides.copy
    }

    pub(super) fn set_aside(&mut self, path: &Path, reason: LeftAsideReason) {
        self.left_aside.push(LeftAside { path: path.to_owned(), reason });
    }

    /// The topmost ignored directory above a path, or the path itself if it is ignored.
    pub(super) fn ignored_root(&mut self, path: &Path, is_directory: bool) -> Option<PathBuf> {
        self.rules.ignored_root(path, is_directory)
    }

    /// Counts a path below an ignored one.
    pub(super) fn count_ignored(&mut self, root: PathBuf, seen: &Seen) {
        let tree = self.ignored.entry(root).or_insert_with_key(|root| IgnoredTree {
            path: root.clone(),
            files: 0,
            bytes: 0,
        });
        if !seen.is_directory() {
            tree.files += 1;
            tree.bytes += seen.bytes;
        }
    }

    /// Looks at a path of the base, and sets it aside if something is mounted there.
    pub(super) fn look_at_base(&mut self, path: &Path) -> Result<InBase, StagingError> {
        match self.base().look(path) {
            Ok(seen) => Ok(InBase::Is(seen)),
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.set_aside(path, LeftAsideReason::OtherFileSystem);
                Ok(InBase::Mount)
            }
            Err(error) => Err(StagingError::io("cannot look at", path, error)),
        }
    }

    /// Looks at an entry of the copy that may have changed. The kinds are regular: file, link, directory.
    pub(super) fn compare(
        &mut self,
        path: &Path,
        before: Option<Seen>,
        after: Seen,
    ) -> Result<(), StagingError> {
        // A secret that the copy does not have must not be shown in its diff.
        let shown = before.filter(|_| !self.sides.is_left_out(path));
        match self.difference(path, shown, after) {
            Ok(Some(kind)) => self.add(path, kind, BothSeen { before, after: Some(after) }),
            Ok(None) => Ok(()),
            Err(_) => {
                self.set_aside(path, LeftAsideReason::Unreadable);
                Ok(())
            }
        }
    }

    fn difference(&self, path: &Path, before: Option<Seen>, after: Seen) -> io::Result<Option<ChangeKind>> {
        let Some(before) = before else { return Ok(Some(ChangeKind::Added)) };
        if before.kind != after.kind {
            return Ok(Some(ChangeKind::TypeChanged));
        }
        let is_modified = match after.kind {
            EntryKind::Link => self.base().target(path)? != self.copy().target(path)?,
            EntryKind::File => before.bytes != after.bytes || !self.is_same_content(path)?,
            _ => false,
        };
        let has_mode = after.kind != EntryKind::Link;
        Ok(match is_modified {
            true => Some(ChangeKind::Modified),
            false if has_mode && before.mode != after.mode => Some(ChangeKind::ModeChanged),
            false => None,
        })
    }

    fn is_same_content(&self, path: &Path) -> io::Result<bool> {
        let ((before, _), (after, _)) = (self.base().file(path)?, self.copy().file(path)?);
        is_equal(&before, &after)
    }

    /// Notes a deletion with everything below it. What the base has got since the start is none: the copy never had it.
    pub(super) fn delete(&mut self, path: &Path, before: Seen) -> Result<(), StagingError> {
        let mut waiting = vec![(path.to_owned(), before)];
        while let Some((path, before)) = waiting.pop() {
            let is_known = self.start.has(&path) && !self.taken.knows(&path, None);
            if !is_known
                || self.sides.is_left_out(&path)
                || path.file_name().is_some_and(|name| name == ".git")
            {
                continue;
            }
            self.delete_one(&path, before)?;
            if before.is_directory() {
                let below = self.base().entries(&path).unwrap_or_default();
                waiting.extend(below.into_iter().map(|(name, seen)| (path.join(name), seen)));
            }
        }
        Ok(())
    }

    /// Notes the deletion of one entry that the base had at the start.
    pub(super) fn delete_one(&mut self, path: &Path, before: Seen) -> Result<(), StagingError> {
        match before.kind {
            EntryKind::File | EntryKind::Link | EntryKind::Directory => {}
            EntryKind::Fifo | EntryKind::Socket | EntryKind::Device => {
                self.set_aside(path, special(before.kind));
                return Ok(());
            }
        }
        self.add(path, ChangeKind::Deleted, BothSeen { before: Some(before), after: None })
    }

    fn add(&mut self, path: &Path, kind: ChangeKind, seen: BothSeen) -> Result<(), StagingError> {
        let is_directory = seen.after.or(seen.before).is_some_and(|seen| seen.is_directory());
        let ignored_root = self.ignored_root(path, is_directory);
        if let (Some(root), false) = (&ignored_root, self.options.include_ignored) {
            if let Some(seen) = seen.after.or(seen.before) {
                self.count_ignored(root.clone(), &seen);
            }
            return Ok(());
        }
        let is_hidden = self.sides.is_left_out(path);
        let shown_before = seen.before.filter(|_| !is_hidden);
        let facts =
            |tree: &HeldTree, seen: Option<Seen>| seen.map(|seen| facts(tree, path, &seen)).transpose();
        let (Ok(before), Ok(after)) = (facts(self.base(), shown_before), facts(self.copy(), seen.after))
        else {
            self.set_aside(path, LeftAsideReason::Unreadable);
            return Ok(());
        };
        if seen.after.is_some_and(|after| after.kind == EntryKind::File) && self.copy().file(path).is_err() {
            self.set_aside(path, LeftAsideReason::Unreadable);
            return Ok(());
        }
        if self.entries.len() >= MAX_CHANGES {
            return Err(StagingError::TooManyChanges { most: MAX_CHANGES });
        }
        let base =
            if is_hidden { BaseState::Changed } else { self.start.compare(path, seen.before.as_ref()) };
        let content = self.content(path, shown_before, seen.after);
        let path = path.to_owned();
        let ignored = ignored_root.is_some();
        self.entries.push(Change {
            path,
            kind,
            before,
            after,
            content,
            renamed_from: None,
            renamed_to: None,
            executed_later: false,
            ignored,
            base,
            seen,
            first_read: FirstRead::default(),
        });
        Ok(())
    }

    /// Text or binary. A file is binary if it is so on one side.
    fn content(&self, path: &Path, before: Option<Seen>, after: Option<Seen>) -> ContentKind {
        let sides = [(self.base(), before), (self.copy(), after)];
        let files = sides.iter().filter(|(_, seen)| seen.is_some_and(|seen| seen.kind == EntryKind::File));
        let mut all = ContentKind::None;
        for (tree, _) in files {
            all = match content_kind(tree, path) {
                Ok(ContentKind::Text) if all != ContentKind::Binary => ContentKind::Text,
                _ => ContentKind::Binary,
            };
        }
        all
    }

    /// Sorts what was found, and recognises renames and what is executed later.
    pub(crate) fn finish(mut self) -> Changes {
        self.entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        renames::recognise(&mut self.entries, self.sides);
        let names = ExecutedNames::of(self.sides, &self.options.executed, &self.entries);
        for change in &mut self.entries {
            change.executed_later = names.has(change);
        }
        self.left_aside.sort_unstable();
        self.left_aside.dedup();
        Changes {
            entries: self.entries,
            left_aside: self.left_aside,
            ignored: self.ignored.into_values().collect(),
            sides: Some(Arc::clone(self.sides)),
        }
    }
}

fn facts(tree: &HeldTree, path: &Path, seen: &Seen) -> io::Result<EntryFacts> {
    let target = if seen.kind == EntryKind::Link { Some(tree.target(path)?) } else { None };
    Ok(EntryFacts { kind: seen.kind, bytes: seen.bytes, mode: seen.mode, target })
}

pub(super) fn special(kind: EntryKind) -> LeftAsideReason {
    match kind {
        EntryKind::Fifo => LeftAsideReason::Fifo,
        EntryKind::Socket => LeftAsideReason::Socket,
        _ => LeftAsideReason::Device,
    }
}
