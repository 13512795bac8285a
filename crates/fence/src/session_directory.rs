//! The directories that belong to fenced commands: a home and a temporary directory for a session. They are below one
//! directory that is private to this user and hidden in every fence.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustix::fs::{Dir, FileType, FlockOperation, Mode, OFlags};

use crate::paths::VettedDirectory;
use crate::placeholders::{self, LingeringPlaceholders, Sweeps};
use crate::scope_scan::{PostRunScan, ScanSince, change_mode, open_for_change, post_run_scan};

/// Ringfence's own directory of a user.
#[derive(Clone, Debug)]
pub struct OwnDirectory {
    path: PathBuf,
    sweeps: Arc<Sweeps>,
}

impl OwnDirectory {
    /// Opens it below the user's caches, or below `/var/tmp` for a user without a home, and removes what killed
    /// processes have left there.
    pub fn open(cache_home: Option<&Path>, home: Option<&Path>) -> io::Result<Self> {
        let candidates = [
            cache_home.filter(|path| path.is_absolute()).map(|cache| cache.join("ringfence")),
            home.filter(|home| home.is_absolute()).map(|home| home.join(".cache/ringfence")),
            Some(format!("/var/tmp/ringfence-{}", rustix::process::geteuid().as_raw()).into()),
        ];
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        for path in candidates.into_iter().flatten() {
            match make_private(&path) {
                Ok(()) => {
                    let own = Self { path: path.canonicalize()?, sweeps: Arc::default() };
                    sweep(&own.path.join("sessions"));
                    placeholders::sweep(&own.path);
                    return Ok(own);
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves placeholders for the sessions that follow shortly, until what is returned is dropped.
    pub(crate) fn keep_placeholders_a_moment(&self) -> LingeringPlaceholders {
        LingeringPlaceholders::begin(&self.sweeps, &self.path)
    }

    /// Where programs are installed once, for many commands to read.
    pub(crate) fn packages(&self) -> io::Result<PathBuf> {
        let packages = self.path.join("packages");
        make_private(&packages)?;
        Ok(packages)
    }
}

/// A name that no other process will choose.
pub(crate) fn random_name() -> io::Result<String> {
    let mut random = [0; 12];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(hexadecimal(&random))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Makes a directory that is private to this user, or checks that it is.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    // Mostly it is there.
    let metadata = path.symlink_metadata().or_else(|_| {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        path.symlink_metadata()
    })?;
    let is_ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if is_ours && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} is not private to this user", path.display()),
    ))
}

/// The prefix of a directory that is not locked yet. It is swept only when it is old.
const UNLOCKED: &str = "new-";
/// Where a session notes its scope, and since when it answers for what commands leave there.
const SCOPE_FILE: &str = "scope";
/// The name of that note once the session's commands have ended and it cleans up.
const ENDING_FILE: &str = "ending";
/// Where a session notes the git directories that its scope takes in.
const GIT_FILE: &str = "git";
/// Locks the notes of all sessions while one is made or renamed.
const NOTES_LOCK: &str = "scopes.lock";
const YOUNG: Duration = Duration::from_secs(60);

/// The directories of one session, in which one or several commands run.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    /// When it was made, in seconds since the epoch.
    began: i64,
    /// Since when it answers for what commands left in its scope: from the beginning of the oldest session that it met
    /// there, because that one leaves the clean-up to the last.
    answers_since: AtomicI64,
    /// Locks the directory while it is in use. Directories without a lock are swept.
    #[allow(dead_code, reason = "held, not used")]
    lock: File,
    sweeps: Arc<Sweeps>,
}

impl SessionDirectory {
    pub fn create(own: &OwnDirectory) -> io::Result<Self> {
        let sessions = own.path().join("sessions");
        make_private(&sessions)?;
        let name = random_name()?;
        let unlocked = sessions.join(format!("{UNLOCKED}{name}"));
        make_directory(&unlocked)?;
        let lock = File::open(&unlocked)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let path = sessions.join(name);
        std::fs::rename(&unlocked, &path)?;
        make_directory(&path.join("home"))?;
        let began = now();
        let sweeps = Arc::clone(&own.sweeps);
        Ok(Self { path, began, answers_since: began.into(), lock, sweeps })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    pub fn temp(&self) -> PathBuf {
        self.path.join("temp")
    }

    /// Makes the temporary directory. Fences with namespaces have another one and do not need it.
    pub fn make_temp(&self) -> io::Result<PathBuf> {
        let temp = self.temp();
        match make_directory(&temp) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(temp),
        }
    }

    /// Removes the directories. Dropping does the same, and ignores errors.
    pub fn remove(&self) -> io::Result<()> {
        remove_tree(&self.path)
    }

    /// Looks through the scope for what the session's commands left that could act outside later, and removes the
    /// session's directories.
    pub fn clean_up(&self, scope: &[VettedDirectory]) -> CleanUp {
        let roots: Vec<&Path> = scope.iter().map(VettedDirectory::path).collect();
        // Two sessions that end together must not leave the work to each other.
        if let Ok(_lock) = self.lock_notes() {
            let _ = std::fs::rename(self.path.join(SCOPE_FILE), self.path.join(ENDING_FILE));
        }
        let is_in_use = || self.others(SCOPE_FILE).iter().any(|other| other.overlaps(&roots));
        let since = ScanSince { reported: self.began, set_id: self.answers_since.load(Ordering::Relaxed) };
        CleanUp { left: post_run_scan(scope, since, &is_in_use), removal: self.remove() }
    }

    /// Notes the scope, for the sessions of all ringfence processes of this user to see.
    pub(crate) fn note_scope(&self, scope: &[PathBuf]) -> io::Result<()> {
        let _lock = self.lock_notes()?;
        let roots: Vec<&Path> = scope.iter().map(PathBuf::as_path).collect();
        let others = [SCOPE_FILE, ENDING_FILE].map(|name| self.others(name)).into_iter().flatten();
        for other in others.filter(|other| other.overlaps(&roots)) {
            self.answers_since.fetch_min(other.since, Ordering::Relaxed);
        }
        let since = self.answers_since.load(Ordering::Relaxed).to_string();
        let roots = scope.iter().map(|path| path.as_os_str().as_bytes());
        let fields: Vec<&[u8]> = std::iter::once(since.as_bytes()).chain(roots).collect();
        std::fs::write(self.path.join(SCOPE_FILE), fields.join(&0))
    }

    /// Notes the git directories outside the scope that a session works on too.
    pub(crate) fn note_git_directories(&self, directories: &[PathBuf]) -> io::Result<()> {
        if directories.is_empty() {
            return Ok(());
        }
        let _lock = self.lock_notes()?;
        let since = self.began.to_string();
        let roots = directories.iter().map(|path| path.as_os_str().as_bytes());
        let fields: Vec<&[u8]> = std::iter::once(since.as_bytes()).chain(roots).collect();
        std::fs::write(self.path.join(GIT_FILE), fields.join(&0))
    }

    fn lock_notes(&self) -> io::Result<File> {
        let own = self.path.parent().and_then(Path::parent).ok_or(io::ErrorKind::NotFound)?;
        let lock = File::create(own.join(NOTES_LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    fn others(&self, file: &str) -> Vec<ScopeNote> {
        self.path.parent().map(|sessions| notes(sessions, file, Some(&self.path))).unwrap_or_default()
    }

    /// Leaves what a killed process leaves: the directory, without its lock.
    #[cfg(test)]
    pub(crate) fn forget_as_if_killed(self) {
        self.lock.unlock().unwrap();
        std::mem::forget(self);
    }
}

/// What a session has noted of its scope.
struct ScopeNote {
    since: i64,
    roots: Vec<PathBuf>,
}

impl ScopeNote {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = text.split(|byte| *byte == 0);
        let since = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let roots = fields.map(|root| PathBuf::from(OsStr::from_bytes(root)));
        Some(Self { since, roots: roots.filter(|root| root.is_absolute()).collect() })
    }

    fn overlaps(&self, roots: &[&Path]) -> bool {
        let meets = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
        self.roots.iter().any(|mine| roots.iter().any(|root| meets(mine, root)))
    }
}

/// The notes of live sessions in all ringfence processes of this user. `except` is left out.
fn notes(sessions: &Path, file: &str, except: Option<&Path>) -> Vec<ScopeNote> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(sessions).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(text) = std::fs::read(path.join(file)) else { continue };
        if Some(path.as_path()) != except && !is_free(&path) {
            found.extend(ScopeNote::parse(&text));
        }
    }
    found
}

/// The directories that sessions work on, in all ringfence processes of this user.
pub(crate) fn scopes_in_use(sessions: &Path) -> Vec<PathBuf> {
    let notes = [SCOPE_FILE, GIT_FILE].map(|file| notes(sessions, file, None));
    notes.into_iter().flatten().flat_map(|note| note.roots).collect()
}

/// What happened when a session was cleaned up.
#[derive(Debug)]
pub struct CleanUp {
    pub left: PostRunScan,
    /// Whether the session's directories could be removed.
    pub removal: io::Result<()>,
}

impl CleanUp {
    /// The changed files that should be reviewed before programs outside use them, as one line.
    pub fn to_review(&self) -> Option<String> {
        let files: Vec<String> =
            self.left.executed_later.iter().map(|path| path.display().to_string()).collect();
        (!files.is_empty())
            .then(|| format!("changed meanwhile, and programs outside obey them: {}", files.join(", ")))
    }

    /// What the operator should know, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let set_id = self.left.set_id.iter();
        let links = self.left.outward_links.iter();
        set_id
            .map(|path| format!("{} was set-id and is not any more", path.display()))
            .chain(links.map(|(link, target)| {
                format!("new link out of the scope: {} -> {}", link.display(), target.display())
            }))
            .chain(
                self.removal
                    .as_ref()
                    .err()
                    .map(|error| format!("the session's files could not be removed: {error}")),
            )
            .collect()
    }
}

fn now() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        // What cannot be removed now is swept later.
        let _ = remove_tree(&self.path);
        if let Some(own) = self.path.parent().and_then(Path::parent) {
            self.sweeps.session_ended(own);
        }
    }
}

/// Removes a directory that a command could write, even if the command has taken rights away there.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    if let Err(error) = std::fs::remove_dir_all(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        make_removable(path);
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// Gives this user all rights on the directories of a tree. Follows no link.
fn make_removable(path: &Path) {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(parent) = rustix::fs::open(parent, flags, Mode::empty()) {
        make_entry_removable(&parent, name);
    }
}

fn make_entry_removable(parent: &OwnedFd, name: &OsStr) {
    let Ok(entry) = open_for_change(parent, name) else { return };
    let is_directory =
        rustix::fs::fstat(&entry).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
    if !is_directory || change_mode(&entry, 0o700).is_err() {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return };
    for entry in Dir::read_from(&directory).into_iter().flatten().flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            make_entry_removable(&directory, name);
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Whether no process uses a session's directory. Two that ask at once do not take each other for a user.
fn is_free(session: &Path) -> bool {
    File::open(session)
        .is_ok_and(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_ok())
}

/// Removes the directories of processes that were killed.
fn sweep(sessions: &Path) {
    for entry in std::fs::read_dir(sessions).into_iter().flatten().flatten() {
        let is_unlocked = entry.file_name().to_string_lossy().starts_with(UNLOCKED);
        let age =
            entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
        // A young one is about to be locked by the process that made it.
        if (!is_unlocked || age.is_some_and(|age| age >= YOUNG)) && is_free(&entry.path()) {
            let _ = remove_tree(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str) -> OwnDirectory {
        OwnDirectory::open(Some(&crate::test_directory::directory(name)), None).unwrap()
    }

    #[test]
    fn a_session_leaves_nothing_and_a_killed_one_is_swept() {
        let own = own("session-directory");
        let live = SessionDirectory::create(&own).unwrap();
        let killed = SessionDirectory::create(&own).unwrap();
        let (live_path, killed_path) = (live.path().to_owned(), killed.path().to_owned());
        std::fs::write(killed.home().join("file"), "").unwrap();
        killed.forget_as_if_killed();
        let own = OwnDirectory::open(own.path().parent(), None).unwrap();
        assert!(live_path.exists() && !killed_path.exists());
        live.remove().unwrap();
        assert_eq!(std::fs::read_dir(own.path().join("sessions")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_session_left_is_cleared_by_the_last_of_those_that_overlap() {
        use std::os::unix::fs::PermissionsExt;
        let own = own("session-last");
        let base = crate::test_directory::directory("session-last-scope").canonicalize().unwrap();
        let scope = [VettedDirectory::own(&base).unwrap()];
        let mode_of_tool = || base.join("tool").metadata().unwrap().mode() & 0o7777;
        let session = || {
            let session = SessionDirectory::create(&own).unwrap();
            session.note_scope(std::slice::from_ref(&base)).unwrap();
            session
        };
        for is_together in [false, true] {
            std::fs::write(base.join("tool"), "").unwrap();
            std::fs::set_permissions(base.join("tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
            let mut first = session();
            first.began = now() - 10;
            *first.answers_since.get_mut() = first.began;
            first.note_scope(std::slice::from_ref(&base)).unwrap();
            let mut last = session();
            // It began after the file was made, and answers for it because the first one was still there.
            last.began = now() + 10;
            if is_together {
                let _ = std::fs::rename(last.path.join(SCOPE_FILE), last.path.join(ENDING_FILE));
            }
            let left = first.clean_up(&scope).left.set_id;
            assert_eq!(left.is_empty(), !is_together, "{left:?}");
            assert_eq!(mode_of_tool(), if is_together { 0o755 } else { 0o4755 });
            assert_eq!(last.clean_up(&scope).left.set_id.is_empty(), is_together);
            assert_eq!(mode_of_tool(), 0o755);
        }
    }
}
