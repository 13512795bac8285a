//! Walks of the scope: before a run for files that have another name outside, after it for files that could act outside
//! later. Both are bounded and report when they did not see everything.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
pub fn shared_files(scope: &[PathBuf]) -> SharedFiles {
    struct Links {
        all: u64,
        seen: u64,
        path: PathBuf,
    }
    let mut files: HashMap<(u64, u64), Links> = HashMap::new();
    let is_partial = walk(scope, &mut |path, metadata| {
        if metadata.is_file() && metadata.nlink() > 1 {
            let links = files.entry((metadata.dev(), metadata.ino()));
            links.or_insert_with(|| Links { all: metadata.nlink(), seen: 0, path: path.to_owned() }).seen +=
                1;
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

/// The outermost package directory above a file, else the directory that it is in.
fn package_directory(path: &Path, scope: &[PathBuf]) -> PathBuf {
    let in_scope =
        |ancestor: &&Path| scope.iter().any(|root| ancestor.starts_with(root) && *ancestor != root);
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

/// What a command left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostRunScan {
    /// Files that had set-id bits, which were removed.
    pub set_id: Vec<PathBuf>,
    /// New links that lead out of the scope, for a program outside to follow.
    pub outward_links: Vec<(PathBuf, PathBuf)>,
}

/// Looks at what changed since `since` (seconds of the epoch), and takes set-id bits away.
pub(crate) fn post_run_scan(scope: &[PathBuf], since: i64) -> PostRunScan {
    let mut left = PostRunScan::default();
    walk(scope, &mut |path, metadata| {
        if metadata.ctime() < since {
            return;
        }
        if metadata.is_symlink() {
            let target =
                path.parent().map(|parent| parent.join(std::fs::read_link(path).unwrap_or_default()));
            let Some(target) = target else { return };
            let real = target.canonicalize().unwrap_or_else(|_| lexical(&target));
            if left.outward_links.len() < MAX_NAMED && !scope.iter().any(|root| real.starts_with(root)) {
                left.outward_links.push((path.to_owned(), real));
            }
        } else if metadata.is_file() && metadata.mode() & SET_ID != 0 {
            let plain = std::fs::Permissions::from_mode(metadata.mode() & 0o1777);
            if std::fs::set_permissions(path, plain).is_ok() {
                left.set_id.push(path.to_owned());
            }
        }
    });
    left
}

/// Without `.` and `..`, for a target that does not exist.
fn lexical(path: &Path) -> PathBuf {
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

/// Calls `each` for every entry below `roots`, package directories first. Returns true if it ended early.
fn walk(roots: &[PathBuf], each: &mut dyn FnMut(&Path, &Metadata)) -> bool {
    let mut waiting: VecDeque<PathBuf> = roots.iter().cloned().collect();
    let mut seen = 0;
    while let Some(directory) = waiting.pop_front() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return true;
            }
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_dir() {
                each(&path, &metadata);
            } else if path.ends_with(".git/objects") {
                // Clones of git link these among each other, and they are never changed in place.
            } else if entry.file_name().to_str().is_some_and(|name| LINKED_INTO.contains(&name)) {
                waiting.push_front(path);
            } else {
                waiting.push_back(path);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    #[test]
    fn only_links_to_the_outside_count() {
        let base = test_directory::directory("scan-links");
        let scope = base.join("scope");
        std::fs::create_dir_all(scope.join("node_modules/pkg")).unwrap();
        std::fs::write(scope.join("inside"), "").unwrap();
        std::fs::hard_link(scope.join("inside"), scope.join("inside too")).unwrap();
        std::fs::write(base.join("cache"), "").unwrap();
        std::fs::hard_link(base.join("cache"), scope.join("node_modules/pkg/index.js")).unwrap();
        let found = shared_files(std::slice::from_ref(&scope));
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
        std::os::unix::fs::symlink("/etc/passwd", scope.join("out")).unwrap();
        std::os::unix::fs::symlink("tool", scope.join("in")).unwrap();
        let left = post_run_scan(std::slice::from_ref(&scope), 0);
        assert_eq!(left.set_id, [scope.join("tool")]);
        assert_eq!(scope.join("tool").metadata().unwrap().mode() & 0o7777, 0o755);
        assert_eq!(left.outward_links, [(scope.join("out"), "/etc/passwd".into())]);
        assert_eq!(post_run_scan(&[scope], i64::MAX), PostRunScan::default());
    }
}
