//! A project, a state root, and a way to act in a copy as its agent would.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::changes::ChangeKind;
use crate::{
    Applied, ApplyError, ApplyRequest, ChangeOptions, Changes, Method, NewCopy, Tree, WorkspaceCopy,
    Workspaces,
};

/// An empty directory of one test, outside shared temporary directories.
pub(crate) fn directory(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let tests = std::env::current_exe().unwrap().with_file_name("staging-unit-tests");
    let directory = tests.join(format!("{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory.canonicalize().unwrap()
}

/// The methods that this host can do. Reflinks need another file system than most test hosts have.
pub(super) const METHODS: [Method; 2] = [Method::Overlay, Method::Copy];

/// Removed when it is dropped, unless the test failed.
pub(super) struct Stage {
    pub(super) directory: PathBuf,
    pub(super) base: PathBuf,
    pub(super) workspaces: Workspaces,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            crate::removal::remove_tree(&self.directory).unwrap();
        }
    }
}

impl Stage {
    pub(super) fn new(name: &str) -> Self {
        let directory = directory(name);
        let base = directory.join("project");
        std::fs::create_dir(&base).unwrap();
        let workspaces = Workspaces::open(&directory.join("state")).unwrap();
        Self { directory, base, workspaces }
    }

    /// With the state root on another file system than the base.
    pub(super) fn with_state_elsewhere(name: &str) -> Self {
        let mut stage = Self::new(name);
        let elsewhere = PathBuf::from(format!("/dev/shm/staging-{name}-{}", std::process::id()));
        stage.workspaces = Workspaces::open(&elsewhere).unwrap();
        stage
    }

    pub(super) fn create(&self, method: Method) -> WorkspaceCopy {
        self.workspaces.create(NewCopy::of(&self.base, method)).unwrap()
    }

    /// Runs a script in the base.
    pub(super) fn sh(&self, script: &str) {
        run(Command::new("sh").args(["-euc", script]).current_dir(&self.base));
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        snapshot(&self.base)
    }

    /// The names that are neither the project's nor of a copy that is in order.
    pub(super) fn leftovers(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        for entry in std::fs::read_dir(&self.base).unwrap().flatten() {
            if entry.file_name().as_bytes().starts_with(b".ringfence-apply") {
                left.push(entry.path());
            }
        }
        for copy in std::fs::read_dir(self.workspaces.root()).unwrap().flatten() {
            let name = copy.file_name();
            if name.as_bytes().starts_with(b".new-") {
                left.push(copy.path());
            }
            for entry in std::fs::read_dir(copy.path()).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("slots-")
                    || name == "journal.json"
                    || name == "kept"
                    || name == "intent.json"
                {
                    left.push(entry.path());
                }
            }
        }
        left
    }
}

pub(super) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl WorkspaceCopy {
    /// Runs a script in the copy, as an agent in its fence would: an overlay is mounted over the base.
    pub(super) fn sh(&self, script: &str) {
        match &self.trees()[0] {
            Tree::Overlay { base, upper, work } => {
                let mount = "mount -t overlay overlay -o \"lowerdir=$1,upperdir=$2,workdir=$3,userxattr\" \"$1\"; cd \"$1\"";
                let script = format!("{mount}\n{script}");
                let mut command = Command::new("unshare");
                command.args(["-Urm", "sh", "-euc", &script, "sh"]).args([base, upper, work]);
                run(&mut command);
            }
            Tree::Files { files, .. } => run(Command::new("sh").args(["-euc", script]).current_dir(files)),
        }
    }

    /// What the copy shows.
    pub(super) fn view(&self, to: &Path) -> Snapshot {
        let _ = crate::removal::remove_tree(to);
        std::fs::create_dir(to).unwrap();
        self.sh(&format!("cp -a . '{}'", to.display()));
        snapshot(to)
    }

    pub(super) fn seen(&self) -> Changes {
        self.changes(&ChangeOptions::default()).unwrap()
    }

    /// The changes in short.
    pub(super) fn listed(&self) -> Vec<(ChangeKind, String)> {
        let changes = self.seen();
        changes
            .entries
            .iter()
            .map(|change| (change.kind, change.path.to_string_lossy().into_owned()))
            .collect()
    }

    pub(super) fn apply_all(&self) -> Result<Applied, ApplyError> {
        let request = ApplyRequest { include_executables: true, ..ApplyRequest::default() };
        self.apply(&request, &|_| None)
    }
}

/// Everything that a tree has: type, mode, content or target.
pub(super) type Snapshot = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

/// Leaves out `.git` and the names of an apply that can be undone.
pub(super) fn snapshot(top: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        for entry in std::fs::read_dir(top.join(&path)).unwrap() {
            let name = entry.unwrap().file_name();
            if name == ".git" || name.as_bytes().starts_with(b".ringfence-apply") {
                continue;
            }
            let path = path.join(name);
            let full = top.join(&path);
            let metadata = full.symlink_metadata().unwrap();
            let mode = metadata.mode() & 0o777;
            let kind = metadata.file_type();
            let facts = if kind.is_symlink() {
                ('l', 0, std::fs::read_link(&full).unwrap().as_os_str().as_bytes().to_vec())
            } else if kind.is_dir() {
                waiting.push(path.clone());
                ('d', mode, Vec::new())
            } else if kind.is_file() {
                ('f', mode, std::fs::read(&full).unwrap())
            } else {
                ('s', mode, Vec::new())
            };
            found.insert(path, facts);
        }
    }
    found
}

pub(super) fn odd_name() -> &'static Path {
    Path::new(OsStr::from_bytes(b"odd\xff\nname"))
}
