//! Staged scopes: the command finds copies at the places of its directories, and the directories themselves stay as they
//! are. A copy is an overlay over the directory, or a tree of its own that is mounted there.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::overlay::Overlay;
use crate::paths::VettedDirectory;

/// The most trees that one scope is made of. Each is one more descriptor for a launcher.
pub const MAX_STAGED_TREES: usize = 4;

/// What commands find instead of a scope. Clones are the same copy.
#[derive(Clone, Debug)]
pub struct StagedScope(Arc<Inner>);

/// A staged scope that others keep in use.
#[derive(Clone, Debug)]
pub struct WeakStagedScope(Weak<Inner>);

impl WeakStagedScope {
    pub fn upgrade(&self) -> Option<StagedScope> {
        self.0.upgrade().map(StagedScope)
    }
}

#[derive(Debug)]
struct Inner {
    name: String,
    trees: Vec<StagedTree>,
    /// Locks the copy as long as a command may have it.
    _lock: File,
}

/// One directory of the host, and what commands find at its place.
#[derive(Debug)]
pub struct StagedTree {
    base: VettedDirectory,
    /// At the path of the base, with the identity of what is mounted there.
    shown: VettedDirectory,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Overlay(Overlay),
    Directory(VettedDirectory),
}

/// How a launcher gets a tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum StagedMount {
    /// It is a mount that comes with the request, this one of several.
    Passed(usize),
    /// It opens this directory.
    Directory(VettedDirectory),
}

/// A tree that a launcher mounts at the place of another directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StagedPlace {
    pub(crate) shown: VettedDirectory,
    pub(crate) mount: StagedMount,
}

impl StagedScope {
    /// `lock` is held as long as a command may have the copy that is called `name`.
    pub fn new(name: String, trees: Vec<StagedTree>, lock: File) -> Self {
        Self(Arc::new(Inner { name, trees, _lock: lock }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Finds the scope again as long as it is in use.
    pub fn downgrade(&self) -> WeakStagedScope {
        WeakStagedScope(Arc::downgrade(&self.0))
    }

    /// Whether a copy stands at the place of this directory.
    pub(crate) fn covers(&self, directory: &VettedDirectory) -> bool {
        self.0.trees.iter().any(|tree| tree.base == *directory)
    }

    /// The directories that stay as they are.
    pub(crate) fn bases(&self) -> impl Iterator<Item = &Path> {
        self.0.trees.iter().map(|tree| tree.base.path())
    }

    /// What is mounted at the place of this directory.
    pub(crate) fn in_place_of(&self, directory: &VettedDirectory) -> VettedDirectory {
        let tree = self.0.trees.iter().find(|tree| tree.base == *directory);
        tree.map_or(directory, |tree| &tree.shown).clone()
    }

    pub(crate) fn places(&self) -> Vec<StagedPlace> {
        let mut passed = 0..;
        let place = |tree: &StagedTree| {
            let mount = match &tree.source {
                Source::Directory(directory) => StagedMount::Directory(directory.clone()),
                Source::Overlay(_) => StagedMount::Passed(passed.next().unwrap_or_default()),
            };
            StagedPlace { shown: tree.shown.clone(), mount }
        };
        self.0.trees.iter().map(place).collect()
    }

    /// Mounts for one launcher, in the order in which the places count them.
    #[cfg(target_os = "linux")]
    pub(crate) fn mounts(&self) -> io::Result<Vec<std::os::fd::OwnedFd>> {
        let overlays = self.0.trees.iter().filter_map(|tree| match &tree.source {
            Source::Overlay(overlay) => Some(overlay),
            Source::Directory(_) => None,
        });
        overlays.map(Overlay::mount).collect()
    }
}

/// Two are equal if they are the same copy.
impl PartialEq for StagedScope {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StagedScope {}

impl Hash for StagedScope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl StagedTree {
    /// An overlay over the directory. What commands change goes to `upper`; `work` is the kernel's own.
    #[cfg(target_os = "linux")]
    pub fn overlay(base: VettedDirectory, upper: &Path, work: &Path) -> io::Result<Self> {
        let own = |path| VettedDirectory::own(path).map_err(io::Error::other);
        let overlay = Overlay::start(base.clone(), own(upper)?, own(work)?)?;
        let shown = VettedDirectory::of_descriptor(base.path().to_owned(), overlay.mount()?)?;
        Ok(Self { base, shown, source: Source::Overlay(overlay) })
    }

    /// A copy of the directory that lies elsewhere.
    pub fn directory(base: VettedDirectory, copy: &Path) -> io::Result<Self> {
        let copy = VettedDirectory::own(copy).map_err(io::Error::other)?;
        let shown = VettedDirectory::of_descriptor(base.path().to_owned(), copy.open(OFlags::PATH)?)?;
        Ok(Self { base, shown, source: Source::Directory(copy) })
    }
}
