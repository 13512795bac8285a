//! From the options of a server to the parts that run it: the upstream, its fence, and the rules for scopes.

use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::Configuration;
use fence::{FenceSettings, HostEnvironment, Launcher, ReadChoice, toolchain};
use session::{FenceHost, Lifecycle, Preparation, Program, ScopeRules, ServerSet, StartError, Upstream};

use crate::arguments::ServerTask;
use crate::configured::Configured;
use crate::environment;
use crate::error::Failure;
use crate::fenced;
use crate::packages::{self, Installed, Installer, PackageCommand, is_registry_variable};
use crate::program;

/// What sessions are made of.
pub(crate) struct Assembly {
    pub(crate) offer: ServerSet,
    pub(crate) rules: ScopeRules,
    /// The package that the upstream runs from, which stays as long as this is held.
    pub(crate) package: Option<Installed>,
}

impl Assembly {
    /// Blocks, for minutes if a package has to be installed.
    pub(crate) fn new(task: &ServerTask, lifecycle: Lifecycle) -> Result<Self, Failure> {
        let host_environment = Arc::new(HostEnvironment::of_this_process().map_err(Failure::FenceSetup)?);
        let rules = task.scope.rules(&task.fence.scope, &host_environment)?;
        let (upstream, package) = if task.scope.unfenced {
            tracing::warn!("the server runs without a fence (--unfenced): it can do whatever this user can");
            (unfenced(task, lifecycle, &host_environment)?, None)
        } else {
            fenced(task, lifecycle, &host_environment)?
        };
        Ok(Self { offer: ServerSet::One(upstream), rules, package })
    }

    /// The same for the servers of a configuration.
    pub(crate) fn of_configuration(
        task: &ServerTask,
        configuration: &Configuration,
        local_is_here: bool,
    ) -> Result<(Self, Configured), Failure> {
        let host_environment = Arc::new(HostEnvironment::of_this_process().map_err(Failure::FenceSetup)?);
        let rules = task.scope.rules(&task.fence.scope, &host_environment)?;
        let configured = Configured::new(task, host_environment)?;
        let offer = configured.offer(configuration, local_is_here);
        Ok((Self { offer, rules, package: None }, configured))
    }
}

fn unfenced(
    task: &ServerTask,
    lifecycle: Lifecycle,
    host_environment: &HostEnvironment,
) -> Result<Upstream, Failure> {
    let options = &task.upstream;
    let variables = environment::for_upstream(std::env::vars_os(), &options.env, &options.force_env)?;
    upstream(task, lifecycle, host_environment, variables, None)
}

fn fenced(
    task: &ServerTask,
    lifecycle: Lifecycle,
    host_environment: &Arc<HostEnvironment>,
) -> Result<(Upstream, Option<Installed>), Failure> {
    let options = &task.upstream;
    let variables = environment::added(&host_environment.environment, &options.env, &options.force_env)?;
    let mut settings = fenced::settings(&task.fence, ReadChoice::Strict).map_err(Failure::Fence)?;
    // Its shell runs whatever the user could.
    settings.all_programs = options.command.is_empty();
    let host = fence_host(settings.clone(), host_environment)?;
    let mut upstream = upstream(task, lifecycle, host_environment, variables, Some(host))?;
    let command = packages::recognise(&options.command).filter(|_| !options.no_package_cache);
    let package = match (command, &mut upstream.transport) {
        (Some(command), session::Transport::Process(program)) => {
            Some(install(&command, options.package_age, &settings, host_environment, program)?)
        }
        _ => None,
    };
    Ok((upstream, package))
}

/// The upstream as it is written on the command line.
fn upstream(
    task: &ServerTask,
    lifecycle: Lifecycle,
    host_environment: &HostEnvironment,
    variables: Vec<(OsString, OsString)>,
    fence: Option<Arc<FenceHost>>,
) -> Result<Upstream, Failure> {
    let Some((program, arguments)) = task.upstream.command.split_first() else {
        task.workspace.check()?;
        let reports_files = task.upstream.audit_log.is_some();
        let arguments = task.workspace.to_arguments(task.fence.read_only, reports_files);
        let program = built_in(arguments, variables, fence)?;
        return Ok(Upstream {
            reports_files,
            ..Upstream::process("workspace".to_owned(), program, lifecycle)
        });
    };
    if task.workspace.is_given() {
        return Err(Failure::NotTheBuiltIn);
    }
    let name = program::upstream_name(program, arguments);
    let plain = Program { variables, fence, ..plain_program(program.clone(), arguments.to_vec()) };
    Ok(Upstream::process(name, found(plain, host_environment)?, lifecycle))
}

pub(crate) fn plain_program(program: OsString, arguments: Vec<OsString>) -> Program {
    Program {
        program,
        arguments,
        variables: Vec::new(),
        readable: Vec::new(),
        directory: None,
        fence: None,
        preparation: None,
    }
}

/// The server that needs no command: this program itself.
pub(crate) fn built_in(
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    fence: Option<Arc<FenceHost>>,
) -> Result<Program, Failure> {
    let own = std::env::current_exe()?.into_os_string();
    Ok(Program { variables, fence, ..plain_program(own, arguments) })
}

/// The program as the search path has it, with what it needs to read.
pub(crate) fn found(mut program: Program, host_environment: &HostEnvironment) -> Result<Program, Failure> {
    let path = search_path(&program.variables, host_environment);
    let written = std::mem::take(&mut program.program);
    // The server starts in its session's directory: a script that is named from here is still meant.
    let script = toolchain::script_among(&written, &program.arguments, &std::env::current_dir()?);
    if let Some((place, script)) = script {
        let closed: Vec<PathBuf> = host_environment.home.iter().cloned().collect();
        program.readable = toolchain::readable_for(&script, &path, &closed);
        program.arguments[place] = script.into_os_string();
    }
    program.program = program::find(&written, &path)?.into_os_string();
    Ok(program)
}

fn search_path(variables: &[(OsString, OsString)], host_environment: &HostEnvironment) -> OsString {
    let own = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    own.or_else(|| host_environment.environment.get(OsStr::new("PATH"))).cloned().unwrap_or_default()
}

/// Makes the upstream run an installed package in place of the launcher that would fetch it.
fn install(
    command: &PackageCommand,
    age: Duration,
    settings: &FenceSettings,
    host_environment: &HostEnvironment,
    program: &mut Program,
) -> Result<Installed, Failure> {
    let variables: Vec<_> =
        program.variables.iter().filter(|(name, _)| is_registry_variable(name)).cloned().collect();
    let installer = Installer {
        settings,
        host_environment,
        launcher: &Launcher::new(),
        variables: &variables,
        progress: &|news| tracing::info!("{news}"),
    };
    let package = installer.install(command, age)?;
    run_installed(program, &package, host_environment);
    Ok(package)
}

fn run_installed(program: &mut Program, package: &Installed, host_environment: &HostEnvironment) {
    let path = search_path(&program.variables, host_environment);
    let searched = std::iter::once(package.programs.clone()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(searched).unwrap_or(path);
    program.variables.retain(|(name, _)| name != "PATH");
    program.variables.push(("PATH".into(), path));
    program.program = package.program.clone().into_os_string();
    program.arguments.clone_from(&package.arguments);
    program.readable.clone_from(&package.readable);
}

/// What is done before a server of a configuration starts: its package is installed, or its program found. The
/// package stays while somebody may start it.
pub(crate) fn preparation(
    settings: FenceSettings,
    host_environment: &Arc<HostEnvironment>,
    age: Duration,
    has_cache: bool,
) -> Preparation {
    let host_environment = Arc::clone(host_environment);
    // A newer package takes the place of an older one; whoever runs that keeps its files open.
    let held: Mutex<Option<Installed>> = Mutex::default();
    Preparation(Arc::new(move |mut program| {
        let command: Vec<OsString> =
            std::iter::once(&program.program).chain(&program.arguments).cloned().collect();
        let Some(command) = packages::recognise(&command).filter(|_| has_cache) else {
            let written = program.program.clone();
            return found(program, &host_environment).map_err(|failure| not_found(&written, &failure));
        };
        let installed = install(&command, age, &settings, &host_environment, &mut program)
            .map_err(|failure| StartError::Install { reason: failure.message(), hint: failure.hint() })?;
        *held.lock() = Some(installed);
        Ok(program)
    }))
}

fn not_found(program: &OsStr, failure: &Failure) -> StartError {
    StartError::Spawn { program: Path::new(program).display().to_string(), reason: failure.message() }
}

/// Fences that cannot be had are a reason not to begin.
pub(crate) fn fence_host(
    settings: FenceSettings,
    host_environment: &Arc<HostEnvironment>,
) -> Result<Arc<FenceHost>, Failure> {
    let host = FenceHost::new(settings, Arc::clone(host_environment));
    let confinement = host.self_test().map_err(|failure| match failure {
        StartError::Fence { reason, hint } => Failure::NoFence { reason, hint },
        other => Failure::Upstream(other),
    })?;
    if host.kernel().is_root {
        tracing::warn!(
            "running as root: servers have no capabilities, but what root owns in a scope is root's"
        );
    }
    tracing::info!("fences: {}", confinement.summary());
    Ok(Arc::new(host))
}
