//! A workspace with links that lead outside, and what lies there.

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::real_path;
use crate::baseline::Baseline;
use crate::context::ServerContext;
use crate::files::Workspace;
use crate::gateway_line::GatewayLine;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::output::Output;
use crate::rules::Rules;
use crate::shell::{OperationLimits, Operations};
use crate::tools;

/// In every file outside.
pub(super) const SECRET: &str =
    "SECRET: this text is to be unreadable from inside of the workspace, whatever is tried";
/// A name that exists only outside.
pub(super) const NAME_OUTSIDE: &str = "only-outside";

const FILES: &[(&str, &str)] = &[
    ("a.txt", "one\ntwo\nthree\n"),
    ("d/b.txt", "b\n"),
    ("d/e/c.txt", "c\n"),
    ("..foo", "dots\n"),
    ("file:x", "odd\n"),
];

const LINKS: &[(&str, &str)] = &[
    ("in", "d"),
    ("d/up", "../a.txt"),
    ("d/e/root", "../.."),
    ("out", "../outside"),
    ("d/out", "../../outside"),
    ("secret", "../outside/secret"),
    ("new", "../outside/new"),
    ("dangling", "d/not/yet"),
    ("loop", "loop"),
    ("proc", "/proc/self/root"),
    ("cwd", "/proc/self/cwd"),
    ("through", "d/out/../outside/secret"),
    ("evil", "../ws-evil"),
];

const OUTSIDE: &[&str] = &["outside/secret", "outside/only-outside", "outside/d/secret", "ws-evil/a.txt"];

pub(super) struct Ground {
    base: PathBuf,
    pub(super) root: PathBuf,
    outside: Vec<(PathBuf, Vec<u8>)>,
    /// The workspace may not be as it was at first.
    is_changed: Cell<bool>,
}

/// Runs `body` in a workspace that is as it was at first. Each thread has its own.
pub(super) fn with_ground(body: impl FnOnce(&Ground, &ServerContext)) {
    thread_local! {
        static GROUND: RefCell<Option<(Ground, ServerContext)>> = const { RefCell::new(None) };
    }
    GROUND.with_borrow_mut(|slot| {
        let (ground, context) = slot.get_or_insert_with(make);
        if ground.is_changed.take() {
            ground.furnish();
        }
        context.journal = Journal::default();
        body(ground, context);
    });
}

fn make() -> (Ground, ServerContext) {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let base = target.join(format!("resolver-oracle-{}", std::process::id()));
    for file in OUTSIDE.iter().map(|file| base.join(file)) {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(file, SECRET).expect("a file");
    }
    std::fs::create_dir_all(base.join("ws")).expect("a directory");
    let base = base.canonicalize().expect("the ground");
    let root = base.join("ws");
    let mut ground = Ground { base, root, outside: Vec::new(), is_changed: Cell::new(true) };
    ground.outside = ground.everything_outside();
    let context = ServerContext {
        workspace: Workspace::open(std::slice::from_ref(&ground.root)).expect("a workspace"),
        offered_tools: tools::names(),
        rules: Rules::default(),
        identity: Identity::of_this_process(),
        gateway: GatewayLine::new(Arc::new(Output::new(Box::new(std::io::sink())))),
        operations: Operations::new(OperationLimits::default()).expect("a place for commands"),
        journal: Journal::default(),
        baseline: Baseline::default(),
        restored: crate::state::Restored::default(),
        is_read_only: false,
        reports: false,
        results: crate::tools::ResultForm::TextAndData,
    };
    (ground, context)
}

impl Ground {
    pub(super) fn note_change(&self) {
        self.is_changed.set(true);
    }

    /// Puts the workspace back as it was at first.
    fn furnish(&self) {
        for entry in std::fs::read_dir(&self.root).expect("the workspace").flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = entry.path();
            let removed =
                if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            removed.expect("what a run left can be removed");
        }
        for (file, contents) in FILES {
            let file = self.root.join(file);
            std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
            std::fs::write(file, contents).expect("a file");
        }
        for (link, target) in LINKS {
            std::os::unix::fs::symlink(target, self.root.join(link)).expect("a link");
        }
    }

    /// An open file lies in the workspace.
    pub(super) fn check_inside(&self, open: BorrowedFd<'_>) {
        let path = real_path(open);
        assert!(path.starts_with(&self.root), "{} was opened", path.display());
    }

    /// Whether an inode is that of a file outside, or of the directory that holds it.
    pub(super) fn is_outside(&self, inode: u64) -> bool {
        let inode_of = |path: &Path| path.metadata().map_or(0, |metadata| metadata.ino());
        self.outside.iter().any(|(path, _)| {
            inode_of(path) == inode || path.parent().is_some_and(|parent| inode_of(parent) == inode)
        })
    }

    /// Nothing outside was made, changed or removed.
    pub(super) fn check_outside(&self) {
        assert_eq!(self.everything_outside(), self.outside);
    }

    fn everything_outside(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut directories = vec![self.base.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
                let path = entry.path();
                if path.is_file() {
                    let contents = std::fs::read(&path).expect("a file");
                    found.push((path, contents));
                } else if path != self.root {
                    found.push((path.clone(), Vec::new()));
                    directories.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.base);
    }
}
