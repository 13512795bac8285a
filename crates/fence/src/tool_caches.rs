//! Caches of package managers, kept for the next session of the same workspace and the same principal. Every workspace
//! has its own, so no project runs what another project's tools have left.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use crate::paths::VettedDirectory;
use crate::private_tree::PrivateTree;
use crate::scope_scan::bytes_below;
use crate::session_directory::{OwnDirectory, hexadecimal, make_private, remove_tree};

/// The directories that commands write, one for each workspace and principal.
const CACHES: &str = "caches";
/// A note for each, out of the commands' reach: whose it is, when it was used last (the note's time), and a lock that is
/// shared by those who use it.
const NOTES: &str = "cache-notes";
/// Which lock files each was filled for from the user's own caches.
const FILLINGS: &str = "cache-fillings";
/// When the size of the caches was looked at last.
const TRIMMED: &str = "caches-trimmed";
const TRIM_INTERVAL: Duration = Duration::from_secs(600);
const MAX_NOTE: u64 = 64 * 1024;

/// The caches of one workspace in use. They are not removed as long as this lives.
#[derive(Debug)]
pub(crate) struct ToolCaches {
    directory: PathBuf,
    filling: PathBuf,
    #[allow(dead_code, reason = "held for its lock")]
    note: File,
}

impl ToolCaches {
    /// Opens the caches of a principal's workspace, or makes them.
    pub(crate) fn open(own: &OwnDirectory, scope: &Path, owner: &str, user: Option<u32>) -> io::Result<Self> {
        let name = name_of(scope, owner);
        let [caches, notes, fillings] = [CACHES, NOTES, FILLINGS].map(|name| own.path().join(name));
        for directory in [&caches, &notes, &fillings] {
            make_private(directory)?;
        }
        let note = lock_note(&notes.join(&name), FlockOperation::LockShared)?;
        write_note(&note, scope, owner)?;
        let directory = caches.join(&name);
        match rustix::fs::mkdir(&directory, rustix::fs::Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        PrivateTree::open(&directory, user)?;
        Ok(Self { directory, filling: fillings.join(&name), note })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the caches were not filled for lock files in this state before.
    pub(crate) fn is_new_filling(&self, state: &str) -> bool {
        std::fs::read_to_string(&self.filling).map_or(true, |noted| noted != state)
    }

    pub(crate) fn note_filling(&self, state: &str) -> io::Result<()> {
        std::fs::write(&self.filling, state)
    }
}

/// A readable name that differs for every workspace and principal.
fn name_of(scope: &Path, owner: &str) -> String {
    let name = scope.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let readable: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(40).collect();
    let mut digest = Sha256::new();
    digest.update(scope.as_os_str().as_bytes());
    digest.update([0]);
    digest.update(owner);
    format!("{readable}-{}", hexadecimal(&digest.finalize()[..12]))
}

fn lock_note(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    loop {
        let note = options.open(path)?;
        rustix::fs::flock(&note, operation)?;
        // It may have been removed with its caches before the lock was had.
        let here = rustix::fs::stat(path).map(|stat| stat.st_ino);
        if here == rustix::fs::fstat(&note).map(|stat| stat.st_ino) {
            return Ok(note);
        }
    }
}

fn write_note(mut note: &File, scope: &Path, owner: &str) -> io::Result<()> {
    if note.metadata()?.len() == 0 {
        note.write_all(&[owner.as_bytes(), b"\0", scope.as_os_str().as_bytes()].concat())?;
    }
    note.set_modified(SystemTime::now())
}

/// What is kept for one workspace.
#[derive(Clone, Debug)]
pub struct KeptCache {
    name: OsString,
    pub scope: PathBuf,
    /// The principal; empty for the user's own commands.
    pub owner: String,
    pub used: SystemTime,
    pub bytes: u64,
    /// Whether a session or a command uses it now.
    pub is_in_use: bool,
}

impl OwnDirectory {
    /// Everything that is kept, the least recently used first.
    pub fn kept_caches(&self) -> Vec<KeptCache> {
        let notes = std::fs::read_dir(self.path().join(NOTES)).into_iter().flatten().flatten();
        let mut kept: Vec<KeptCache> = notes.filter_map(|note| self.kept_cache(&note.file_name())).collect();
        kept.sort_by_key(|cache| cache.used);
        kept
    }

    fn kept_cache(&self, name: &OsStr) -> Option<KeptCache> {
        let mut note = File::open(self.path().join(NOTES).join(name)).ok()?;
        let is_in_use = rustix::fs::flock(&note, FlockOperation::NonBlockingLockExclusive).is_err();
        let mut text = Vec::new();
        Read::by_ref(&mut note).take(MAX_NOTE).read_to_end(&mut text).ok()?;
        let end = text.iter().position(|byte| *byte == 0)?;
        let scope = PathBuf::from(OsString::from_vec(text.split_off(end + 1)));
        text.pop();
        let directory = VettedDirectory::own(&self.path().join(CACHES).join(name));
        Some(KeptCache {
            name: name.to_owned(),
            scope,
            owner: String::from_utf8(text).ok()?,
            used: note.metadata().ok()?.modified().ok()?,
            bytes: directory.map_or(0, |directory| bytes_below(&directory)),
            is_in_use,
        })
    }

    /// Removes the caches of a workspace, unless a session uses them. Returns whether they are gone.
    pub fn remove_cache(&self, cache: &KeptCache) -> io::Result<bool> {
        let path = self.path().join(NOTES).join(&cache.name);
        let note = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            note => note?,
        };
        if rustix::fs::flock(&note, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        // A filling is removed first: what is filled for no lock file is filled again.
        match std::fs::remove_file(self.path().join(FILLINGS).join(&cache.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        remove_tree(&self.path().join(CACHES).join(&cache.name))?;
        std::fs::remove_file(&path)?;
        Ok(true)
    }

    /// Whether no process of this user has looked at the size of the caches for a while. Says so once.
    pub(crate) fn is_time_to_trim(&self) -> bool {
        let stamp = self.path().join(TRIMMED);
        let age = |metadata: std::fs::Metadata| metadata.modified().ok()?.elapsed().ok();
        let is_due = stamp.metadata().ok().and_then(age).is_none_or(|age| age >= TRIM_INTERVAL);
        is_due && File::create(&stamp).is_ok_and(|stamp| stamp.set_modified(SystemTime::now()).is_ok())
    }

    /// Removes the least recently used caches until the rest fits. Those in use stay.
    pub fn trim_caches(&self, most_bytes: u64) -> io::Result<Vec<KeptCache>> {
        let kept = self.kept_caches();
        let mut bytes: u64 = kept.iter().map(|cache| cache.bytes).sum();
        let mut removed = Vec::new();
        for cache in kept {
            if bytes <= most_bytes {
                break;
            }
            if !cache.is_in_use && self.remove_cache(&cache)? {
                bytes -= cache.bytes;
                removed.push(cache);
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str) -> OwnDirectory {
        OwnDirectory::open(Some(&crate::test_directory::directory(name)), None).unwrap()
    }

    fn open(own: &OwnDirectory, scope: &str, owner: &str) -> ToolCaches {
        ToolCaches::open(own, Path::new(scope), owner, None).unwrap()
    }

    #[test]
    fn caches_are_one_for_each_workspace_and_principal() {
        let own = own("tool-caches");
        let place = |scope, owner| open(&own, scope, owner).directory().to_owned();
        let one = place("/srv/a", "ada");
        assert_eq!(place("/srv/a", "ada"), one);
        assert_ne!(place("/other/a", "ada"), one);
        assert_ne!(place("/srv/a", "bob"), one);
        let mut kept: Vec<_> =
            own.kept_caches().into_iter().map(|cache| (cache.scope, cache.owner)).collect();
        kept.sort();
        let expected =
            [("/other/a", "ada"), ("/srv/a", "ada"), ("/srv/a", "bob")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(kept, expected);
    }

    #[test]
    fn the_least_recently_used_go_first_and_those_in_use_stay() {
        let own = own("tool-caches-trim");
        let fill =
            |caches: &ToolCaches| std::fs::write(caches.directory().join("file"), vec![7; 100_000]).unwrap();
        let in_use = open(&own, "/srv/used", "");
        fill(&in_use);
        for scope in ["/srv/old", "/srv/new"] {
            let caches = open(&own, scope, "");
            fill(&caches);
            let age = if scope == "/srv/old" { 20 } else { 10 };
            let used = SystemTime::now() - Duration::from_secs(age);
            caches.note.set_modified(used).unwrap();
        }
        in_use.note.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let removed = own.trim_caches(250_000).unwrap();
        assert_eq!(removed.iter().map(|cache| &cache.scope).collect::<Vec<_>>(), [Path::new("/srv/old")]);
        assert!(in_use.directory().join("file").exists());
        let removed = own.trim_caches(0).unwrap();
        assert_eq!(removed.iter().map(|cache| &cache.scope).collect::<Vec<_>>(), [Path::new("/srv/new")]);
        drop(in_use);
        assert_eq!(own.trim_caches(0).unwrap().len(), 1);
        assert!(own.kept_caches().is_empty());
    }
}
