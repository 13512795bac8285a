//! Placeholders for files of a scope that must not appear while a session works there: a mount needs a place, so the
//! name is taken by something harmless.
//!
//! Other programs of the user see a placeholder too. It is an empty directory where that is possible, which git ignores,
//! and it is removed with the last session of the scope; a gateway leaves it for a moment longer, because sessions
//! often follow one another ([`Sweeps`]). Those of a scope are recorded together in ringfence's own directory before
//! they are made, so that those of a killed process are removed later. What a user has put into one meanwhile stays, and
//! so does what has taken its place.

mod record;
mod sweeps;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat};

use self::record::{Entry, Identity, record_name};
pub use self::sweeps::LingeringPlaceholders;
pub(crate) use self::sweeps::Sweeps;
use crate::link_walk::{Walk, walk};
use crate::session_directory::{make_private, scopes_in_use};

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

/// A record longer than this is written anew instead of being added to. It has grown because placeholders were removed
/// from outside and made again.
const MAX_RECORD_BYTES: usize = 64 * 1024;

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

    /// The record of a scope, named after its first directory.
    pub(crate) fn of(&self, scope: &Path) -> ScopeRecord<'_> {
        let file = self.directory.join(record_name(scope));
        let text = fs::read(&file).unwrap_or_default();
        ScopeRecord { entries: record::parse(&text), bytes: text.len(), file, lock: self }
    }

    fn sweep(&self, sessions: &Path) {
        let mut names = fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|e| e.file_name());
        let records: Vec<PathBuf> =
            names.by_ref().filter(|name| name != LOCK).map(|name| self.directory.join(name)).collect();
        if records.is_empty() {
            return;
        }
        let in_use = scopes_in_use(sessions);
        for file in records {
            let entries = fs::read(&file).map(|text| record::parse(&text)).unwrap_or_default();
            let is_needed = |path: &Path| in_use.iter().any(|scope| path.starts_with(scope));
            let (needed, over): (BTreeMap<_, _>, _) =
                entries.into_iter().partition(|(path, _)| is_needed(path));
            remove_all(&over);
            let _ = match (needed.is_empty(), over.is_empty()) {
                (true, _) => fs::remove_file(&file),
                (false, true) => Ok(()),
                (false, false) => replace(&file, &record::text(&needed)),
            };
        }
    }
}

/// Which placeholders one scope has.
pub(crate) struct ScopeRecord<'l> {
    file: PathBuf,
    bytes: usize,
    entries: BTreeMap<PathBuf, Entry>,
    #[allow(dead_code, reason = "records change under the lock alone")]
    lock: &'l Records,
}

impl ScopeRecord<'_> {
    /// Whether what a path leads to is a placeholder that was made before.
    pub(crate) fn is_placeholder(&self, path: &Path) -> bool {
        let made = self.entries.get(path).and_then(|entry| entry.identity);
        made.is_some_and(|made| {
            let mut parents = Parents::default();
            parents.stat(path).is_some_and(|stat| Identity::of(&stat) == made)
        })
    }

    /// Makes placeholders for what was missing under this lock. The session that needs them has noted its scope before,
    /// so none is removed until it ends.
    pub(crate) fn make(&mut self, missing: &[Missing]) -> io::Result<()> {
        let mut parents = Parents::default();
        let is_free =
            |path: &Path, parents: &mut Parents| parents.of(path).is_some() && parents.stat(path).is_none();
        // Several files may ask for the same name.
        let to_make: BTreeMap<PathBuf, Entry> = missing
            .iter()
            .filter(|missing| is_free(&missing.path, &mut parents))
            .map(|missing| (missing.path.clone(), Entry::intended(missing.kind)))
            .collect();
        if to_make.is_empty() {
            return Ok(());
        }
        // Whatever happens next, the record says what may have to be removed.
        self.note(to_make.clone())?;
        let mut made = BTreeMap::new();
        for (path, mut entry) in to_make {
            if make_one(&path, entry.kind, &mut parents)? {
                entry.identity = parents.stat(&path).map(|stat| Identity::of(&stat));
                made.insert(path, entry);
            } else {
                self.entries.remove(&path);
                // Written anew without it.
                self.bytes = MAX_RECORD_BYTES;
            }
        }
        self.note(made)
    }

    /// Adds entries to the record in one write, so that a process that is killed leaves all of them or none.
    fn note(&mut self, entries: BTreeMap<PathBuf, Entry>) -> io::Result<()> {
        let text = record::text(&entries);
        self.entries.extend(entries);
        if self.bytes + text.len() > MAX_RECORD_BYTES {
            let text = record::text(&self.entries);
            self.bytes = text.len();
            return replace(&self.file, &text);
        }
        self.bytes += text.len();
        File::options().create(true).append(true).open(&self.file)?.write_all(&text)
    }
}

/// Writes a record anew. A process that is killed leaves the one before.
fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, file)
}

/// The directory that was looked at last, held: placeholders mostly lie in the same one.
#[derive(Default)]
struct Parents(Option<(PathBuf, Option<OwnedFd>)>);

impl Parents {
    /// Holds the directory that a path without links lies in.
    fn of(&mut self, path: &Path) -> Option<&OwnedFd> {
        let parent = path.parent()?;
        if self.0.as_ref().is_none_or(|(held, _)| held != parent) {
            self.0 = Some((parent.to_owned(), open_without_links(parent)));
        }
        self.0.as_ref()?.1.as_ref()
    }

    fn stat(&mut self, path: &Path) -> Option<Stat> {
        rustix::fs::statat(self.of(path)?, path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}

/// Holds a directory that has no links on its path.
fn open_without_links(path: &Path) -> Option<OwnedFd> {
    match walk(path, &mut |_, _| false) {
        Walk::Found(held) if held.is_directory() => Some(held.into_descriptor()),
        _ => None,
    }
}

/// Returns false if another program has taken the name meanwhile, or moved its directory.
fn make_one(path: &Path, kind: PlaceholderKind, parents: &mut Parents) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (parents.of(path), path.file_name()) else { return Ok(false) };
    let made = match kind.content() {
        None => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)).map_err(io::Error::from),
        Some(content) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))
                .map_err(io::Error::from)
                .and_then(|file| File::from(file).write_all(content))
        }
    };
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the placeholders that are still what was made.
fn remove_all(entries: &BTreeMap<PathBuf, Entry>) {
    let mut parents = Parents::default();
    // What lies in others goes first.
    for (path, entry) in entries.iter().rev() {
        remove(path, *entry, &mut parents);
    }
}

fn remove(path: &Path, entry: Entry, parents: &mut Parents) {
    let Some(found) = parents.stat(path) else { return };
    // A process that was killed between making it and saying so has left no identity.
    if entry.identity.is_some_and(|made| made != Identity::of(&found)) {
        return;
    }
    let (Some(parent), Some(name)) = (parents.of(path), path.file_name()) else { return };
    let flags = match entry.kind.content() {
        // Fails if there is anything in it.
        None => AtFlags::REMOVEDIR,
        Some(content) if has_content(parent, name, content) => AtFlags::empty(),
        Some(_) => return,
    };
    let _ = rustix::fs::unlinkat(parent, name, flags);
}

fn has_content(parent: &OwnedFd, name: &OsStr, content: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return false };
    let mut found = Vec::new();
    let read = File::from(file).take(content.len() as u64 + 1).read_to_end(&mut found);
    read.is_ok() && found == content
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

        fn make(&self) {
            let records = Records::lock(self.own.path()).unwrap();
            records.of(&self.scope).make(&self.missing()).unwrap();
        }

        fn records(&self) -> usize {
            let left = fs::read_dir(directory_in(self.own.path())).unwrap();
            left.filter(|entry| entry.as_ref().unwrap().file_name() != LOCK).count()
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.scope).unwrap().count()
        }
    }

    #[test]
    fn placeholders_stay_for_the_last_session_of_the_scope() {
        let place = Place::new("placeholders");
        let (first, second) = (place.session(), place.session());
        place.make();
        assert_eq!(place.names(), 3);
        drop(first);
        assert_eq!(place.names(), 3, "the second session works there");
        drop(second);
        assert_eq!(place.names(), 0);
        assert_eq!(place.records(), 0);
    }

    #[test]
    fn placeholders_of_a_killed_process_are_removed_when_ringfence_starts() {
        let place = Place::new("placeholders-killed");
        let session = place.session();
        place.make();
        session.forget_as_if_killed();
        OwnDirectory::open(place.own.path().parent(), None).unwrap();
        assert_eq!(place.names(), 0);
    }

    #[test]
    fn what_a_user_made_of_one_stays() {
        let place = Place::new("placeholders-used");
        let session = place.session();
        place.make();
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
        place.make();
        drop(session);
        assert!(missing[0].path.is_dir() && missing[1].path.is_symlink() && !missing[2].path.exists());
    }
    #[test]
    fn a_scope_has_one_record_that_says_what_was_made() {
        let place = Place::new("placeholders-record");
        let session = place.session();
        place.make();
        assert_eq!(place.records(), 1);
        let records = Records::lock(place.own.path()).unwrap();
        assert!(place.missing().iter().all(|missing| records.of(&place.scope).is_placeholder(&missing.path)));
        let replaced = place.scope.join("Directory");
        fs::rename(&replaced, place.scope.join("moved")).unwrap();
        fs::create_dir(&replaced).unwrap();
        assert!(!records.of(&place.scope).is_placeholder(&replaced));
        drop(records);
        drop(session);
        assert!(replaced.is_dir(), "an empty directory of the user's");
        assert_eq!((place.names(), place.records()), (2, 0));
    }

    #[test]
    fn a_name_that_is_asked_for_twice_is_made_once() {
        let place = Place::new("placeholders-twice");
        let session = place.session();
        let records = Records::lock(place.own.path()).unwrap();
        records.of(&place.scope).make(&[place.missing(), place.missing()].concat()).unwrap();
        assert_eq!(place.names(), 3);
        drop(records);
        drop(session);
        assert_eq!((place.names(), place.records()), (0, 0));
    }

    #[test]
    fn what_takes_the_name_first_is_not_removed_later() {
        let place = Place::new("placeholders-taken");
        let session = place.session();
        let missing = &place.missing()[0];
        fs::create_dir(&missing.path).unwrap();
        assert!(!make_one(&missing.path, missing.kind, &mut Parents::default()).unwrap());
        place.make();
        drop(session);
        assert!(missing.path.is_dir(), "an empty directory of the user's");
        assert_eq!(place.names(), 1);
    }

    #[test]
    fn a_process_that_is_killed_while_it_makes_them_leaves_nothing() {
        let place = Place::new("placeholders-killed-early");
        let session = place.session();
        let missing = place.missing();
        let records = Records::lock(place.own.path()).unwrap();
        let intended = |missing: &Missing| (missing.path.clone(), Entry::intended(missing.kind));
        records.of(&place.scope).note(missing.iter().map(intended).collect()).unwrap();
        assert!(make_one(&missing[0].path, missing[0].kind, &mut Parents::default()).unwrap());
        drop(records);
        session.forget_as_if_killed();
        OwnDirectory::open(place.own.path().parent(), None).unwrap();
        assert_eq!((place.names(), place.records()), (0, 0));
    }

    #[test]
    fn those_of_an_earlier_release_are_removed_too() {
        let place = Place::new("placeholders-earlier");
        let old = place.scope.join(".vscode");
        fs::create_dir(&old).unwrap();
        let records = directory_in(place.own.path());
        make_private(&records).unwrap();
        fs::write(records.join("0123"), [b"d", old.as_os_str().as_encoded_bytes()].concat()).unwrap();
        OwnDirectory::open(place.own.path().parent(), None).unwrap();
        assert_eq!((place.names(), place.records()), (0, 0));
    }

    #[test]
    fn a_record_does_not_grow_without_end() {
        let place = Place::new("placeholders-growth");
        let session = place.session();
        let bytes = || {
            let entries = fs::read_dir(directory_in(place.own.path())).unwrap();
            entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>()
        };
        let mut before = 0;
        loop {
            place.make();
            let now = bytes();
            assert!(now <= MAX_RECORD_BYTES as u64, "{now}");
            if now < before {
                break;
            }
            before = now;
            fs::remove_dir(place.scope.join("Directory")).unwrap();
        }
        drop(session);
        assert_eq!((place.names(), place.records()), (0, 0));
    }

    #[test]
    fn they_wait_for_a_session_that_follows_until_their_gateway_ends() {
        let place = Place::new("placeholders-linger");
        let lingering = place.own.keep_placeholders_a_moment();
        let first = place.session();
        place.make();
        let inode = |name: &str| Identity::of(&rustix::fs::stat(place.scope.join(name)).unwrap());
        let made = inode("Directory");
        drop(first);
        assert_eq!(place.names(), 3);
        let second = place.session();
        place.make();
        assert!(inode("Directory") == made, "it was made once");
        drop(lingering);
        assert_eq!(place.names(), 3, "the second session works there");
        drop(second);
        assert_eq!((place.names(), place.records()), (0, 0), "the gateway is over");
    }

    #[test]
    fn a_gateway_that_ends_leaves_none_behind() {
        let place = Place::new("placeholders-linger-end");
        let lingering = place.own.keep_placeholders_a_moment();
        let session = place.session();
        place.make();
        drop(session);
        drop(lingering);
        assert_eq!((place.names(), place.records()), (0, 0));
    }

    #[test]
    fn without_a_session_that_follows_they_are_removed_while_the_gateway_runs() {
        let place = Place::new("placeholders-linger-over");
        let _lingering = place.own.keep_placeholders_a_moment();
        let session = place.session();
        place.make();
        drop(session);
        let began = std::time::Instant::now();
        while place.names() > 0 || place.records() > 0 {
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "they stay");
            std::thread::yield_now();
        }
    }
}
