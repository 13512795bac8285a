//! The directories that fenced commands use in tests, below one that a plain user can reach: the programs, a
//! scope, a place outside the scope, and a home.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FlockOperation;
use testkit::{WorkspaceDir, attacker_binary, ringfence_binary, workspace_dir};
use tokio::process::Command;

/// A user id that no account is expected to have.
const PLAIN_UID: u32 = 64_123;

/// The user that starts ringfence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Root,
    /// A plain user, while root runs the tests.
    Plain,
    /// The user who runs the tests, if that is not root.
    Own,
}

/// Root and a plain user if root runs the tests; otherwise only the user who runs them.
pub(crate) fn callers() -> Vec<Caller> {
    if rustix::process::geteuid().is_root() { vec![Caller::Root, Caller::Plain] } else { vec![Caller::Own] }
}

impl Caller {
    pub(crate) fn is_root(self) -> bool {
        self == Self::Root
    }

    /// A command that runs as this caller.
    pub(crate) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        if self == Self::Plain {
            command.uid(PLAIN_UID).gid(PLAIN_UID);
        }
        command
    }

    fn owns(self, path: &Path) {
        if self != Self::Plain {
            return;
        }
        lchown(path, Some(PLAIN_UID), Some(PLAIN_UID)).unwrap();
        if path.symlink_metadata().unwrap().is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                self.owns(&entry.unwrap().path());
            }
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::Plain => "a plain user",
            Self::Own => "this user",
        })
    }
}

/// The directories of one test, which are removed when this is dropped.
pub(crate) struct Ground {
    pub(crate) caller: Caller,
    directory: GroundDirectory,
}

impl Ground {
    pub(crate) async fn new(caller: Caller) -> Self {
        let ground = Self { caller, directory: GroundDirectory::new() };
        for directory in [ground.scope(), ground.outside(), ground.home(), ground.programs()] {
            std::fs::create_dir(directory).unwrap();
        }
        for program in [ringfence_binary(), attacker_binary()] {
            copy_program(&program, &ground.programs()).await;
        }
        ground.belongs_to_caller();
        ground
    }

    pub(crate) fn scope(&self) -> PathBuf {
        self.directory.path().join("scope")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub(crate) fn programs(&self) -> PathBuf {
        self.directory.path().join("programs")
    }

    pub(crate) fn ringfence(&self) -> PathBuf {
        self.programs().join("ringfence")
    }

    pub(crate) fn attacker(&self) -> PathBuf {
        self.programs().join("ringfence-attacker")
    }

    /// Gives the caller ownership of everything made here so far.
    pub(crate) fn belongs_to_caller(&self) {
        self.caller.owns(self.directory.path());
    }

    /// A command that runs as the caller in the scope, with a minimal environment.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.caller.command(program);
        command.env_clear().env("HOME", self.home()).env("PATH", "/usr/bin:/bin").current_dir(self.scope());
        command
    }
}

/// Copies with `cp`. If this process wrote the copy itself, a child forked meanwhile by another thread would
/// inherit the open file, and executing the copy would fail as long as that child holds it.
pub(crate) async fn copy_program(program: &Path, to: &Path) {
    let status = Command::new("cp").arg(program).arg(to).status().await.unwrap();
    assert!(status.success(), "{} cannot be copied", program.display());
}

/// Whether another process holds a lock on the file.
pub(crate) fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

enum GroundDirectory {
    InTarget(WorkspaceDir),
    /// Below /var/lib, if other users cannot reach the target directory.
    InState(PathBuf),
}

impl GroundDirectory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let in_target = workspace_dir("fence");
        let is_own_user = !rustix::process::geteuid().is_root();
        if is_own_user || in_target.path().ancestors().all(lets_others_pass) {
            return Self::InTarget(in_target);
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/var/lib/ringfence-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self::InState(path)
    }

    fn path(&self) -> &Path {
        match self {
            Self::InTarget(directory) => directory.path(),
            Self::InState(path) => path,
        }
    }
}

impl Drop for GroundDirectory {
    fn drop(&mut self) {
        if let Self::InState(path) = self {
            drop(std::fs::remove_dir_all(path));
        }
    }
}

fn lets_others_pass(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|metadata| metadata.mode() & 0o001 != 0)
}
