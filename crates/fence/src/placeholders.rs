//! Placeholders for files of a scope that must not appear while a session works there: a mount needs a place, so the
//! name is taken by something harmless.
//!
//! Other programs of the user see a placeholder too. It is an empty directory where that is possible, which git ignores,
//! and it is removed with the last session of the scope. Each is recorded in ringfence's own directory before it is
//! made, so that one whose process was killed is removed later. What a user has put into one meanwhile stays.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::link_walk::{Walk, walk};
use crate::session_directory::{hexadecimal, make_private, scopes_in_use};

/// What stands in for a missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceholderKind {
    Directory,
    EmptyFile,
    /// A file that tells git that a repository's directory is its own common directory, as it is without the file.
    CommonDirectory,
}

impl PlaceholderKind {
    const ALL: [Self; 3] = [Self::Directory, Self::EmptyFile, Self::CommonDirectory];

    fn letter(self) -> u8 {
        match self {
            Self::Directory => b'd',
            Self::EmptyFile => b'e',
            Self::CommonDirectory => b'c',
        }
    }

    /// The content of a file.
    fn content(self) -> Option<&'static [u8]> {
        match self {
            Self::Directory => None,
            Self::EmptyFile => Some(b""),
            Self::CommonDirectory => Some(b".\n"),
        }
    }
}

/// A file that is missing and must not appear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) path: PathBuf,
    pub(crate) kind: PlaceholderKind,
}

/// Removes the placeholders that no session needs any more.
pub(crate) fn sweep(own: &Path) {
    if directory_in(own).is_dir()
        && let Ok(records) = Records::lock(own)
    {
        records.sweep(&own.join("sessions"));
    }
}

fn directory_in(own: &Path) -> PathBuf {
    own.join("placeholders")
}

const LOCK: &str = "lock";

/// The records of all placeholders, locked against the sessions that end meanwhile, also in other processes.
pub(crate) struct Records {
    directory: PathBuf,
    #[allow(dead_code, reason = "held, not used")]
    lock: File,
}

impl Records {
    /// `own` is ringfence's own directory.
    pub(crate) fn lock(own: &Path) -> io::Result<Self> {
        let directory = directory_in(own);
        make_private(&directory)?;
        let lock = File::options().create(true).truncate(false).write(true).open(directory.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(Self { directory, lock })
    }

    /// Makes placeholders for what was missing under this lock. The session that needs them has noted its scope before,
    /// so none is removed until it ends.
    pub(crate) fn make(&self, missing: &[Missing]) -> io::Result<()> {
        missing.iter().try_for_each(|missing| self.make_one(missing))
    }

    fn make_one(&self, missing: &Missing) -> io::Result<()> {
        let Some(name) = missing.path.file_name() else { return Ok(()) };
        let Ok(parent) = open_parent(&missing.path) else { return Ok(()) };
        if rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        fs::write(self.directory.join(record_name(&missing.path)), record(missing))?;
        match missing.kind.content() {
            None => rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?,
            Some(content) => {
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
                File::from(file).write_all(content)?;
            }
        }
        Ok(())
    }

    fn sweep(&self, sessions: &Path) {
        let in_use = scopes_in_use(sessions);
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name() == LOCK {
                continue;
            }
            let read = fs::read(entry.path()).ok().and_then(|text| parse(&text));
            let is_needed = |missing: &Missing| in_use.iter().any(|scope| missing.path.starts_with(scope));
            if read.as_ref().is_some_and(is_needed) {
                continue;
            }
            if let Some(missing) = read {
                remove(&missing);
            }
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes a placeholder that is still what was made.
fn remove(missing: &Missing) {
    let (Ok(parent), Some(name)) = (open_parent(&missing.path), missing.path.file_name()) else { return };
    let kind = match missing.kind.content() {
        // Fails if there is anything in it.
        None => AtFlags::REMOVEDIR,
        Some(content) if has_content(&parent, name, content) => AtFlags::empty(),
        Some(_) => return,
    };
    let _ = rustix::fs::unlinkat(&parent, name, kind);
}

fn has_content(parent: &OwnedFd, name: &OsStr, content: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return false };
    let mut found = Vec::new();
    let read = File::from(file).take(content.len() as u64 + 1).read_to_end(&mut found);
    read.is_ok() && found == content
}

/// Holds the directory of a path that has no links.
fn open_parent(path: &Path) -> io::Result<OwnedFd> {
    let parent = path.parent().ok_or(io::ErrorKind::NotFound)?;
    match walk(parent, &mut |_, _| false) {
        Walk::Found(held) if held.is_directory() => Ok(held.into_descriptor()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn record_name(path: &Path) -> String {
    hexadecimal(&Sha256::digest(path.as_os_str().as_bytes())[..12])
}

fn record(missing: &Missing) -> Vec<u8> {
    [&[missing.kind.letter()], missing.path.as_os_str().as_bytes()].concat()
}

fn parse(record: &[u8]) -> Option<Missing> {
    let (letter, path) = record.split_first()?;
    let kind = PlaceholderKind::ALL.into_iter().find(|kind| kind.letter() == *letter)?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    path.is_absolute().then_some(Missing { path, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_directory::{OwnDirectory, SessionDirectory};
    use crate::test_directory;
    use std::os::unix::fs::symlink;

    struct Place {
        own: OwnDirectory,
        scope: PathBuf,
    }

    impl Place {
        fn new(name: &str) -> Self {
            let base = test_directory::directory(name).canonicalize().unwrap();
            let own = OwnDirectory::open(Some(&base.join("cache")), None).unwrap();
            let scope = base.join("scope");
            fs::create_dir_all(&scope).unwrap();
            Self { own, scope }
        }

        fn session(&self) -> SessionDirectory {
            let session = SessionDirectory::create(&self.own).unwrap();
            session.note_scope(std::slice::from_ref(&self.scope)).unwrap();
            session
        }

        fn missing(&self) -> Vec<Missing> {
            PlaceholderKind::ALL
                .into_iter()
                .map(|kind| Missing { path: self.scope.join(format!("{kind:?}")), kind })
                .collect()
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.scope).unwrap().count()
        }
    }

    #[test]
    fn placeholders_stay_for_the_last_session_of_the_scope() {
        let place = Place::new("placeholders");
        let (first, second) = (place.session(), place.session());
        Records::lock(place.own.path()).unwrap().make(&place.missing()).unwrap();
        assert_eq!(place.names(), 3);
        drop(first);
        assert_eq!(place.names(), 3, "the second session works there");
        drop(second);
        assert_eq!(place.names(), 0);
        assert_eq!(fs::read_dir(directory_in(place.own.path())).unwrap().count(), 1, "the lock alone");
    }

    #[test]
    fn placeholders_of_a_killed_process_are_removed_when_ringfence_starts() {
        let place = Place::new("placeholders-killed");
        let session = place.session();
        Records::lock(place.own.path()).unwrap().make(&place.missing()).unwrap();
        session.forget_as_if_killed();
        OwnDirectory::open(place.own.path().parent(), None).unwrap();
        assert_eq!(place.names(), 0);
    }

    #[test]
    fn what_a_user_made_of_one_stays() {
        let place = Place::new("placeholders-used");
        let session = place.session();
        Records::lock(place.own.path()).unwrap().make(&place.missing()).unwrap();
        fs::write(place.scope.join("Directory/settings.json"), "{}").unwrap();
        fs::write(place.scope.join("EmptyFile"), "[core]").unwrap();
        fs::remove_file(place.scope.join("CommonDirectory")).unwrap();
        symlink("/etc/hostname", place.scope.join("CommonDirectory")).unwrap();
        drop(session);
        assert_eq!(place.names(), 3);
    }

    #[test]
    fn what_exists_is_neither_replaced_nor_removed() {
        let place = Place::new("placeholders-existing");
        let session = place.session();
        let missing = place.missing();
        fs::create_dir(&missing[0].path).unwrap();
        symlink("nowhere", &missing[1].path).unwrap();
        Records::lock(place.own.path()).unwrap().make(&missing).unwrap();
        drop(session);
        assert!(missing[0].path.is_dir() && missing[1].path.is_symlink() && !missing[2].path.exists());
    }
}
