//! One installation: npm or uv in a fence of its own. The fence may write one tree and use the operator's network; it
//! reads the system and the tool, and nothing of the user.
//!
//! ```text
//! resolve   the registry ─► the lock, in the tree ─► Pins, checked
//! install   Pins ─► the lock, in the tree ─► the files, whose hashes npm or uv compares with it
//! ```
//! Code of packages runs in the second half at the earliest (for Python sources also in the first), and only if that is
//! allowed. By then the lock that counts is out of its reach.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fence::{
    Allowance, CacheChoice, Ending, FenceSettings, FenceSetup, FencedCommand, HardlinkChoice, LimitOrigin,
    Limits, Network, ReadChoice, ScopeChoice, Stdio,
};

use crate::error::PackageError;
use crate::installer::Installer;
use crate::pins::Pins;
use crate::program::{find_program, is_executable};
use crate::recognition::{Package, Tool};
use crate::tools::Step;
use crate::{registries, store, tools};

/// Long enough for a large package over a slow line.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How often the user hears that it goes on, when it takes long.
const NEWS_EVERY: Duration = Duration::from_secs(5);
/// Room for temporary files, such as sources that an installer compiles.
const TEMP_BYTES: u64 = 4 << 30;
/// How much of an installer's output is kept, from the end.
const MAX_LAST_WORDS: usize = 8 * 1024;
const MAX_LAST_LINES: usize = 20;
/// Lines of no use to users: stack traces in npm's own sources, and the note that its log is not kept.
const NOISE: &[&str] = &["    at ", "logs-max"];

/// The programs that an installation needs.
#[derive(Debug)]
pub(crate) struct Toolchain {
    tool: Tool,
    /// npm or uv.
    installer: PathBuf,
    /// node, or Python.
    interpreter: Option<PathBuf>,
}

impl Toolchain {
    /// Prefers the programs beside the launcher to others on the `PATH`.
    pub(crate) fn find(tool: Tool, launcher: &Path, search_path: &OsStr) -> Result<Self, PackageError> {
        let beside = launcher.with_file_name(tool.installer());
        let installer = if is_executable(&beside) {
            beside
        } else {
            find_program(OsStr::new(tool.installer()), search_path)?
        };
        let interpreter = match tool {
            Tool::Npx => "node",
            Tool::Uvx => "python3",
        };
        let interpreter = find_program(OsStr::new(interpreter), search_path).ok();
        Ok(Self { tool, installer, interpreter })
    }

    /// Changes when node is replaced, because native parts of a package may not fit the new one. Empty for Python: an
    /// environment contains the path of its interpreter.
    pub(crate) fn identity(&self) -> String {
        use std::os::unix::fs::MetadataExt;
        if self.tool == Tool::Uvx {
            return String::new();
        }
        let real = self.interpreter.as_ref().and_then(|path| path.canonicalize().ok());
        let Some((path, metadata)) = real.and_then(|path| Some((path.clone(), path.metadata().ok()?))) else {
            return String::new();
        };
        format!("{} {} {}", path.display(), metadata.len(), metadata.mtime())
    }
}

/// An installation under way. Its steps run one after the other in one fence, with one home and its caches.
#[allow(missing_debug_implementations, reason = "it borrows a closure")]
pub(crate) struct Installation<'a> {
    installer: &'a Installer<'a>,
    package: &'a Package,
    toolchain: &'a Toolchain,
    tree: &'a Path,
    setup: FenceSetup,
    began: Instant,
}

impl Installation<'_> {
    /// The installer and its version: `npm 11.2.0`. Call it before code of packages may run.
    pub(crate) fn version(&self) -> Result<String, PackageError> {
        self.step(Step::Version).map(|told| version(self.package.tool, &told))
    }

    /// Finds out what the registry offers now.
    pub(crate) fn resolve(&self) -> Result<Pins, PackageError> {
        tools::write_request(self.package, self.tree)
            .map_err(PackageError::directory("prepare the installation"))?;
        self.step(Step::Resolve)?;
        let lock = self.tree.join(Pins::file_name(self.package.tool));
        Pins::read(self.package.tool, &lock).map_err(|error| PackageError::not_pinned(self.package, &error))
    }

    /// Installs exactly these packages. Returns whether code of them ran.
    pub(crate) fn install(&self, pins: &Pins) -> Result<bool, PackageError> {
        pins.write_into(self.tree).map_err(PackageError::directory("write the lock"))?;
        match self.package.tool {
            _ if !self.package.install_scripts => self.step(Step::InstallOnly).map(|_| false),
            Tool::Npx => self.step(Step::InstallWithScripts).map(|_| !pins.with_install_scripts().is_empty()),
            // Requirements do not tell whether there is a wheel, but this does: nothing is built if it succeeds.
            Tool::Uvx if self.step(Step::InstallOnly).is_ok() => Ok(false),
            Tool::Uvx => self.step(Step::InstallWithScripts).map(|_| true),
        }
    }

    /// Runs one step, and returns the end of its output.
    fn step(&self, step: Step) -> Result<String, PackageError> {
        let (ending, last_words) = self.run(step)?;
        match ending {
            None => Err(PackageError::TooLong {
                installer: self.package.tool.installer(),
                package: self.package.specification(),
                minutes: PATIENCE.as_secs() / 60,
                last_words,
            }),
            Some(ending) if ending.exit_code() == 0 => Ok(last_words),
            Some(_) => Err(PackageError::of_installer(self.package, last_words)),
        }
    }

    /// Returns how the installer ended (`None`: not in time), and the end of its output.
    fn run(&self, step: Step) -> Result<(Option<Ending>, String), PackageError> {
        let installer = self.installer;
        let mut variables = installer.variables.to_vec();
        variables.extend(tools::variables(self.package, self.tree));
        let command = FencedCommand {
            program: self.toolchain.installer.clone(),
            arguments: tools::arguments(step, self.package, self.tree),
            variables,
            defaults: registries::variables(installer.host_environment),
            directory: Some(self.tree.to_owned()),
            ..FencedCommand::default()
        };
        let nothing = File::open("/dev/null").map_err(PackageError::directory("start"))?;
        let (reader, writer) = io::pipe().map_err(PackageError::directory("start"))?;
        let stdio = Stdio { stdin: nothing.as_fd(), stdout: writer.as_fd(), stderr: writer.as_fd() };
        let running = self.setup.launch(installer.launcher, command, stdio)?;
        drop(writer);
        let last_words = std::thread::spawn(move || last_words(reader));
        let ending = std::thread::scope(|scope| {
            // Dropped at the end of this scope, which ends the thread.
            let (_running, ended) = mpsc::channel::<()>();
            let news = News {
                tell: installer.progress,
                package: self.package,
                tree: self.tree,
                began: self.began,
                step,
            };
            scope.spawn(move || news.tell_until(&ended));
            running.attend_blocking(PATIENCE, |error| {
                tracing::warn!("the installer has lost its network: {error}");
            })
        })?;
        Ok((ending, last_words.join().unwrap_or_default()))
    }
}

/// What the user hears of a step that takes long.
struct News<'a> {
    tell: &'a (dyn Fn(&str) + Sync),
    package: &'a Package,
    tree: &'a Path,
    /// When the installation began.
    began: Instant,
    step: Step,
}

impl News<'_> {
    /// Tells now and then what is being done, until the other end of the channel is gone.
    fn tell_until(&self, ended: &Receiver<()>) {
        while ended.recv_timeout(NEWS_EVERY) == Err(RecvTimeoutError::Timeout) {
            (self.tell)(&format!(
                "still installing {} after {} s: {} {}, {} so far",
                self.package.specification(),
                self.began.elapsed().as_secs(),
                self.package.tool.installer(),
                self.step.in_words(),
                store::size_in_words(store::bytes_below(self.tree))
            ));
        }
    }
}

impl Installer<'_> {
    /// Puts up the fence of an installation.
    pub(crate) fn begin<'a>(
        &'a self,
        package: &'a Package,
        toolchain: &'a Toolchain,
        tree: &'a Path,
    ) -> Result<Installation<'a>, PackageError> {
        let settings = self.settings_of_fill();
        let scope = ScopeChoice::Own(tree);
        let mut setup = FenceSetup::new(&settings, scope, CacheChoice::Private, self.host_environment)?;
        let python = package.python.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        let programs = [Some(&toolchain.installer), toolchain.interpreter.as_ref(), python.as_ref()];
        for program in programs.into_iter().flatten() {
            setup.allow_program(program);
        }
        registries::furnish(&setup.session.home(), self.host_environment)
            .map_err(PackageError::directory("prepare the installation"))?;
        let installation =
            Installation { installer: self, package, toolchain, tree, setup, began: Instant::now() };
        if package.tool == Tool::Uvx {
            installation.step(Step::Environment)?;
        }
        Ok(installation)
    }

    /// The operator's settings are for the server. An installation keeps the strength of the fence and its network, but
    /// none of the directories, and none of the limits that were chosen for a server.
    fn settings_of_fill(&self) -> FenceSettings {
        let operator = self.settings;
        let is_default = |limit: &fence::Limit<u64>| limit.origin == LimitOrigin::Default;
        FenceSettings {
            write: Vec::new(),
            read: registries::readable(self.host_environment),
            read_mode: ReadChoice::Strict,
            temp_bytes: Some(TEMP_BYTES),
            allowances: operator
                .allowances
                .intersection(&BTreeSet::from([Allowance::Root]))
                .copied()
                .collect(),
            limits: Limits {
                memory: operator.limits.memory.filter(is_default),
                processes: operator.limits.processes.filter(is_default),
                ..Limits::default()
            },
            hardlinks: HardlinkChoice::Warn,
            metadata: fence::MetadataChoice::Writable,
            read_only: false,
            kept_caches: None,
            all_programs: false,
            // The packages belong to ringfence.
            user: None,
            ..operator.clone()
        }
    }
}

/// Whether no registry can be reached. One on this host's loopback can, if its port is mirrored.
pub(crate) fn is_off(network: &Network) -> bool {
    match network {
        Network::None => true,
        Network::Localhost { ports } => ports.is_empty(),
        Network::All | Network::Http { .. } | Network::Ports { .. } => false,
    }
}

/// The installer and its version, from what it said: `11.2.0`, or `uv 0.13.7 (…)`.
fn version(tool: Tool, told: &str) -> String {
    let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let version: String =
        told.split_whitespace().find(is_version).unwrap_or("unknown").chars().take(40).collect();
    format!("{} {version}", tool.installer())
}

/// Returns the end of an installer's output, in whole lines.
fn last_words(mut source: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                kept.extend_from_slice(&buffer[..length]);
                let surplus = kept.len().saturating_sub(MAX_LAST_WORDS);
                kept.drain(..surplus);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&kept);
    let is_printed = |c: char| !c.is_control() || c == '\t';
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.chars().filter(|c| is_printed(*c)).collect::<String>())
        .filter(|line| !line.trim().is_empty() && !NOISE.iter().any(|noise| line.contains(noise)))
        .collect();
    let first = lines.len().saturating_sub(MAX_LAST_LINES);
    lines[first..].iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_the_end_and_harmless_to_a_terminal() {
        let text: String = (0..100_000)
            .flat_map(|number| ["line ".to_owned(), number.to_string(), "\x1b[31m\n\n".to_owned()])
            .collect();
        let words = last_words(text.as_bytes());
        assert_eq!(words.lines().count(), MAX_LAST_LINES);
        assert!(words.ends_with("line 99999[31m") && !words.contains('\x1b'), "{words}");
        assert_eq!(last_words(&b""[..]), "");
    }
}
