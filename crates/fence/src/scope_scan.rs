//! Walks of the scope: before a run for files that have another name outside, after it for files that could act outside
//! later. Both are bounded and report when they did not see everything.
//!
//! Servers of other sessions may work on the scope meanwhile, and replace a file by a link between two steps. So a walk
//! goes through descriptors only, follows no link, and changes no file but the one that it has looked at.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::executed_later::is_executed_later;
use crate::paths::VettedDirectory;
use crate::policy::HardlinkCount;

/// The most entries that a walk looks at.
const MAX_ENTRIES: usize = 200_000;
/// Package managers link into these from caches of the user, so they are looked at first.
const LINKED_INTO: &[&str] = &["node_modules", ".venv", "venv"];
/// The most examples that a report names.
const MAX_NAMED: usize = 10;

const SET_ID: u32 = 0o6000;

/// Files of the scope with another name outside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedFiles {
    /// Files with a name outside the scope.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<PathBuf>,
    /// The directories that hold them: whole package directories where there are such.
    pub directories: BTreeSet<PathBuf>,
    pub is_partial: bool,
}

impl SharedFiles {
    pub fn as_count(&self) -> HardlinkCount {
        HardlinkCount { shared: self.count, is_partial: self.is_partial }
    }
}

/// Looks for files whose other names are not in the scope.
pub fn shared_files(scope: &[VettedDirectory]) -> SharedFiles {
    struct Links {
        all: u64,
        seen: u64,
        path: PathBuf,
    }
    let mut files: HashMap<(u64, u64), Links> = HashMap::new();
    let is_partial = walk(scope, GitObjects::Skipped, &mut |entry| {
        let links = entry.links();
        if entry.kind() == FileType::RegularFile && links > 1 {
            let identity = (entry.stat.st_dev, entry.stat.st_ino);
            let new = || Links { all: links, seen: 0, path: entry.path.clone() };
            files.entry(identity).or_insert_with(new).seen += 1;
        }
    });
    let mut found = SharedFiles { is_partial, ..SharedFiles::default() };
    for links in files.into_values().filter(|links| links.seen < links.all) {
        found.count += 1;
        found.directories.insert(package_directory(&links.path, scope));
        if found.examples.len() < MAX_NAMED {
            found.examples.push(links.path);
        }
    }
    found
}

/// A file, whatever its name.
pub(crate) type FileIdentity = (u64, u64);

/// The first of `files` that has a name in a directory. One that a walk of limited length did not find may have one.
pub(crate) fn first_with_name_in(directory: &VettedDirectory, files: &[FileIdentity]) -> Option<usize> {
    let mut found = None;
    let is_partial = walk(std::slice::from_ref(directory), GitObjects::Included, &mut |entry| {
        let identity = (entry.stat.st_dev, entry.stat.st_ino);
        found = found.or_else(|| files.iter().position(|file| *file == identity));
    });
    found.or((is_partial && !files.is_empty()).then_some(0))
}

/// The outermost package directory above a file, else the directory that it is in.
fn package_directory(path: &Path, scope: &[VettedDirectory]) -> PathBuf {
    let is_below = |path: &Path, root: &Path| path.starts_with(root) && path != root;
    let in_scope = |ancestor: &&Path| scope.iter().any(|root| is_below(ancestor, root.path()));
    let is_package = |ancestor: &&Path| {
        ancestor.file_name().and_then(|name| name.to_str()).is_some_and(|name| LINKED_INTO.contains(&name))
    };
    path.ancestors()
        .filter(in_scope)
        .filter(is_package)
        .last()
        .unwrap_or_else(|| path.parent().filter(in_scope).unwrap_or(path))
        .to_owned()
}

/// How much disk space the files of a directory take, as far as a walk looks.
pub(crate) fn bytes_below(directory: &VettedDirectory) -> u64 {
    const BLOCK: u64 = 512;
    let mut bytes = 0_u64;
    walk(std::slice::from_ref(directory), GitObjects::Included, &mut |entry| {
        bytes += u64::try_from(entry.stat.st_blocks).unwrap_or(0) * BLOCK;
    });
    bytes
}

/// What a command left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostRunScan {
    /// Files that had set-id bits, which were removed.
    pub set_id: Vec<PathBuf>,
    /// New links that lead out of the scope, for a program outside to follow.
    pub outward_links: Vec<(PathBuf, PathBuf)>,
    /// Changed files that programs outside execute or obey, among them the settings of repositories below the top.
    pub executed_later: Vec<PathBuf>,
}

/// From when on a scan looks at changes, in seconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanSince {
    /// For what is only reported.
    pub reported: i64,
    /// For files that lose their set-id bits; earlier, if other sessions have left that to this scan.
    pub set_id: i64,
}

impl ScanSince {
    #[cfg(test)]
    fn second(second: i64) -> Self {
        Self { reported: second, set_id: second }
    }
}

/// Looks at what changed, and takes set-id bits away unless `is_in_use`: another session works on the scope, and the
/// last one does it.
pub(crate) fn post_run_scan(
    scope: &[VettedDirectory],
    since: ScanSince,
    is_in_use: &dyn Fn() -> bool,
) -> PostRunScan {
    let mut left = PostRunScan::default();
    let leads_out = |target: &Path| !scope.iter().any(|root| target.starts_with(root.path()));
    walk(scope, GitObjects::Included, &mut |entry| {
        let is_set_id = entry.kind().is_file() && entry.stat.st_mode & SET_ID != 0;
        let is_ours = is_set_id && entry.changed() >= since.set_id;
        if is_ours && !is_in_use() && entry.take_set_id_away().is_ok() {
            left.set_id.push(entry.path.clone());
        }
        if entry.changed() < since.reported {
            return;
        }
        if entry.kind().is_symlink()
            && left.outward_links.len() < MAX_NAMED
            && let Some(target) = entry.link_target()
            && leads_out(&target)
        {
            left.outward_links.push((entry.path.clone(), target));
        }
        if left.executed_later.len() < MAX_NAMED && is_obeyed_outside(&entry.path, scope) {
            left.executed_later.push(entry.path.clone());
        }
    });
    left
}

/// Whether programs outside execute or obey a file, and the fence lets commands change it.
fn is_obeyed_outside(path: &Path, scope: &[VettedDirectory]) -> bool {
    let Some(below) = scope.iter().find_map(|root| path.strip_prefix(root.path()).ok()) else { return false };
    let is_top = |name: &str| below == Path::new(name);
    let of_repository = (below.ends_with(".git/config") && !is_top(".git/config"))
        || (below.ends_with(".git") && !is_top(".git"));
    of_repository || is_executed_later(below)
}

/// The path without `.` and `..`, as a shell would shorten it. For one that may not exist.
pub fn lexical(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                result.pop();
            }
            std::path::Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

/// An entry of a directory, as it was when it was looked at.
struct Entry<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    path: PathBuf,
    stat: Stat,
}

impl Entry<'_> {
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    fn links(&self) -> u64 {
        #[allow(clippy::useless_conversion, reason = "other systems have a narrower type")]
        self.stat.st_nlink.into()
    }

    /// When it was changed, in seconds since the epoch.
    fn changed(&self) -> i64 {
        #[allow(clippy::useless_conversion, reason = "other systems have a narrower type")]
        self.stat.st_ctime.into()
    }

    /// Where a link leads by its text. The walk does not follow it, and names the next link if it leads to one.
    fn link_target(&self) -> Option<PathBuf> {
        let target = rustix::fs::readlinkat(self.directory, self.name, Vec::new()).ok()?;
        Some(lexical(&self.path.parent()?.join(OsStr::from_bytes(target.as_bytes()))))
    }

    /// Takes the bits from the file that was looked at, and from no other that has its name now.
    fn take_set_id_away(&self) -> io::Result<()> {
        let file = open_for_change(self.directory, self.name)?;
        let stat = rustix::fs::fstat(&file)?;
        if (stat.st_dev, stat.st_ino) != (self.stat.st_dev, self.stat.st_ino) {
            return Err(io::ErrorKind::NotFound.into());
        }
        change_mode(&file, stat.st_mode & 0o1777)
    }
}

/// Opens a file to change its mode. No link is followed.
pub(crate) fn open_for_change(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    // A file that cannot be read can be opened as a path. Elsewhere than on Linux it stays as it is.
    let flags = if cfg!(target_os = "linux") { OFlags::PATH } else { OFlags::RDONLY | OFlags::NONBLOCK };
    Ok(rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Changes the mode of what a descriptor of [`open_for_change`] holds.
pub(crate) fn change_mode(file: &OwnedFd, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode as rustix::fs::RawMode);
    #[cfg(target_os = "linux")]
    {
        // `fchmod` takes no such descriptor. Its link in /proc leads to the file itself, whatever its name is now.
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::chmodat(rustix::fs::CWD, link, mode, AtFlags::empty())?)
    }
    #[cfg(not(target_os = "linux"))]
    Ok(rustix::fs::fchmod(file, mode)?)
}

/// Whether a walk looks at objects of git. Clones link them among each other, and git never changes them in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GitObjects {
    Skipped,
    Included,
}

/// Calls `each` for every entry below `roots` that is no directory, package directories first. Returns true if it ended
/// early. What took the place of a root since it was vetted is not looked at.
fn walk(roots: &[VettedDirectory], objects: GitObjects, each: &mut dyn FnMut(&Entry<'_>)) -> bool {
    let mut seen = 0;
    for root in roots {
        let Ok(top) = root.open(OFlags::RDONLY) else { continue };
        let mut waiting = VecDeque::from([PathBuf::new()]);
        while let Some(directory) = waiting.pop_front() {
            let Ok(opened) = open_below(&top, &directory) else { continue };
            for name in names_in(&opened) {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return true;
                }
                let Ok(stat) = rustix::fs::statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                let below = directory.join(&name);
                let entry = Entry { directory: &opened, name: &name, path: root.path().join(&below), stat };
                if !entry.kind().is_dir() {
                    each(&entry);
                } else if objects == GitObjects::Skipped && below.ends_with(".git/objects") {
                    // Nothing to see.
                } else if name.to_str().is_some_and(|name| LINKED_INTO.contains(&name)) {
                    waiting.push_front(below);
                } else {
                    waiting.push_back(below);
                }
            }
        }
    }
    false
}

/// Opens a directory below another one, without following a link on the way.
pub(crate) fn open_below(top: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current = top.try_clone()?;
    for name in path {
        current = rustix::fs::openat(&current, name, flags, Mode::empty())?;
    }
    Ok(current)
}

pub(crate) fn names_in(directory: &OwnedFd) -> Vec<std::ffi::OsString> {
    let entries = Dir::read_from(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
    names.filter(|name| name != "." && name != "..").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    const NOT_IN_USE: &dyn Fn() -> bool = &|| false;

    fn vetted(scope: &Path) -> [VettedDirectory; 1] {
        [VettedDirectory::own(scope).unwrap()]
    }

    /// Flips a name between a set-id file and a link to a file outside, as a server of another session could.
    struct Race {
        scope: PathBuf,
        outside: PathBuf,
    }

    impl Race {
        fn new(name: &str) -> Self {
            let base = test_directory::directory(name);
            let race = Self { scope: base.join("scope"), outside: base.join("outside") };
            std::fs::create_dir_all(&race.scope).unwrap();
            std::fs::write(&race.outside, "").unwrap();
            std::fs::set_permissions(&race.outside, std::fs::Permissions::from_mode(0o4600)).unwrap();
            symlink(&race.outside, race.scope.join("link")).unwrap();
            std::fs::write(race.scope.join("file"), "").unwrap();
            std::fs::set_permissions(race.scope.join("file"), std::fs::Permissions::from_mode(0o4755))
                .unwrap();
            race
        }

        /// Runs `round` while the attacker flips, until `ends`. Returns whether the file outside was changed.
        fn run(&self, mut round: impl FnMut(), mut ends: impl FnMut(bool) -> bool) -> bool {
            let is_over = AtomicBool::new(false);
            let was_hit = || self.outside.metadata().unwrap().mode() & SET_ID == 0;
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    let (name, file, link) =
                        (self.scope.join("tool"), self.scope.join("file"), self.scope.join("link"));
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = std::fs::rename(&file, &name);
                        let _ = std::fs::rename(&name, &file);
                        let _ = std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4755));
                        let _ = std::fs::rename(&link, &name);
                        let _ = std::fs::rename(&name, &link);
                    }
                });
                loop {
                    round();
                    if ends(was_hit()) {
                        break;
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
            was_hit()
        }
    }

    #[test]
    fn a_file_that_is_swapped_for_a_link_is_not_followed() {
        let race = Race::new("scan-race");
        let scope = vetted(&race.scope);
        let mut rounds = 0;
        let round = || drop(post_run_scan(&scope, ScanSince::second(0), NOT_IN_USE));
        let was_hit = race.run(round, |was_hit| {
            rounds += 1;
            was_hit || rounds >= 100_000
        });
        assert!(!was_hit, "in round {rounds}");
    }

    #[test]
    fn the_race_is_lost_by_a_walk_that_uses_paths() {
        let race = Race::new("scan-race-by-path");
        let name = race.scope.join("tool");
        let by_path = || {
            if name.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                let _ = std::fs::set_permissions(&name, std::fs::Permissions::from_mode(0o755));
            }
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        assert!(race.run(by_path, |was_hit| was_hit || std::time::Instant::now() > end));
    }

    #[test]
    fn what_took_the_place_of_the_scope_is_not_walked() {
        let base = test_directory::directory("scan-moved");
        for directory in ["around/scope", "outside/scope"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
            std::fs::write(base.join(directory).join("tool"), "").unwrap();
            std::fs::set_permissions(
                base.join(directory).join("tool"),
                std::fs::Permissions::from_mode(0o4755),
            )
            .unwrap();
        }
        let scope = vetted(&base.join("around/scope"));
        let mode = || base.join("outside/scope/tool").metadata().unwrap().mode() & 0o7777;
        // As a session can whose scope is the directory above.
        std::fs::rename(base.join("around"), base.join("moved")).unwrap();
        symlink("outside", base.join("around")).unwrap();
        assert_eq!(post_run_scan(&scope, ScanSince::second(0), NOT_IN_USE), PostRunScan::default());
        assert_eq!(mode(), 0o4755);
        std::fs::remove_file(base.join("around")).unwrap();
        std::fs::rename(base.join("outside"), base.join("around")).unwrap();
        assert_eq!(post_run_scan(&scope, ScanSince::second(0), NOT_IN_USE), PostRunScan::default());
        // The control: the directory itself, at its own place.
        std::fs::rename(base.join("around"), base.join("outside")).unwrap();
        std::fs::rename(base.join("moved"), base.join("around")).unwrap();
        assert_eq!(
            post_run_scan(&scope, ScanSince::second(0), NOT_IN_USE).set_id,
            [base.join("around/scope/tool")]
        );
        assert_eq!(mode(), 0o4755);
    }

    #[test]
    fn nothing_is_changed_while_another_session_works_on_the_scope() {
        let scope = test_directory::directory("scan-in-use");
        std::fs::write(scope.join("tool"), "").unwrap();
        std::fs::set_permissions(scope.join("tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        let left = post_run_scan(&vetted(&scope), ScanSince::second(0), &|| true);
        assert!(left.set_id.is_empty());
        assert_eq!(scope.join("tool").metadata().unwrap().mode() & 0o7777, 0o4755);
    }

    #[test]
    fn only_links_to_the_outside_count() {
        let base = test_directory::directory("scan-links");
        let scope = base.join("scope");
        std::fs::create_dir_all(scope.join("node_modules/pkg")).unwrap();
        std::fs::write(scope.join("inside"), "").unwrap();
        std::fs::hard_link(scope.join("inside"), scope.join("inside too")).unwrap();
        std::fs::write(base.join("cache"), "").unwrap();
        std::fs::hard_link(base.join("cache"), scope.join("node_modules/pkg/index.js")).unwrap();
        let found = shared_files(&vetted(&scope));
        assert_eq!(found.count, 1);
        assert_eq!(found.examples, [scope.join("node_modules/pkg/index.js")]);
        assert_eq!(found.directories, BTreeSet::from([scope.join("node_modules")]));
        assert!(!found.is_partial);
    }

    #[test]
    fn set_id_bits_go_and_outward_links_are_named() {
        let scope = test_directory::directory("scan-post_run_scan");
        std::fs::write(scope.join("tool"), "").unwrap();
        std::fs::set_permissions(scope.join("tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        let objects = scope.join(".git/objects/aa");
        std::fs::create_dir_all(&objects).unwrap();
        std::fs::write(objects.join("tool"), "").unwrap();
        std::fs::set_permissions(objects.join("tool"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", scope.join("out")).unwrap();
        std::os::unix::fs::symlink("tool", scope.join("in")).unwrap();
        let left = post_run_scan(&vetted(&scope), ScanSince::second(0), NOT_IN_USE);
        assert_eq!(left.set_id, [scope.join("tool"), objects.join("tool")]);
        assert_eq!(scope.join("tool").metadata().unwrap().mode() & 0o7777, 0o755);
        assert_eq!(left.outward_links, [(scope.join("out"), "/etc/passwd".into())]);
        assert_eq!(
            post_run_scan(&vetted(&scope), ScanSince::second(i64::MAX), NOT_IN_USE),
            PostRunScan::default()
        );
    }
}
