//! `ringfence session`: the commands that a user types, on real projects with real git.

mod beginning;
mod commits;
mod endpoints;
mod lifecycle;
mod review;
mod tasks;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Gateway, GatewayBuilder, Project, WorkspaceDir, ringfence_binary, workspace_dir};

/// A user with a project.
struct Desk {
    project: Project,
    home: WorkspaceDir,
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Desk {
    /// A project without git.
    fn plain(name: &str) -> Self {
        let project = Project::new(name);
        project.write("kept.txt", "one\ntwo\nthree\nfour\nfive\n");
        Self { project, home: workspace_dir("home") }
    }

    /// A repository with one commit.
    fn repository(name: &str) -> Self {
        let desk = Self::plain(name);
        desk.project.commit_all();
        desk
    }

    fn command(&self, directory: &Path, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(ringfence_binary());
        command.arg("session").args(words).current_dir(directory).env_remove("XDG_STATE_HOME");
        command.env("HOME", self.home.path()).env_remove("XDG_CACHE_HOME");
        command
    }

    /// Runs `ringfence session` in the project.
    fn session(&self, words: &[impl AsRef<OsStr>]) -> Ended {
        self.session_in(&self.project.path, words)
    }

    fn session_in(&self, directory: &Path, words: &[impl AsRef<OsStr>]) -> Ended {
        let Output { status, stdout, stderr } = self.command(directory, words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a command that must succeed.
    #[track_caller]
    fn succeeds(&self, words: &[impl AsRef<OsStr>]) -> Ended {
        let ended = self.session(words);
        assert_eq!(ended.code, 0, "{ended:?}");
        ended
    }

    /// Runs a command that must fail, and say something in the error.
    #[track_caller]
    fn fails(&self, words: &[impl AsRef<OsStr>], said: &str) -> Ended {
        let ended = self.session(words);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
        ended
    }

    /// Runs a script in a workspace, as an agent would.
    #[track_caller]
    fn agent(&self, name: &str, script: &str) -> String {
        self.succeeds(&["run", name, "--", "sh", "-ec", script]).stdout
    }

    /// A gateway of the same user.
    fn gateway(&self) -> GatewayBuilder {
        Gateway::built_in().env("HOME", self.home.path()).flag("--no-default-scope")
    }

    fn workspaces(&self) -> PathBuf {
        self.home.join(".local/state/ringfence/workspaces")
    }
}
