//! `ringfence run`: arranges the fence, starts the command in it, waits, and tells how it ended.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fence::network::{AllowedHosts, Listeners};
use fence::scope_scan::{post_run_scan, shared_files};
use fence::{
    CacheChoice, Command, Ending, FenceSettings, FenceSetup, Fenced, HardlinkChoice, HostEnvironment,
    Launcher, LimitHit, Plan, ReadChoice, Remote, ScopeChoice,
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::failure::FenceFailure;
use super::options::{FenceOptions, RunArguments, RunningOptions, ShellArguments};
use super::report;
use super::settings::settings;
use super::standard_streams::StandardStreams;
use crate::environment::left_out;
use crate::program;

/// What a command may take to end after SIGTERM. Other signals may mean something else to it.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, FenceFailure> {
    let directory = working_directory(None)?;
    run_in(&arguments.fence, &arguments.running, directory, &arguments.command)
}

pub(crate) fn run_shell(arguments: &ShellArguments) -> Result<ExitCode, FenceFailure> {
    let directory = working_directory(arguments.working_directory.as_deref())?;
    let script = arguments.script.join(std::ffi::OsStr::new(" "));
    run_in(&arguments.fence, &arguments.running, directory, &["/bin/sh".into(), "-c".into(), script])
}

fn working_directory(named: Option<&Path>) -> Result<PathBuf, FenceFailure> {
    let directory = match named {
        Some(named) => named.canonicalize(),
        None => std::env::current_dir(),
    };
    directory.map_err(|error| FenceFailure::Io { what: "cannot enter the working directory", error })
}

fn run_in(
    options: &FenceOptions,
    running: &RunningOptions,
    directory: PathBuf,
    command: &[OsString],
) -> Result<ExitCode, FenceFailure> {
    let settings = settings(options, ReadChoice::Open)?;
    let host_environment = HostEnvironment::of_this_process()?;
    let default = [directory.clone()];
    let scope = if options.scope.is_empty() { &default[..] } else { &options.scope };
    let scope = ScopeChoice::Directories(scope);
    let mut setup = FenceSetup::new(&settings, scope, CacheChoice::KeptForScope, &host_environment)?;
    let site = Site { launcher: Launcher::new(), settings, host_environment };
    let result = site.run(&mut setup, running, directory, command);
    if let Err(error) = setup.session.remove() {
        eprintln!("ringfence: the session's files could not be removed: {error}");
    }
    result
}

/// What the steps of one run need beside the setup.
struct Site {
    launcher: Launcher,
    settings: FenceSettings,
    host_environment: HostEnvironment,
}

impl Site {
    fn run(
        &self,
        setup: &mut FenceSetup,
        running: &RunningOptions,
        directory: PathBuf,
        command: &[OsString],
    ) -> Result<ExitCode, FenceFailure> {
        if running.report {
            setup.look_for_shared_files();
        }
        let search_path = std::env::var_os("PATH").unwrap_or_default();
        let program = program::find(&command[0], &search_path)?;
        setup.make_readable(&program, &self.host_environment);
        let kernel = self.launcher.kernel();
        let plan = fence::plan(&setup.policy, &kernel)?;
        if kernel.is_root {
            eprintln!(
                "ringfence: running as root: without capabilities, but what root owns in the scope is root's"
            );
        }
        let command = Command {
            program,
            arguments: command[1..].to_vec(),
            environment: self.environment(setup, &plan, running)?,
            directory: starting_directory(setup, directory),
        };
        let began = now();
        let (ending, is_flooded) = self.execute(setup, &plan, &command, running)?;
        tell_ending(ending, running.max_output.filter(|_| is_flooded));
        tell_aftermath(setup, began);
        Ok(ExitCode::from(u8::try_from(ending.exit_code()).unwrap_or(u8::MAX)))
    }

    /// The whole environment of the command.
    fn environment(
        &self,
        setup: &FenceSetup,
        plan: &Plan,
        running: &RunningOptions,
    ) -> Result<Vec<(OsString, OsString)>, FenceFailure> {
        let mut result = setup.environment(plan, &self.host_environment)?;
        let parent = &self.host_environment.environment;
        for variable in &running.env {
            if fence::environment::is_stripped(OsStr::new(variable.name())) {
                eprintln!("ringfence: {}", left_out(variable));
            } else {
                result.insert(variable.name().into(), variable.value_in(parent)?);
            }
        }
        for variable in &running.force_env {
            result.insert(variable.name().into(), variable.value_in(parent)?);
        }
        Ok(result.into_iter().collect())
    }

    fn execute(
        &self,
        setup: &FenceSetup,
        plan: &Plan,
        command: &Command,
        running: &RunningOptions,
    ) -> Result<(Ending, bool), FenceFailure> {
        let io_failure = |error| FenceFailure::Io { what: "cannot start", error };
        // Signals that come from now on are for the command.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io_failure)?;
        let entered = runtime.enter();
        let mut signals = Signals::listen().map_err(io_failure)?;
        let mut streams = StandardStreams::prepare(running.max_output).map_err(io_failure)?;
        if running.report {
            // What is printed has been tried, in a fence like the one that the command gets.
            print_report(&self.launcher.self_test(plan, self.host_environment.outside())?, running.json);
        }
        let mut fenced =
            self.launcher.launch(plan, command, streams.stdio(), self.host_environment.outside())?;
        let flooded = streams.flooded.take();
        let carriers = streams.release();
        if setup.shared.is_none() && self.settings.hardlinks == HardlinkChoice::Warn {
            warn_of_shared_files(setup.scope_paths());
        } else if let Some(shared) = setup.shared.as_ref().filter(|shared| shared.count > 0) {
            print_shared_files(shared);
        }
        let listeners = std::mem::take(&mut fenced.listeners);
        let hosts = AllowedHosts::of(&setup.policy.network);
        let ended = runtime.block_on(async {
            let ended = attend(fenced, &mut signals, listeners, hosts, flooded).await?;
            // A reader that does not read may hold the rest of the output up, but not a user who is impatient.
            let finished = tokio::task::spawn_blocking(|| carriers.finish());
            tokio::select! {
                _ = finished => {}
                () = signals.second() => {}
            }
            Ok(ended)
        });
        drop(entered);
        // Whoever still writes for a reader that does not read is left behind.
        runtime.shutdown_background();
        ended
    }
}

/// Where the user is, if that is inside; else the scope.
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

/// While the command runs: its scope may be large.
fn warn_of_shared_files(scope: Vec<PathBuf>) {
    std::thread::spawn(move || {
        let shared = shared_files(&scope);
        if shared.count > 0 {
            print_shared_files(&shared);
        }
    });
}

fn print_shared_files(shared: &fence::scope_scan::SharedFiles) {
    let example = shared.examples.first().map(|path| path.display().to_string()).unwrap_or_default();
    eprintln!(
        "ringfence: {} files of the scope have another name outside it and can be changed through their name \
         inside, for example {example}; see --hardlinks",
        shared.count
    );
}

/// Serves the command's network, passes signals on, and waits for its end.
async fn attend(
    mut fenced: Fenced,
    signals: &mut Signals,
    listeners: Listeners,
    hosts: AllowedHosts,
    flooded: Option<tokio::sync::oneshot::Receiver<()>>,
) -> Result<(Ending, bool), fence::LaunchError> {
    let mut remote = fenced.remote()?;
    let mut ended = tokio::task::spawn_blocking(move || fenced.wait());
    let network = async {
        if !listeners.is_empty()
            && let Err(error) = fence::network::serve(listeners, hosts).await
        {
            eprintln!("ringfence: the network of the command failed: {error}");
        }
        std::future::pending::<()>().await;
    };
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
    tokio::pin!(network, flood, deadline);
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
            ending = &mut ended => return Ok((ending.map_err(io::Error::other)??, is_flooded)),
            () = &mut network => {}
        }
    }
}

/// The first signal is the command's to answer; the second is the user's impatience.
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
    /// How many have come that ask for an end.
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

    /// Resolves when an end was asked for twice.
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

fn tell_ending(ending: Ending, flood: Option<u64>) {
    const FILE_TOO_LONG: i32 = 25; // SIGXFSZ
    const BAD_SYSTEM_CALL: i32 = 31; // SIGSYS
    if let Some(bytes) = flood {
        eprintln!("ringfence: the command was ended: it wrote more than the output limit of {bytes} bytes");
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

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

/// What a command left that could act later, outside.
fn tell_aftermath(setup: &FenceSetup, began: i64) {
    let left = post_run_scan(&setup.scope_paths(), began);
    for path in &left.set_id {
        eprintln!("ringfence: {} was set-id and is not any more", path.display());
    }
    for (link, target) in &left.outward_links {
        eprintln!("ringfence: new link out of the scope: {} -> {}", link.display(), target.display());
    }
}
