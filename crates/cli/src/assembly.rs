//! From the options of a server to the parts that run it: the upstream, its fence, and the rules for scopes.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use fence::{FenceSettings, Launcher, ReadChoice, Surroundings, toolchain};
use session::{FenceHost, Lifecycle, ScopeRules, StartFailure, Upstream};

use crate::arguments::ServerTask;
use crate::environment;
use crate::error::Failure;
use crate::fenced;
use crate::packages::{self, Installed, Installer, PackageCommand, is_registry_variable};
use crate::program;

/// What sessions are made of.
pub(crate) struct Assembly {
    pub(crate) upstream: Upstream,
    pub(crate) rules: ScopeRules,
    /// The package that the upstream runs from, which stays as long as this is held.
    pub(crate) package: Option<Installed>,
}

impl Assembly {
    /// Blocks, for minutes if a package has to be installed.
    pub(crate) fn new(task: &ServerTask, lifecycle: Lifecycle) -> Result<Self, Failure> {
        let surroundings = Arc::new(Surroundings::of_this_process().map_err(Failure::Arrangement)?);
        let rules = task.scope.rules(&task.fence.scope, &surroundings)?;
        let (upstream, package) = if task.scope.unfenced {
            tracing::warn!("the server runs without a fence (--unfenced): it can do whatever this user can");
            (unfenced(task, lifecycle, &surroundings)?, None)
        } else {
            fenced(task, lifecycle, &surroundings)?
        };
        Ok(Self { upstream, rules, package })
    }
}

fn unfenced(
    task: &ServerTask,
    lifecycle: Lifecycle,
    surroundings: &Surroundings,
) -> Result<Upstream, Failure> {
    let options = &task.upstream;
    let variables = environment::for_upstream(std::env::vars_os(), &options.env, &options.force_env)?;
    upstream(task, lifecycle, surroundings, variables)
}

fn fenced(
    task: &ServerTask,
    lifecycle: Lifecycle,
    surroundings: &Arc<Surroundings>,
) -> Result<(Upstream, Option<Installed>), Failure> {
    let options = &task.upstream;
    let variables = environment::added(&surroundings.environment, &options.env, &options.force_env)?;
    let mut settings = fenced::settings(&task.fence, ReadChoice::Strict).map_err(Failure::Fence)?;
    // Its shell runs whatever the user could.
    settings.all_programs = options.command.is_empty();
    let mut upstream = upstream(task, lifecycle, surroundings, variables)?;
    let command = packages::recognise(&options.command).filter(|_| !options.no_package_cache);
    let package =
        command.map(|command| install(task, &command, &settings, surroundings, &mut upstream)).transpose()?;
    upstream.fence = Some(fence_host(settings, surroundings)?);
    Ok((upstream, package))
}

/// The upstream as it is written on the command line.
fn upstream(
    task: &ServerTask,
    lifecycle: Lifecycle,
    surroundings: &Surroundings,
    variables: Vec<(OsString, OsString)>,
) -> Result<Upstream, Failure> {
    let Some((program, arguments)) = task.upstream.command.split_first() else {
        return built_in(task, lifecycle, variables);
    };
    if task.workspace.is_given() {
        return Err(Failure::NotTheBuiltIn);
    }
    let path = search_path(&variables, surroundings);
    let mut upstream = Upstream {
        name: program::upstream_name(program, arguments),
        program: program::find(program, &path)?.into_os_string(),
        arguments: arguments.to_vec(),
        variables,
        readable: Vec::new(),
        lifecycle,
        reports_files: false,
        fence: None,
    };
    // The server starts in its session's directory: a script that is named from here is still meant.
    if let Some((place, script)) = toolchain::script_among(program, arguments, &std::env::current_dir()?) {
        let closed: Vec<PathBuf> = surroundings.home.iter().cloned().collect();
        upstream.readable = toolchain::readable_for(&script, &path, &closed);
        upstream.arguments[place] = script.into_os_string();
    }
    Ok(upstream)
}

/// The server that needs no command: this program itself.
fn built_in(
    task: &ServerTask,
    lifecycle: Lifecycle,
    variables: Vec<(OsString, OsString)>,
) -> Result<Upstream, Failure> {
    task.workspace.check()?;
    let reports_files = task.upstream.audit_log.is_some();
    Ok(Upstream {
        name: "workspace".to_owned(),
        program: std::env::current_exe()?.into_os_string(),
        arguments: task.workspace.to_arguments(task.fence.read_only, reports_files),
        variables,
        readable: Vec::new(),
        lifecycle,
        reports_files,
        fence: None,
    })
}

fn search_path(variables: &[(OsString, OsString)], surroundings: &Surroundings) -> OsString {
    let own = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    own.or_else(|| surroundings.environment.get(OsStr::new("PATH"))).cloned().unwrap_or_default()
}

/// Makes the upstream run an installed package in place of the launcher that would fetch it.
fn install(
    task: &ServerTask,
    command: &PackageCommand,
    settings: &FenceSettings,
    surroundings: &Surroundings,
    upstream: &mut Upstream,
) -> Result<Installed, Failure> {
    let variables: Vec<_> =
        upstream.variables.iter().filter(|(name, _)| is_registry_variable(name)).cloned().collect();
    let installer = Installer {
        settings,
        surroundings,
        launcher: &Launcher::new(),
        variables: &variables,
        progress: &|news| tracing::info!("{news}"),
    };
    let package = installer.install(command, task.upstream.package_age)?;
    let path = search_path(&upstream.variables, surroundings);
    let searched = std::iter::once(package.programs.clone()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(searched).unwrap_or(path);
    upstream.variables.retain(|(name, _)| name != "PATH");
    upstream.variables.push(("PATH".into(), path));
    upstream.program = package.program.clone().into_os_string();
    upstream.arguments.clone_from(&package.arguments);
    upstream.readable.clone_from(&package.readable);
    Ok(package)
}

/// Fences that cannot be had are a reason not to begin.
fn fence_host(settings: FenceSettings, surroundings: &Arc<Surroundings>) -> Result<Arc<FenceHost>, Failure> {
    let host = FenceHost::new(settings, Arc::clone(surroundings));
    let confinement = host.rehearse().map_err(|failure| match failure {
        StartFailure::Fence { reason, hint } => Failure::NoFence { reason, hint },
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
