//! Programs that `ringfence session` runs, each in a fence of its own: git in the project or in a copy of it.
//!
//! A copy is full of what its agent wrote, settings of git included, so nothing of it is ever read by a program outside
//! a fence. The project's own git runs in a fence, too, because it reads what comes from a copy.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use fence::{
    CacheChoice, FenceSettings, FenceSetup, FencedCommand, HostEnvironment, Launcher, Network, ScopeChoice,
    StagedScope, Stdio, VettedDirectory,
};

use super::error::SessionCommandError;
use crate::fenced::{FenceOptions, FencedCommandError, MetadataDefault, settings};
use crate::program;

/// Long enough for git to look through a large repository on a slow disk.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
/// The most of a program's output that is read into memory.
const MAX_OUTPUT: u64 = 64 << 20;
/// The most of a script's output that is kept.
const MAX_LOG: usize = 1 << 20;
/// How much of what a program complains about is told.
const MAX_COMPLAINT: usize = 2000;

/// Settings of every git: no hook of the project runs, and nothing is asked.
const QUIET: &[&str] = &[
    "-c",
    "safe.directory=*",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// Where a program works.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ground<'a> {
    /// In the project, which it can only read.
    Project(&'a VettedDirectory),
    /// In the project, whose objects and refs it can write.
    Repository(&'a VettedDirectory),
    /// In a copy at the place of its project.
    Copy(&'a VettedDirectory, &'a StagedScope),
}

/// What a program reads, and where its output goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a> {
    Nothing,
    Bytes(&'a [u8]),
    File(&'a File),
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) code: i32,
    /// Empty if the output went to a file.
    pub(super) output: Vec<u8>,
    /// The end of what it complained about, without control characters.
    pub(super) complaint: String,
}

impl Finished {
    /// The output, if the program succeeded.
    pub(super) fn success(self, what: &'static str) -> Result<Vec<u8>, SessionCommandError> {
        if self.code == 0 {
            Ok(self.output)
        } else {
            Err(SessionCommandError::Git { what, complaint: self.complaint })
        }
    }

    /// The first line of the output, if the program succeeded.
    pub(super) fn line(self) -> Option<String> {
        let text = String::from_utf8(self.output).ok().filter(|_| self.code == 0)?;
        text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Starts programs in fences.
#[derive(Debug)]
pub(super) struct FencedPrograms {
    host: HostEnvironment,
    launcher: Launcher,
    settings: FenceSettings,
}

/// The options of a fence, as if none was given.
#[derive(Debug, Parser)]
struct NoOptions {
    #[command(flatten)]
    fence: FenceOptions,
}

impl FencedPrograms {
    pub(super) fn new() -> Result<Self, SessionCommandError> {
        let settings = settings(&NoOptions::parse_from(["ringfence"]).fence, MetadataDefault::Kept)?;
        let settings = FenceSettings { network: Network::None, all_programs: true, ..settings };
        Ok(Self { host: HostEnvironment::of_this_process()?, launcher: Launcher::new(), settings })
    }

    pub(super) fn host(&self) -> &HostEnvironment {
        &self.host
    }

    /// Runs git. `None`: it is not installed.
    pub(super) fn git<'w>(
        &self,
        ground: Ground<'_>,
        words: impl IntoIterator<Item = &'w (impl AsRef<OsStr> + ?Sized + 'w)>,
    ) -> Result<Option<Finished>, SessionCommandError> {
        self.git_with(ground, words, Input::Nothing, None)
    }

    /// Runs git with input, and with a file for its output.
    pub(super) fn git_with<'w>(
        &self,
        ground: Ground<'_>,
        words: impl IntoIterator<Item = &'w (impl AsRef<OsStr> + ?Sized + 'w)>,
        input: Input<'_>,
        output: Option<&File>,
    ) -> Result<Option<Finished>, SessionCommandError> {
        let Ok(git) = program::find(OsStr::new("git"), &std::env::var_os("PATH").unwrap_or_default()) else {
            return Ok(None);
        };
        let arguments = QUIET.iter().map(OsString::from);
        let arguments = arguments.chain(words.into_iter().map(|word| word.as_ref().to_owned())).collect();
        self.run(ground, (git, arguments), input, output).map(Some)
    }

    /// Runs a script of the user in a copy, with a network and the caches of the workspace. The start of its output is
    /// written to `log`, and all of it to stderr. `None`: it was killed.
    pub(super) fn script(
        &self,
        (base, staged): (&VettedDirectory, &StagedScope),
        script: &OsStr,
        log: File,
    ) -> Result<Option<i32>, SessionCommandError> {
        let settings = FenceSettings { network: Network::All, ..self.settings.clone() };
        let scope = ScopeChoice::Staged { directories: std::slice::from_ref(base), staged };
        let caches = CacheChoice::Kept { owner: "" };
        let setup =
            FenceSetup::new(&settings, scope, caches, &self.host).map_err(FencedCommandError::from)?;
        let arguments = vec!["-c".into(), script.to_owned()];
        let command =
            FencedCommand { program: PathBuf::from("/bin/sh"), arguments, ..FencedCommand::default() };
        let failed = |error| FencedCommandError::Io { what: "cannot start", error };
        let nothing = Input::Nothing.open().map_err(failed)?;
        let (reader, writer) = io::pipe().map_err(failed)?;
        let stdio = Stdio { stdin: nothing.as_fd(), stdout: writer.as_fd(), stderr: writer.as_fd() };
        let running = setup.launch(&self.launcher, command, stdio).map_err(FencedCommandError::from)?;
        drop(writer);
        let carrier = std::thread::spawn(move || carry(reader, log));
        let ending = running.attend_blocking(PATIENCE, |error| {
            eprintln!("ringfence: the command has lost its network: {error}");
        });
        let _ = carrier.join();
        Ok(ending.map_err(FencedCommandError::from)?.map(|ending| ending.exit_code()))
    }

    fn run(
        &self,
        ground: Ground<'_>,
        (program, arguments): (PathBuf, Vec<OsString>),
        input: Input<'_>,
        output: Option<&File>,
    ) -> Result<Finished, SessionCommandError> {
        let setup = self.set_up(ground, &program)?;
        let variables = [("LC_ALL", "C"), ("GIT_TERMINAL_PROMPT", "0"), ("GIT_OPTIONAL_LOCKS", "0")];
        let command = FencedCommand {
            program,
            arguments,
            variables: variables.map(|(name, value)| (name.into(), value.into())).to_vec(),
            ..FencedCommand::default()
        };
        let failed = |error| FencedCommandError::Io { what: "cannot start", error };
        let input = input.open().map_err(failed)?;
        let (reader, writer) = io::pipe().map_err(failed)?;
        let (complaints, errors) = io::pipe().map_err(failed)?;
        let stdout = output.map_or(writer.as_fd(), AsFd::as_fd);
        let stdio = Stdio { stdin: input.as_fd(), stdout, stderr: errors.as_fd() };
        let running = setup.launch(&self.launcher, command, stdio).map_err(FencedCommandError::from)?;
        drop((writer, errors));
        let output = std::thread::spawn(move || read_start(reader));
        let complaint = std::thread::spawn(move || read_end(complaints));
        let ending = running.attend_blocking(PATIENCE, |_| ()).map_err(FencedCommandError::from)?;
        let output = output.join().unwrap_or_default();
        let complaint = complaint.join().unwrap_or_default();
        // Nothing of a program that was killed is taken for an answer.
        let code = ending.map_or(-1, |ending| ending.exit_code());
        Ok(Finished { code, output, complaint })
    }

    fn set_up(
        &self,
        ground: Ground<'_>,
        program: &std::path::Path,
    ) -> Result<FenceSetup, SessionCommandError> {
        let settings =
            FenceSettings { read_only: matches!(ground, Ground::Project(_)), ..self.settings.clone() };
        let scope = match &ground {
            Ground::Project(base) | Ground::Repository(base) => {
                ScopeChoice::Vetted(std::slice::from_ref(base))
            }
            Ground::Copy(base, staged) => {
                ScopeChoice::Staged { directories: std::slice::from_ref(base), staged }
            }
        };
        let setup = FenceSetup::new(&settings, scope, CacheChoice::Private, &self.host);
        let mut setup = setup.map_err(FencedCommandError::from)?;
        setup.allow_program(program);
        Ok(setup)
    }
}

impl Input<'_> {
    fn open(self) -> io::Result<OwnedFd> {
        match self {
            Self::Nothing => Ok(File::open("/dev/null")?.into()),
            Self::File(file) => Ok(file.try_clone()?.into()),
            Self::Bytes(bytes) => {
                let (reader, mut writer) = io::pipe()?;
                let bytes = bytes.to_vec();
                // A program that ends before it has read everything closes the pipe, which ends the thread.
                std::thread::spawn(move || writer.write_all(&bytes));
                Ok(reader.into())
            }
        }
    }
}

/// Reads the output up to its bound. A program that writes more is ended by the closed pipe.
fn read_start(source: impl Read) -> Vec<u8> {
    let mut output = Vec::new();
    // What was read before an error counts.
    let _ = source.take(MAX_OUTPUT).read_to_end(&mut output);
    output
}

/// Copies output to stderr, and its start to a file.
fn carry(mut source: impl Read, mut log: File) {
    let (mut room, mut buffer) = (MAX_LOG, vec![0; 16 * 1024]);
    while let Ok(length @ 1..) = source.read(&mut buffer) {
        let _ = io::stderr().write_all(&buffer[..length]);
        let kept = length.min(room);
        // A log that cannot be written is no reason to end the command.
        let _ = log.write_all(&buffer[..kept]);
        room -= kept;
    }
}

fn read_end(mut source: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 8 * 1024]);
    while let Ok(length @ 1..) = source.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(MAX_COMPLAINT);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    let printed = text.chars().map(|c| if c == '\n' || !c.is_control() { c } else { '\u{fffd}' });
    printed.collect::<String>().trim().to_owned()
}
