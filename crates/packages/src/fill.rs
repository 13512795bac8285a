//! One installation: npm or uv in a fence of its own. The fence may write one tree and use the operator's network; it
//! reads the system and the tool, and nothing of the user.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fence::{
    Allowance, CacheChoice, Ending, FenceSettings, FenceSetup, FencedCommand, HardlinkChoice, LimitOrigin,
    Limits, Network, ReadChoice, ScopeChoice, Stdio,
};

use crate::error::PackageError;
use crate::installer::Installer;
use crate::program::{find_program, is_executable};
use crate::recognition::{Package, Tool};
use crate::{registries, tools};

/// Long enough for a large package over a slow line.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
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

impl Installer<'_> {
    /// Runs the installer. The caller examines the tree.
    pub(crate) fn fill(
        &self,
        package: &Package,
        toolchain: &Toolchain,
        tree: &Path,
    ) -> Result<(), PackageError> {
        let settings = self.settings_of_fill();
        let scope = ScopeChoice::Own(tree);
        let mut setup = FenceSetup::new(&settings, scope, CacheChoice::Private, self.host_environment)?;
        let (ending, last_words) = self.run(package, toolchain, tree, &mut setup)?;
        let (installer, package) = (package.tool.installer(), package.specification());
        match ending {
            None => {
                let minutes = PATIENCE.as_secs() / 60;
                Err(PackageError::TooLong { installer, package, minutes, last_words })
            }
            Some(ending) if ending.exit_code() == 0 => Ok(()),
            Some(_) => Err(PackageError::Install { installer, package, last_words }),
        }
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
            protect_metadata: false,
            read_only: false,
            all_programs: false,
            ..operator.clone()
        }
    }

    /// Returns how the installer ended (`None`: not in time), and the end of its output.
    fn run(
        &self,
        package: &Package,
        toolchain: &Toolchain,
        tree: &Path,
        setup: &mut FenceSetup,
    ) -> Result<(Option<Ending>, String), PackageError> {
        let python = package.python.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        let programs = [Some(&toolchain.installer), toolchain.interpreter.as_ref(), python.as_ref()];
        for program in programs.into_iter().flatten() {
            setup.allow_program(program);
        }
        registries::furnish(&setup.session.home(), self.host_environment)
            .map_err(PackageError::directory("prepare the installation"))?;
        let mut variables = self.variables.to_vec();
        variables.extend(tools::variables(package.tool, tree));
        let command = FencedCommand {
            program: toolchain.installer.clone(),
            arguments: tools::arguments(package, tree),
            variables,
            defaults: registries::variables(self.host_environment),
            directory: Some(tree.to_owned()),
            ..FencedCommand::default()
        };
        let nothing = File::open("/dev/null").map_err(PackageError::directory("start"))?;
        let (reader, writer) = io::pipe().map_err(PackageError::directory("start"))?;
        let stdio = Stdio { stdin: nothing.as_fd(), stdout: writer.as_fd(), stderr: writer.as_fd() };
        let running = setup.launch(self.launcher, command, stdio)?;
        drop(writer);
        let last_words = std::thread::spawn(move || last_words(reader));
        let ending = running.attend_blocking(PATIENCE, |error| {
            tracing::warn!("the installer has lost its network: {error}");
        })?;
        Ok((ending, last_words.join().unwrap_or_default()))
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
