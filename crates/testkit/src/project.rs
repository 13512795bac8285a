//! A directory that sessions work in.

use std::path::PathBuf;

use crate::protocol::file_uri;
use crate::workspace_dir::{WorkspaceDir, workspace_dir};

/// A project directory, removed when this is dropped.
#[derive(Debug)]
pub struct Project {
    /// The canonical path, without symbolic links.
    pub path: PathBuf,
    _directory: WorkspaceDir,
}

impl Project {
    /// An empty directory; `name` only makes it recognisable.
    pub fn new(name: &str) -> Self {
        let directory = workspace_dir(name);
        let path = directory.path().canonicalize().expect("the directory exists");
        Self { path, _directory: directory }
    }

    pub fn join(&self, below: &str) -> PathBuf {
        self.path.join(below)
    }

    /// Writes a file directly, not through a session.
    pub fn write(&self, below: &str, contents: impl AsRef<[u8]>) {
        let path = self.join(below);
        let parent = path.parent().expect("a file lies in a directory");
        std::fs::create_dir_all(parent).expect("the project is writable");
        std::fs::write(path, contents).expect("the project is writable");
    }

    pub fn bytes(&self, below: &str) -> Vec<u8> {
        std::fs::read(self.join(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
    }

    pub fn text(&self, below: &str) -> String {
        String::from_utf8(self.bytes(below)).expect("the file is text")
    }

    /// Returns true if the name exists, even as a dangling link.
    pub fn has(&self, below: &str) -> bool {
        self.join(below).symlink_metadata().is_ok()
    }

    pub fn uri(&self, below: &str) -> String {
        file_uri(&self.join(below))
    }

    /// Runs git directly, not through a session.
    pub fn git(&self, arguments: &[&str]) -> String {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
        let output = std::process::Command::new("git")
            .args(identity)
            .args(arguments)
            .current_dir(&self.path)
            .output()
            .expect("git is installed");
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("git prints text")
    }

    /// Makes it a repository with everything committed.
    pub fn commit_all(&self) {
        self.git(&["init", "--quiet", "--initial-branch", "main"]);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "as it was"]);
    }
}
