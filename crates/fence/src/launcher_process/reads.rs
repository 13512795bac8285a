//! "Everything but these": walks the directories above denied paths, because neither Landlock nor a bind mount can
//! take a part of a directory back. Every entry of such a directory is found, except for the denied one and what
//! appears there later.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use super::{InStep, StepError};
use crate::link_walk::target_of;

/// The denied paths as a tree of names.
#[derive(Default)]
pub(super) struct Denied {
    /// This path itself is denied.
    is_end: bool,
    below: BTreeMap<OsString, Denied>,
}

impl Denied {
    pub(super) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut tree = Self::default();
        for path in paths {
            tree.add(path);
        }
        tree
    }

    fn add(&mut self, path: &Path) {
        let mut node = self;
        for name in names(path) {
            node = node.below.entry(name.to_owned()).or_default();
        }
        node.is_end = true;
    }

    /// The denied paths strictly below a path, if there are any, whatever is denied above it.
    pub(super) fn below(&self, path: &Path) -> Option<&Self> {
        let node = names(path).try_fold(self, |node, name| node.below.get(name))?;
        (!node.below.is_empty()).then_some(node)
    }

    /// Whether something is denied that is `place` or above it. Does not count what is above the path by which the
    /// operator named the place too: then the operator meant it in spite of that.
    pub(super) fn hides(&self, place: &Path, named: &Path) -> bool {
        let mut node = self;
        let mut reached = PathBuf::from("/");
        let mut rest = names(place);
        loop {
            let is_meant = |path: &Path| path != reached && path.starts_with(&reached);
            if node.is_end && !(is_meant(place) && is_meant(named)) {
                return true;
            }
            let Some(name) = rest.next() else { return false };
            let Some(below) = node.below.get(name) else { return false };
            reached.push(name);
            node = below;
        }
    }
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

/// An entry of a directory above a denied path.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) kind: FoundKind,
}

pub(super) enum FoundKind {
    /// May be read with all that is below it.
    Tree { entry: OwnedFd, is_directory: bool },
    /// A symbolic link with its target, which is denied or not at its own path.
    Link(OsString),
}

/// Calls `each` for what may be read below a directory that has denied paths below it.
pub(super) fn all_except(
    directory: &Path,
    denied: &Denied,
    each: &mut dyn FnMut(Found) -> Result<(), StepError>,
) -> Result<(), StepError> {
    let opened = open_directory(rustix::fs::CWD, directory.as_os_str()).step("read rules")?;
    walk(&opened, directory, denied, each)
}

fn walk(
    directory: &OwnedFd,
    path: &Path,
    denied: &Denied,
    each: &mut dyn FnMut(Found) -> Result<(), StepError>,
) -> Result<(), StepError> {
    for entry in Dir::read_from(directory).step("read rules")? {
        let entry = entry.step("read rules")?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        match denied.below.get(name) {
            Some(node) if node.is_end => {}
            Some(node) if entry.file_type() != FileType::Symlink => {
                // If it is not a directory, it has no entries to allow; if this user cannot list it, neither can the
                // command.
                if let Ok(below) = open_directory(directory, name) {
                    walk(&below, &path.join(name), node, each)?;
                }
            }
            _ => {
                // Gone since it was listed, or closed to this user and so to the command.
                let Ok(kind) = open_entry(directory, name, entry.file_type()) else { continue };
                each(Found { path: path.join(name), kind })?;
            }
        }
    }
    Ok(())
}

fn open_directory(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn open_entry(parent: &OwnedFd, name: &OsStr, kind: FileType) -> rustix::io::Result<FoundKind> {
    if kind == FileType::Symlink {
        return link_of(parent, name);
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let kind = match kind {
        // Some file systems do not tell in the listing.
        FileType::Unknown => FileType::from_raw_mode(rustix::fs::fstat(&entry)?.st_mode),
        known => known,
    };
    Ok(match kind {
        FileType::Symlink => return link_of(parent, name),
        kind => FoundKind::Tree { entry, is_directory: kind.is_dir() },
    })
}

fn link_of(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<FoundKind> {
    target_of(parent, name).map(FoundKind::Link).ok_or(rustix::io::Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_and_what_is_above_it_is_not_granted() {
        let base = crate::test_directory::directory("reads");
        std::fs::create_dir_all(base.join("secret/deep")).unwrap();
        std::fs::write(base.join("plain"), "").unwrap();
        std::os::unix::fs::symlink("secret", base.join("link")).unwrap();
        let (mut granted, mut links) = (Vec::new(), Vec::new());
        let secret = base.join("secret");
        let denied = Denied::of([secret.as_path()]);
        all_except(Path::new("/"), &denied, &mut |found| {
            match found.kind {
                FoundKind::Tree { .. } => granted.push(found.path),
                FoundKind::Link(_) => links.push(found.path),
            }
            Ok(())
        })
        .unwrap();
        assert!(granted.contains(&base.join("plain")) && granted.contains(&"/etc".into()));
        for withheld in [base.join("secret"), base.clone(), "/".into(), base.join("link")] {
            assert!(!granted.contains(&withheld), "{}", withheld.display());
        }
        assert!(links.contains(&base.join("link")));
    }

    #[test]
    fn a_path_is_hidden_or_has_denied_paths_below_it() {
        let denied = Denied::of(["/home/u/.ssh", "/etc/shadow"].map(Path::new));
        let is_hidden = |path: &str| denied.hides(Path::new(path), Path::new("/"));
        for hidden in ["/home/u/.ssh", "/home/u/.ssh/id", "/etc/shadow"] {
            assert!(is_hidden(hidden), "{hidden}");
        }
        for above in ["/", "/home", "/home/u", "/etc"] {
            assert!(!is_hidden(above) && denied.below(Path::new(above)).is_some(), "{above}");
        }
        for apart in ["/usr", "/home/u/.sshd", "/home/v/.ssh"] {
            assert!(!is_hidden(apart) && denied.below(Path::new(apart)).is_none(), "{apart}");
        }
    }

    #[test]
    fn what_is_named_below_a_denied_path_is_meant_and_nothing_else() {
        let denied = Denied::of(["/tmp", "/tmp/build/secret", "/home/u/.ssh"].map(Path::new));
        let hides = |place: &str, named: &str| denied.hides(Path::new(place), Path::new(named));
        assert!(!hides("/tmp/build", "/tmp/build") && !hides("/tmp/real", "/tmp/link"));
        for (place, named) in [
            ("/tmp", "/tmp"),
            ("/tmp", "/tmp/link"),
            ("/home/u/.ssh", "/tmp/link"),
            ("/home/u/.ssh/id", "/tmp/link"),
            ("/tmp/build", "/srv/link"),
            ("/tmp/build/secret", "/tmp/build"),
        ] {
            assert!(hides(place, named), "{named} leads to {place}");
        }
        assert!(denied.below(Path::new("/tmp/build")).is_some());
    }
}
