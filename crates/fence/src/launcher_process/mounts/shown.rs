//! Finds what the command's root shows: the trees of the host to mount, and the symbolic links on the way to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use super::super::reads::{self, Denied, FoundKind};
use super::super::ruleset::open_vetted;
use super::super::{InStep, StepError};
use super::copy_of;
use super::root::ATTACHED_AT;
use crate::link_walk::{Held, Walk, walk};
use crate::paths::VettedDirectory;

/// A directory or file of the host.
#[derive(Debug)]
pub(super) struct Tree {
    /// Device and inode.
    identity: (u64, u64),
    /// Opened ahead if the new root will cover the path. There may be more trees than descriptors.
    opened: Option<OwnedFd>,
    /// It is a mount of its own, which is attached as it is.
    is_detached: bool,
    pub(super) is_directory: bool,
}

impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.is_directory == other.is_directory
    }
}

/// What the root shows, by path.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// Read-only. None lies inside another one or inside a writable one.
    pub(super) readable: BTreeMap<PathBuf, Tree>,
    pub(super) links: BTreeMap<PathBuf, OsString>,
}

/// Collects what is shown.
pub(super) struct Survey<'a> {
    denied: Denied,
    /// Directories that the command can write. Their links are not trusted, and all of them is visible anyway.
    writable: Vec<&'a Path>,
    shown: Shown,
}

impl<'a> Survey<'a> {
    pub(super) fn new<'d>(
        denied: impl IntoIterator<Item = &'d Path>,
        writable: impl IntoIterator<Item = &'a VettedDirectory>,
    ) -> Self {
        Self {
            denied: Denied::of(denied),
            writable: writable.into_iter().map(VettedDirectory::path).collect(),
            shown: Shown::default(),
        }
    }

    /// Shows a path of the host, if it exists, without what is denied below it. A path below a denied one is shown
    /// too, because the operator named it, but no link that leads there from elsewhere is followed.
    pub(super) fn show(&mut self, path: &Path) -> Result<(), StepError> {
        let Some(held) = self.resolve(path) else { return Ok(()) };
        if self.is_writable(held.path()) || self.denied.hides(held.path(), path) {
            return Ok(());
        }
        let Some(below) = self.denied.below(held.path()) else {
            self.shown.readable.insert(held.path().to_owned(), Tree::held(held));
            return Ok(());
        };
        let shown = &mut self.shown;
        reads::all_except(held.path(), below, &mut |found| {
            match found.kind {
                FoundKind::Tree { entry, is_directory } => {
                    let tree = Tree::new(&found.path, entry, is_directory);
                    shown.readable.insert(found.path, tree);
                }
                FoundKind::Link(target) => {
                    shown.links.insert(found.path, target);
                }
            }
            Ok(())
        })
    }

    /// Drops what lies inside something else that is shown.
    pub(super) fn finish(mut self) -> Shown {
        let roots: BTreeSet<PathBuf> = self.shown.readable.keys().cloned().collect();
        let has_root_above = |path: &Path, is_itself: bool| {
            let above = path.ancestors().skip(usize::from(!is_itself));
            above.into_iter().any(|ancestor| roots.contains(ancestor))
        };
        let writable = std::mem::take(&mut self.writable);
        let is_in_writable = |path: &Path| writable.iter().any(|root| path.starts_with(root));
        self.shown.readable.retain(|path, _| !has_root_above(path, false) && !is_in_writable(path));
        self.shown.links.retain(|path, _| !has_root_above(path, true) && !is_in_writable(path));
        self.shown
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root))
    }

    /// What the path leads to, if it exists. Records the links on the way, so that the path works in the new root as
    /// it was written. Does not follow links that the command could have made.
    fn resolve(&mut self, path: &Path) -> Option<Held> {
        let (writable, links) = (&self.writable, &mut self.shown.links);
        let destination = walk(path, &mut |place, target| {
            let is_trusted = !writable.iter().any(|root| place.starts_with(root));
            if is_trusted {
                links.insert(place.to_owned(), target.to_owned());
            }
            is_trusted
        });
        match destination {
            Walk::Found(held) => Some(held),
            Walk::Missing(_) | Walk::Refused => None,
        }
    }
}

/// Opens a path that has no links. Returns `None` if it is gone, or was replaced by a link meanwhile.
fn open(path: &Path) -> Option<(OwnedFd, bool)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&source).ok()?.st_mode);
    (kind != FileType::Symlink).then_some((source, kind.is_dir()))
}

/// Opens the vetted directories that lie in none of the others.
/// Takes those that are staged as they are.
pub(super) fn outermost(
    roots: &[VettedDirectory],
    staged: &mut BTreeMap<PathBuf, Tree>,
) -> Result<BTreeMap<PathBuf, Tree>, StepError> {
    let mut trees = BTreeMap::new();
    for root in roots {
        let is_inside =
            roots.iter().any(|other| other.path() != root.path() && root.path().starts_with(other.path()));
        if !is_inside {
            let tree = match staged.remove(root.path()) {
                Some(tree) => tree,
                None => Tree::opened(open_vetted(root)?),
            };
            trees.insert(root.path().to_owned(), tree);
        }
    }
    Ok(trees)
}

/// Opens a directory that has no links, if there is one.
pub(super) fn open_tree(path: &Path) -> Option<Tree> {
    open(path).filter(|(_, is_directory)| *is_directory).map(|(opened, _)| Tree::opened(opened))
}

impl Tree {
    /// A directory that was opened ahead.
    pub(super) fn opened(directory: OwnedFd) -> Self {
        Self {
            identity: identity(&directory),
            opened: Some(directory),
            is_detached: false,
            is_directory: true,
        }
    }

    /// A mount that is attached nowhere yet.
    pub(super) fn detached(mount: OwnedFd) -> Self {
        Self { is_detached: true, ..Self::opened(mount) }
    }

    /// What was found for a path, however its name is used since.
    fn held(held: Held) -> Self {
        let (identity, is_directory) = (held.identity(), held.is_directory());
        let is_covered = held.path().starts_with(ATTACHED_AT);
        let opened = is_covered.then(|| held.into_descriptor());
        Self { identity, opened, is_detached: false, is_directory }
    }

    fn new(path: &Path, source: OwnedFd, is_directory: bool) -> Self {
        let identity = identity(&source);
        let opened = path.starts_with(ATTACHED_AT).then_some(source);
        Self { identity, opened, is_detached: false, is_directory }
    }

    /// A copy of the tree with the mounts below it, attached nowhere yet. Returns `None` if it is gone by now.
    pub(super) fn copy(&self, path: &Path) -> Result<Option<OwnedFd>, StepError> {
        let copied = match &self.opened {
            // The kernel copies no mount of another namespace.
            Some(mount) if self.is_detached => rustix::io::fcntl_dupfd_cloexec(mount, 0),
            Some(source) => copy_of(source, c""),
            None => match open(path) {
                Some((source, _)) => copy_of(&source, c""),
                None => return Ok(None),
            },
        };
        match copied {
            Err(rustix::io::Errno::NOENT) => Ok(None),
            copied => copied.map(Some).step("copy of a mount"),
        }
    }
}

/// Device and inode; those of nothing if the kernel does not say.
fn identity(file: &OwnedFd) -> (u64, u64) {
    rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of `named` if `denied` is denied.
    fn shown(named: &Path, denied: &[PathBuf]) -> Vec<PathBuf> {
        let mut survey = Survey::new(denied.iter().map(PathBuf::as_path), []);
        survey.show(named).unwrap();
        survey.finish().readable.into_keys().collect()
    }

    #[test]
    fn a_denied_path_stays_hidden_in_what_is_named_below_another_one() {
        let base = crate::test_directory::directory("shown-nested");
        let (build, secret) = (base.join("tmp/build"), base.join("tmp/build/secret"));
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::write(build.join("plain"), "").unwrap();
        assert_eq!(shown(&build, &[base.join("tmp"), secret]), [build.join("plain")]);
        assert_eq!(shown(&build, &[base.join("tmp")]), [build], "the control");
    }

    #[test]
    fn a_link_below_one_denied_path_does_not_lead_into_another() {
        let base = crate::test_directory::directory("shown-link");
        let (temporary, keys) = (base.join("tmp"), base.join("keys"));
        for directory in [&temporary, &keys, &temporary.join("real")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::os::unix::fs::symlink("../keys", temporary.join("away")).unwrap();
        std::os::unix::fs::symlink("real", temporary.join("near")).unwrap();
        let denied = [temporary.clone(), keys];
        assert!(shown(&temporary.join("away"), &denied).is_empty());
        assert_eq!(shown(&temporary.join("near"), &denied), [temporary.join("real")], "the control");
    }
}
