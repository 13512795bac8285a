//! Watches with `strace` which paths a program names, and tells those that another process could have swapped for a
//! link: paths below a directory that fences can write, resolved by name and not from a descriptor of that directory.
//!
//! Watched are the program with its threads, and its children until each of them is confined: until it has a root of its
//! own or a Landlock domain, or has become another program.

mod system_call;
mod writable;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use self::system_call::SystemCall;
pub use self::writable::WritableDirectories;
use crate::parts::strace;
use crate::workspace_dir::{WorkspaceDir, workspace_dir};

/// Calls that take a path, and those that tell where a process comes from and when it is confined.
const TRACED: &str = "trace=%file,clone,clone3,fork,vfork,fchdir,landlock_restrict_self,bind,connect";

/// The words by which ringfence starts itself as a launcher.
const LAUNCHERS: [&str; 3] = ["\"fence-launch\"", "\"fence-zygote\"", "\"fence-probe\""];

/// The log of one watched program, one file for each thread and process.
#[derive(Debug)]
pub struct PathWatch {
    directory: WorkspaceDir,
}

/// What a watched program did in directories that fences can write.
#[derive(Debug, Default)]
pub struct WatchReport {
    /// Calls that followed a path by its name, each with its process.
    pub violations: Vec<String>,
    /// Calls that went through a descriptor, or let the kernel follow no link.
    pub sound: Vec<String>,
    /// The processes and threads that were watched.
    pub watched: BTreeSet<u32>,
}

impl PathWatch {
    pub fn new(name: &str) -> Self {
        Self { directory: workspace_dir(&format!("{name}-watch")) }
    }

    /// The words before a command that make it a watched one. The last process of the command ends the log.
    pub fn command(&self) -> Vec<OsString> {
        let mut words = strace();
        // -ff: a file for each thread, so that no line is interrupted. -y: descriptors with their paths.
        let options = ["-ff", "-y", "-qq", "-s", "4096", "-e", "signal=none", "-e", TRACED, "-o"];
        words.extend(options.map(OsString::from));
        words.push(self.log().into_os_string());
        words.push("--".into());
        words
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Reads the log of a program that was started as `pid` in `current_directory`, and has ended.
    pub fn report(&self, pid: u32, current_directory: &Path, writable: &WritableDirectories) -> WatchReport {
        let mut report = WatchReport::default();
        let mut waiting = vec![Task { pid, directory: current_directory.to_owned(), is_launcher: false }];
        while let Some(task) = waiting.pop() {
            if report.watched.insert(task.pid) {
                self.read(task, writable, &mut report, &mut waiting);
            }
        }
        assert!(report.watched.len() > 1 || self.text(pid).is_some(), "strace has written nothing");
        report
    }

    fn text(&self, pid: u32) -> Option<String> {
        let bytes = fs::read(self.directory.join(format!("log.{pid}"))).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the calls of one thread or process. Adds those that it makes to `waiting`.
    fn read(
        &self,
        mut task: Task,
        writable: &WritableDirectories,
        report: &mut WatchReport,
        waiting: &mut Vec<Task>,
    ) {
        // A thread that calls nothing of interest has an empty file.
        let Some(text) = self.text(task.pid) else { return };
        for line in text.lines() {
            let Some(call) = SystemCall::parse(line) else { continue };
            if call.name == "execve" && call.succeeded() {
                let is_launcher = LAUNCHERS.iter().any(|word| line.contains(word));
                if is_launcher || report.watched.len() == 1 {
                    task.is_launcher |= is_launcher;
                    continue;
                }
                return;
            }
            if let Some(child) = call.new_task() {
                let is_launcher = task.is_launcher || !call.makes_a_thread();
                waiting.push(Task { pid: child, directory: task.directory.clone(), is_launcher });
            }
            for used in call.paths(&task.directory) {
                let shown = || format!("{} {}: {line}", task.role(), task.pid);
                match writable.judge(&call, &used) {
                    writable::Verdict::Elsewhere => {}
                    writable::Verdict::Sound => report.sound.push(shown()),
                    writable::Verdict::ByName(why) => {
                        report.violations.push(format!("{why}\n    {}", shown()));
                    }
                }
            }
            if call.confines() && call.succeeded() {
                return;
            }
            if let Some(directory) = call.new_directory(&task.directory) {
                task.directory = directory;
            }
        }
    }
}

/// A thread or process of the watched program.
struct Task {
    pid: u32,
    /// Its working directory.
    directory: PathBuf,
    is_launcher: bool,
}

impl Task {
    fn role(&self) -> &'static str {
        if self.is_launcher { "launcher" } else { "gateway" }
    }
}

impl WatchReport {
    /// Fails with every call that followed a path by its name. Fails too if nothing was seen at all.
    #[track_caller]
    pub fn assert_sound(&self) {
        assert!(
            self.violations.is_empty(),
            "{} paths that a fence can change were followed by name:\n{}",
            self.violations.len(),
            self.violations.join("\n")
        );
        assert!(!self.sound.is_empty(), "the watcher saw no call in any of the directories");
    }

    /// Fails unless a call like this was seen, and was sound.
    #[track_caller]
    pub fn assert_saw(&self, role: &str, parts: &[&str]) {
        let is_it = |line: &&String| line.starts_with(role) && parts.iter().all(|part| line.contains(part));
        assert!(
            self.sound.iter().any(|line| is_it(&line)),
            "no {role} call with {parts:?} among\n{}",
            self.sound.join("\n")
        );
    }
}
