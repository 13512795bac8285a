//! Runs programs under `ringfence run` in one tier, with a scope and a home that only one test uses.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::fence::escapes::ground::{Caller, Ground, callers};

/// How long a program may run. Package tools fetch from registries, and compilers share the machine with other tests.
const PROGRAM_DEADLINE: Duration = Duration::from_secs(300);

/// A tier, and the directories in which its fenced programs run.
pub(crate) struct FencedRun {
    pub(crate) ground: Ground,
    pub(crate) tier: &'static str,
}

impl FencedRun {
    pub(crate) async fn new(tier: &'static str, caller: Caller) -> Self {
        Self { ground: Ground::new(caller).await, tier }
    }

    /// Both tiers, for the user who runs the tests.
    pub(crate) async fn in_each_tier() -> [Self; 2] {
        let caller = callers()[0];
        [Self::new("a", caller).await, Self::new("b", caller).await]
    }

    pub(crate) fn in_scope(&self, name: impl AsRef<Path>) -> PathBuf {
        self.ground.scope().join(name)
    }

    pub(crate) fn write_in_scope(&self, name: &str, text: &str) {
        std::fs::write(self.in_scope(name), text).unwrap();
        self.ground.belongs_to_caller();
    }

    /// `ringfence` with the environment of the tests, but its own home and no `TMPDIR` or `XDG_*`. A plain user has
    /// a bare environment.
    fn program(&self) -> Command {
        let mut command = self.ground.command(self.ground.ringfence());
        if self.ground.caller != Caller::Plain {
            let is_kept = |name: &OsStr| {
                name != "HOME" && name != "TMPDIR" && !name.as_encoded_bytes().starts_with(b"XDG_")
            };
            command.envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn with_options(&self, subcommand: &str, options: &[&str]) -> Command {
        let mut command = self.program();
        command.args([subcommand, "--tier", self.tier]);
        if self.tier == "a" && self.ground.caller.is_root() {
            command.arg("--allow-root");
        }
        command.args(options);
        command
    }

    /// `ringfence run` in the ground's scope, with the command that it runs.
    pub(crate) fn command(
        &self,
        options: &[&str],
        command: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        self.command_in(&self.ground.scope(), options, command)
    }

    /// As [`Self::command`], in another scope.
    pub(crate) fn command_in(
        &self,
        scope: &Path,
        options: &[&str],
        command: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        let mut fenced = self.with_options("run", options);
        fenced.arg("--scope").arg(scope).arg("--").args(command);
        fenced
    }

    pub(crate) async fn run(
        &self,
        options: &[&str],
        command: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Ended {
        self.finish(self.command(options, command)).await
    }

    /// Runs a script with `sh` under `ringfence run`.
    pub(crate) async fn sh(&self, options: &[&str], script: &str) -> Ended {
        self.run(options, ["sh", "-c", script]).await
    }

    /// Runs a script under `ringfence sandboxed_shell`, whose scope is its working directory.
    pub(crate) async fn sandboxed_shell(&self, options: &[&str], script: &str) -> Ended {
        let mut command = self.with_options("sandboxed_shell", options);
        command.arg("--working-directory").arg(self.ground.scope()).arg("--").arg(script);
        self.finish(command).await
    }

    pub(crate) async fn finish(&self, mut command: Command) -> Ended {
        let child = command.spawn().unwrap();
        let Ok(output) = timeout(PROGRAM_DEADLINE, child.wait_with_output()).await else {
            panic!("tier {}: {command:?} did not end within {PROGRAM_DEADLINE:?}", self.tier);
        };
        Ended::new(self.tier, &output.unwrap())
    }

    /// As [`Self::finish`], with `input` on stdin; returns the raw output.
    pub(crate) async fn finish_with_input(&self, mut command: Command, input: Vec<u8>) -> Output {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writing = tokio::spawn(async move { stdin.write_all(&input).await });
        let Ok(output) = timeout(PROGRAM_DEADLINE, child.wait_with_output()).await else {
            panic!("tier {}: {command:?} did not end within {PROGRAM_DEADLINE:?}", self.tier);
        };
        writing.await.unwrap().unwrap();
        output.unwrap()
    }
}

/// The outcome of a fenced program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tier: &'static str,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn new(tier: &'static str, output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { tier, code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Panics with all output unless the program exited with 0.
    #[must_use]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    pub(crate) fn assert_stdout(&self, expected: &str) {
        assert_eq!(self.stdout, expected, "{self:?}");
    }

    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
    }

    /// The last line of stdout as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The report that `--report --json` prints on stderr.
    pub(crate) fn report(&self) -> serde_json::Value {
        let line = self.stderr.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("no report in {self:?}"))).unwrap()
    }
}

/// The registry that npm uses outside the fence. A fenced program does not
/// see the settings in the caller's home, so tests name it.
pub(crate) async fn npm_registry() -> String {
    asked("npm", &["config", "get", "registry"]).await.unwrap()
}

/// The package index that pip uses outside the fence: from its settings, or its built-in default.
pub(crate) async fn pip_index() -> String {
    let python = testkit::python_binary();
    let python = python.to_str().unwrap();
    let built_in = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";
    match asked(python, &["-m", "pip", "config", "get", "global.index-url"]).await {
        Some(index) => index,
        None => asked(python, &["-c", built_in]).await.unwrap(),
    }
}

/// Runs a program outside any fence and returns its output; `None` if it fails.
async fn asked(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().await.unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
