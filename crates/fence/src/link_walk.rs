//! Follows the symbolic links of a path one by one, as the kernel would, from descriptor to descriptor: a session that
//! swaps a directory for a link meanwhile changes nothing about what was found.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

/// The kernel follows as many links in one path.
const MAX_LINKS: usize = 40;

/// Opens a file only to hold it. This needs no right on the file and wakes no device or pipe.
#[cfg(target_os = "linux")]
const HOLD: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const HOLD: OFlags = OFlags::NONBLOCK;

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The path without links.
    Found(PathBuf),
    /// It does not exist. The existing part is without links, the rest as written.
    Missing(PathBuf),
    /// There are too many links, or `link` refused to follow one.
    Refused,
}

/// The same, with what was found held.
pub(crate) enum Walk {
    Found(Held),
    Missing(PathBuf),
    Refused,
}

/// A file or directory that was found, whatever becomes of its name.
#[derive(Debug)]
pub(crate) struct Held {
    path: PathBuf,
    descriptor: OwnedFd,
    stat: Stat,
}

impl Held {
    /// Follows all links of a path.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        match walk(&std::path::absolute(path).ok()?, &mut |_, _| true) {
            Walk::Found(held) => Some(held),
            Walk::Missing(_) | Walk::Refused => None,
        }
    }

    /// What an absolute path leads to if it has no links and no `..`, as far as the system can tell.
    pub(crate) fn without_links(path: &Path) -> Option<Self> {
        let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
        is_plain.then(|| hold_without_links(path).ok().flatten()).flatten()
    }

    /// The path without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A descriptor with which neither content nor entries can be read.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.descriptor
    }

    /// Device and inode.
    #[cfg(target_os = "linux")]
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// Whether this user may execute the file.
    pub(crate) fn is_executable(&self) -> bool {
        self.is_file() && rustix::fs::access(self.way_back(), Access::EXEC_OK).is_ok()
    }

    /// Reads the beginning of a file.
    pub(crate) fn read_head(&self, head: &mut [u8]) -> Option<usize> {
        if !self.is_file() {
            return None;
        }
        File::open(self.way_back()).and_then(|mut file| file.read(head)).ok()
    }

    /// What lies in a directory, without directories: the names, and what they are if the file system says so.
    pub(crate) fn files(&self) -> Vec<(OsString, FileType)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.descriptor, ".", flags, Mode::empty());
        let entries = opened.and_then(|opened| Dir::read_from(&opened)).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_type() != FileType::Directory);
        files
            .map(|file| (OsStr::from_bytes(file.file_name().to_bytes()).to_owned(), file.file_type()))
            .collect()
    }

    /// Reads the beginning of a program in this directory. Returns `None` for what is no plain file, or cannot be executed
    /// or read by this user.
    pub(crate) fn read_program(&self, name: &OsStr, head: &mut [u8]) -> Option<usize> {
        // A pipe must not block this process.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&descriptor).ok()?;
        if stat.st_mode & 0o111 == 0 {
            return None;
        }
        let file = Self { path: self.path.join(name), descriptor, stat };
        file.is_executable().then(|| rustix::io::read(&file.descriptor, head).ok()).flatten()
    }

    /// A path that leads to what is held and to nothing else.
    fn way_back(&self) -> PathBuf {
        if cfg!(target_os = "linux") {
            PathBuf::from(format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()))
        } else {
            self.path.clone()
        }
    }
}

/// Follows an absolute path. Calls `link` with the place and the target of each link on the way; if it returns false,
/// the link is not followed.
pub(crate) fn follow(path: &Path, link: &mut dyn FnMut(&Path, &OsStr) -> bool) -> Destination {
    match walk(path, link) {
        Walk::Found(held) => Destination::Found(held.path),
        Walk::Missing(path) => Destination::Missing(path),
        Walk::Refused => Destination::Refused,
    }
}

/// Like [`follow`], and holds what was found.
pub(crate) fn walk(path: &Path, link: &mut dyn FnMut(&Path, &OsStr) -> bool) -> Walk {
    // Most paths have no links, which the kernel can tell in one call; also that one ends before the first of them.
    let has_parents = path.components().any(|component| component == Component::ParentDir);
    if !has_parents {
        match hold_without_links(path) {
            Ok(Some(held)) => return Walk::Found(held),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Walk::Missing(path.components().collect());
            }
            Ok(None) | Err(_) => {}
        }
    }
    let top = || hold(CWD, OsStr::new("/"));
    let Ok(mut held) = top() else { return Walk::Refused };
    // The directories above the one that is held.
    let mut above: Vec<OwnedFd> = Vec::new();
    let mut place = PathBuf::from("/");
    let mut rest = names(path);
    let mut followed = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            place.pop();
            held = above.pop().unwrap_or(held);
            continue;
        }
        place.push(&name);
        let missing = |mut place: PathBuf, rest: VecDeque<OsString>| {
            place.extend(rest);
            Walk::Missing(place)
        };
        let Ok(stat) = rustix::fs::statat(&held, &name, AtFlags::SYMLINK_NOFOLLOW) else {
            return missing(place, rest);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            match hold(&held, &name) {
                Ok(next) => above.push(std::mem::replace(&mut held, next)),
                // Swapped since.
                Err(_) => return missing(place, rest),
            }
            continue;
        }
        let Some(target) = target_of(&held, &name) else { return Walk::Refused };
        followed += 1;
        if followed > MAX_LINKS || !link(&place, &target) {
            return Walk::Refused;
        }
        place.pop();
        if Path::new(&target).is_absolute() {
            place = PathBuf::from("/");
            above.clear();
            let Ok(top) = top() else { return Walk::Refused };
            held = top;
        }
        for name in names(Path::new(&target)).into_iter().rev() {
            rest.push_front(name);
        }
    }
    match rustix::fs::fstat(&held) {
        Ok(stat) => Walk::Found(Held { path: place, descriptor: held, stat }),
        Err(_) => Walk::Refused,
    }
}

/// Holds an entry of a directory. Fails if it is a link, as far as the system can tell.
fn hold(directory: impl std::os::fd::AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name, HOLD | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Holds what a path leads to if there is no link in it. Returns `None` if the last name is one.
fn hold_without_links(path: &Path) -> io::Result<Option<Held>> {
    let descriptor = open_without_links(path, HOLD | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    let stat = rustix::fs::fstat(&descriptor)?;
    let held = Held { path: path.components().collect(), descriptor, stat };
    Ok((held.kind() != FileType::Symlink).then_some(held))
}

/// Opens an absolute path that has no links. The kernel refuses it if there is one on the way.
#[cfg(target_os = "linux")]
pub(crate) fn open_without_links(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = rustix::fs::ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve) {
        // A filter around this process may refuse what it does not know.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => Err(io::ErrorKind::Unsupported.into()),
        opened => Ok(opened?),
    }
}

/// Other systems cannot tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open_without_links(_: &Path, _: OFlags) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The target of a link in a directory, as it is written.
pub(crate) fn target_of(directory: impl std::os::fd::AsFd, name: &OsStr) -> Option<OsString> {
    let target = rustix::fs::readlinkat(directory, name, Vec::new()).ok()?;
    Some(OsString::from_vec(target.into_bytes()))
}

/// The names of a path, with `..` as a name.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_told() {
        let base = crate::test_directory::directory("link-walk").canonicalize().unwrap();
        std::fs::create_dir_all(base.join("real/deep")).unwrap();
        symlink("real", base.join("one")).unwrap();
        symlink(base.join("one/deep/../deep"), base.join("two")).unwrap();
        let mut links = Vec::new();
        let mut note = |place: &Path, _: &OsStr| {
            links.push(place.to_owned());
            true
        };
        let found = follow(&base.join("two/file"), &mut note);
        assert_eq!(found, Destination::Missing(base.join("real/deep/file")));
        assert_eq!(links, [base.join("two"), base.join("one")]);
        let found = follow(&base.join("one/deep"), &mut |_, _| true);
        assert_eq!(found, Destination::Found(base.join("real/deep")));
        assert_eq!(follow(&base.join("one/deep"), &mut |_, _| false), Destination::Refused);
        assert_eq!(
            follow(&base.join("real/deep/.."), &mut |_, _| false),
            Destination::Found(base.join("real"))
        );
        symlink("loop", base.join("loop")).unwrap();
        assert_eq!(follow(&base.join("loop"), &mut |_, _| true), Destination::Refused);
        std::fs::write(base.join("real/file"), "").unwrap();
        let through_a_file = follow(&base.join("one/file/deeper"), &mut |_, _| true);
        assert_eq!(through_a_file, Destination::Missing(base.join("real/file/deeper")));
    }

    #[test]
    fn a_missing_path_is_without_links_as_far_as_it_exists() {
        let base = crate::test_directory::directory("link-walk-missing").canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        symlink("real", base.join("linked")).unwrap();
        symlink("nowhere", base.join("broken")).unwrap();
        let missing = |path: &str| follow(&base.join(path), &mut |_, _| true);
        for (path, end) in [
            ("real/no/file", "real/no/file"),
            ("no/linked", "no/linked"),
            ("linked/no/file", "real/no/file"),
            ("broken/file", "nowhere/file"),
        ] {
            assert_eq!(missing(path), Destination::Missing(base.join(end)), "{path}");
        }
    }

    #[test]
    fn what_is_held_stays_the_same_when_its_name_does_not() {
        let base = crate::test_directory::directory("link-walk-held");
        std::fs::create_dir(base.join("tool")).unwrap();
        std::fs::write(base.join("tool/server"), "#!/bin/sh").unwrap();
        symlink("tool", base.join("linked")).unwrap();
        let held = Held::find(&base.join("linked/server")).unwrap();
        assert_eq!(held.path(), base.join("tool/server"));
        std::fs::rename(base.join("tool/server"), base.join("moved")).unwrap();
        symlink("/etc/passwd", base.join("tool/server")).unwrap();
        let mut beginning = [0; 32];
        assert_eq!(held.read_head(&mut beginning), Some(9));
        assert!(beginning.starts_with(b"#!/bin/sh") && !held.is_executable());
    }
}
