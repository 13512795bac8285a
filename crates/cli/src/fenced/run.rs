//! `ringfence run`: sets the fence up, runs the command in it, passes signals on, and prints how it ended.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fence::{
    CacheChoice, Ending, FenceSettings, FenceSetup, FencedCommand, HardlinkChoice, HostEnvironment, Launcher,
    LimitHit, Remote, RunningFence, ScopeChoice, SharedFiles, StagedScope, VettedDirectory, shared_files,
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::error::FencedCommandError;
use super::options::{FenceOptions, RunArguments, RunningOptions, ShellArguments};
use super::report;
use super::settings::{MetadataDefault, settings};
use super::standard_streams::StandardStreams;
use crate::environment::left_out;
use crate::program;

/// How long a command may take to end after SIGTERM. Other signals may have another meaning to it.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, FencedCommandError> {
    let directory = working_directory(None)?;
    run_in(&arguments.fence, &arguments.running, None, directory, &arguments.command)
}

/// Runs a command in a copy, which it finds at the place of `base`.
pub(crate) fn run_in_copy(
    arguments: &RunArguments,
    base: &VettedDirectory,
    staged: &StagedScope,
) -> Result<ExitCode, FencedCommandError> {
    let copy = Some(Copy { base, staged });
    run_in(&arguments.fence, &arguments.running, copy, working_directory(None)?, &arguments.command)
}

/// What a command finds at the place of a project.
#[derive(Clone, Copy)]
struct Copy<'a> {
    base: &'a VettedDirectory,
    staged: &'a StagedScope,
}

pub(crate) fn run_shell(arguments: &ShellArguments) -> Result<ExitCode, FencedCommandError> {
    let directory = working_directory(arguments.working_directory.as_deref())?;
    let script = arguments.script.join(std::ffi::OsStr::new(" "));
    run_in(&arguments.fence, &arguments.running, None, directory, &["/bin/sh".into(), "-c".into(), script])
}

fn working_directory(named: Option<&Path>) -> Result<PathBuf, FencedCommandError> {
    let directory = match named {
        Some(named) => named.canonicalize(),
        None => std::env::current_dir(),
    };
    directory.map_err(|error| FencedCommandError::Io { what: "cannot enter the working directory", error })
}

fn run_in(
    options: &FenceOptions,
    running: &RunningOptions,
    copy: Option<Copy<'_>>,
    directory: PathBuf,
    command: &[OsString],
) -> Result<ExitCode, FencedCommandError> {
    let settings = FenceSettings { all_programs: true, ..settings(options, MetadataDefault::Writable)? };
    let host_environment = HostEnvironment::of_this_process()?;
    let default = [directory.clone()];
    let scope = if options.scope.is_empty() { &default[..] } else { &options.scope };
    let scope = match &copy {
        Some(Copy { base, staged }) => {
            ScopeChoice::Staged { directories: std::slice::from_ref(base), staged }
        }
        None => ScopeChoice::Directories(scope),
    };
    let mut setup = FenceSetup::new(&settings, scope, CacheChoice::Kept { owner: "" }, &host_environment)?;
    if running.report {
        setup.look_for_shared_files();
    }
    for left_out in &setup.git_left_out {
        eprintln!("ringfence: {}", left_out.warning());
    }
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let program = program::find(&command[0], &search_path)?;
    setup.allow_program(&program);
    let launcher = Launcher::new();
    setup.plan(&launcher)?;
    if launcher.kernel().is_root {
        eprintln!(
            "ringfence: running as root: without capabilities, but what root owns in the scope is root's"
        );
    }
    let command = FencedCommand {
        program,
        arguments: command[1..].to_vec(),
        variables: variables(running, &host_environment)?,
        directory: Some(starting_directory(&setup, directory)),
        ..FencedCommand::default()
    };
    let (ending, is_flooded) = execute(&setup, settings.hardlinks, &launcher, command, running)?;
    print_ending(ending, running.max_output.filter(|_| is_flooded));
    for warning in setup.clean_up().warnings() {
        eprintln!("ringfence: {warning}");
    }
    host_environment.trim_caches(&settings);
    Ok(ExitCode::from(u8::try_from(ending.exit_code()).unwrap_or(u8::MAX)))
}

/// The variables that the options add to the environment.
fn variables(
    running: &RunningOptions,
    host_environment: &HostEnvironment,
) -> Result<Vec<(OsString, OsString)>, FencedCommandError> {
    let mut result = Vec::new();
    for variable in &running.env {
        if fence::environment::is_stripped(OsStr::new(variable.name())) {
            eprintln!("ringfence: {}", left_out(variable));
        } else {
            result.push((variable.name().into(), variable.value_in(&host_environment.environment)?));
        }
    }
    for variable in &running.force_env {
        result.push((variable.name().into(), variable.value_in(&host_environment.environment)?));
    }
    Ok(result)
}

/// Runs the command to its end. Returns true with it if the command was killed for too much output.
fn execute(
    setup: &FenceSetup,
    hardlinks: HardlinkChoice,
    launcher: &Launcher,
    command: FencedCommand,
    running: &RunningOptions,
) -> Result<(Ending, bool), FencedCommandError> {
    let io_error = |error| FencedCommandError::Io { what: "cannot start", error };
    // Signals that come from now on are for the command.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io_error)?;
    let entered = runtime.enter();
    let mut signals = Signals::listen().map_err(io_error)?;
    let mut streams = StandardStreams::prepare(running.max_output).map_err(io_error)?;
    if running.report {
        // The report shows what was tried, in a fence like the one that the command gets.
        print_report(&setup.self_test(launcher)?, running.json);
    }
    let fence = setup.launch(launcher, command, streams.stdio())?;
    let flooded = streams.flooded.take();
    let carriers = streams.release();
    match &setup.shared {
        // Nothing of a copy is shared with files outside.
        None if hardlinks == HardlinkChoice::Warn && setup.policy.staged.is_none() => {
            warn_of_shared_files(setup.policy.scope.clone());
        }
        Some(shared) if shared.count > 0 => print_shared_files(shared),
        _ => {}
    }
    let ended = runtime.block_on(async {
        let ended = attend(fence, &mut signals, flooded).await?;
        // A reader that does not read holds up the rest of the output, until the user interrupts twice.
        let finished = tokio::task::spawn_blocking(|| carriers.finish());
        tokio::select! {
            _ = finished => {}
            () = signals.second() => {}
        }
        Ok(ended)
    });
    drop(entered);
    // A thread may still write for a reader that does not read.
    runtime.shutdown_background();
    ended
}

/// The working directory if it is inside the scope, else the scope.
fn starting_directory(setup: &FenceSetup, directory: PathBuf) -> PathBuf {
    let scope = setup.scope_paths();
    if scope.iter().any(|root| directory.starts_with(root)) { directory } else { scope[0].clone() }
}

fn print_report(confinement: &fence::Confinement, as_json: bool) {
    if as_json {
        eprintln!("{}", serde_json::json!(confinement));
    } else {
        eprint!("{}", report::table(confinement, &io::stderr()));
    }
}

/// Searches while the command runs, because the scope may be large.
fn warn_of_shared_files(scope: Vec<VettedDirectory>) {
    std::thread::spawn(move || {
        let shared = shared_files(&scope);
        if shared.count > 0 {
            print_shared_files(&shared);
        }
    });
}

fn print_shared_files(shared: &SharedFiles) {
    let example = shared.examples.first().map(|path| path.display().to_string()).unwrap_or_default();
    eprintln!(
        "ringfence: {} files of the scope have another name outside it and can be changed through their name \
         inside, for example {example}; see --hardlinks",
        shared.count
    );
}

/// Attends to the command, passes signals on, and ends it when it writes too much.
async fn attend(
    mut fence: RunningFence,
    signals: &mut Signals,
    flooded: Option<tokio::sync::oneshot::Receiver<()>>,
) -> Result<(Ending, bool), FencedCommandError> {
    let mut remote =
        fence.remote().map_err(|error| FencedCommandError::Io { what: "cannot start", error })?;
    let ended = fence.attend(|error| eprintln!("ringfence: the network of the command failed: {error}"));
    let flood = async {
        let is_over = match flooded {
            Some(flooded) => flooded.await.is_ok(),
            None => false,
        };
        if !is_over {
            std::future::pending::<()>().await;
        }
    };
    let (mut is_flooded, mut is_ending) = (false, false);
    let deadline = tokio::time::sleep(GRACE);
    tokio::pin!(ended, flood, deadline);
    loop {
        tokio::select! {
            // In this order: a command may end because its output is read no more.
            biased;
            () = &mut flood, if !is_flooded => {
                is_flooded = true;
                remote.kill();
            }
            signal = signals.next() => {
                pass_on(&mut remote, signal, signals.count > 1);
                if signal == Signal::TERM {
                    deadline.as_mut().reset(tokio::time::Instant::now() + GRACE);
                    is_ending = true;
                }
            }
            () = &mut deadline, if is_ending => {
                is_ending = false;
                remote.kill();
            }
            ending = &mut ended => return Ok((ending?, is_flooded)),
        }
    }
}

/// Passes the first signal on to the command; the second kills it.
fn pass_on(remote: &mut Remote, signal: Signal, is_second: bool) {
    if is_second && signal != Signal::WINCH {
        remote.kill();
    } else {
        let _ = remote.signal(signal);
    }
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    window: tokio::signal::unix::Signal,
    /// How many signals have asked for an end.
    count: usize,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            window: signal(SignalKind::window_change())?,
            count: 0,
        })
    }

    /// Resolves when two signals have asked for an end.
    async fn second(&mut self) {
        while self.count < 2 {
            self.next().await;
        }
    }

    async fn next(&mut self) -> Signal {
        let next = self.any().await;
        if next != Signal::WINCH {
            self.count += 1;
        }
        next
    }

    async fn any(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.window.recv() => Signal::WINCH,
        }
    }
}

fn print_ending(ending: Ending, flood: Option<u64>) {
    const FILE_TOO_LONG: i32 = 25; // SIGXFSZ
    const BAD_SYSTEM_CALL: i32 = 31; // SIGSYS
    if let Some(bytes) = flood {
        eprintln!("ringfence: the command was ended: it wrote more than the output limit of {bytes} bytes");
        return;
    }
    if ending.mount_lost {
        eprintln!("ringfence: the command was ended: a program outside replaced a file that the fence keeps");
        return;
    }
    match (ending.limit, ending.signal) {
        (Some(LimitHit::Memory { bytes }), _) => {
            eprintln!(
                "ringfence: the memory limit of {} MiB was reached, and processes were killed",
                bytes >> 20
            );
        }
        (Some(LimitHit::Processes { count }), _) => {
            eprintln!("ringfence: the process limit of {count} was reached");
        }
        (None, Some(FILE_TOO_LONG)) => {
            eprintln!("ringfence: the command was ended: a file reached the size limit");
        }
        (None, Some(BAD_SYSTEM_CALL)) => {
            eprintln!("ringfence: the command was ended: 32-bit programs cannot run inside the fence");
        }
        _ => {}
    }
}
