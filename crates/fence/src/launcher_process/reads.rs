//! "Everything but these" for Landlock, which has no such rule: every entry of every directory above a denied
//! path is allowed, but for the denied one and what appears there later.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags};

use super::{InStep, StepError};

/// The denied paths as a tree of names.
#[derive(Default)]
struct Denied {
    /// This path itself is denied.
    is_end: bool,
    below: BTreeMap<OsString, Denied>,
}

impl Denied {
    fn add(&mut self, path: &std::path::Path) {
        let mut node = self;
        for component in path.components() {
            if let Component::Normal(name) = component {
                node = node.below.entry(name.to_owned()).or_default();
            }
        }
        node.is_end = true;
    }
}

/// An entry that may be read with all that is below it.
pub(super) struct Readable {
    pub(super) entry: OwnedFd,
    pub(super) is_directory: bool,
}

/// Calls `each` for what may be read.
pub(super) fn all_except(
    denied: &[PathBuf],
    each: &mut dyn FnMut(Readable) -> Result<(), StepError>,
) -> Result<(), StepError> {
    let mut tree = Denied::default();
    for path in denied {
        tree.add(path);
    }
    let root = open_directory(CWD, OsStr::new("/")).step("read rules")?;
    walk(&root, &tree, each)
}

fn walk(
    directory: &OwnedFd,
    denied: &Denied,
    each: &mut dyn FnMut(Readable) -> Result<(), StepError>,
) -> Result<(), StepError> {
    for entry in Dir::read_from(directory).step("read rules")? {
        let entry = entry.step("read rules")?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        // The target of a link is allowed or denied at its own path.
        if name == "." || name == ".." || entry.file_type() == FileType::Symlink {
            continue;
        }
        match denied.below.get(name) {
            Some(node) if node.is_end => {}
            Some(node) => {
                // If it is not a directory, it has no entries to allow; if this user cannot list it, neither can the
                // command.
                if let Ok(below) = open_directory(directory, name) {
                    walk(&below, node, each)?;
                }
            }
            None => {
                // Gone since it was listed, or closed to this user and so to the command.
                let Ok(found) = open_entry(directory, name, entry.file_type()) else { continue };
                each(found)?;
            }
        }
    }
    Ok(())
}

fn open_directory(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn open_entry(parent: &OwnedFd, name: &OsStr, kind: FileType) -> rustix::io::Result<Readable> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let kind = match kind {
        // Some file systems do not tell in the listing.
        FileType::Unknown => FileType::from_raw_mode(rustix::fs::fstat(&entry)?.st_mode),
        known => known,
    };
    Ok(Readable { entry, is_directory: kind.is_dir() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_and_what_is_above_it_is_not_granted() {
        let base = crate::test_directory::directory("reads");
        std::fs::create_dir_all(base.join("secret/deep")).unwrap();
        std::fs::write(base.join("plain"), "").unwrap();
        let mut granted = Vec::new();
        all_except(&[base.join("secret")], &mut |readable| {
            let path = std::fs::read_link(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&readable.entry)
            ));
            granted.push(path.unwrap());
            Ok(())
        })
        .unwrap();
        assert!(granted.contains(&base.join("plain")) && granted.contains(&"/etc".into()));
        for withheld in [base.join("secret"), base.clone(), "/".into()] {
            assert!(!granted.contains(&withheld), "{}", withheld.display());
        }
    }
}
