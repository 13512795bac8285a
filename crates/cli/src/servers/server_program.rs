//! The program of one server: this binary, a program on the `PATH`, or an installed package; and the fences that it
//! runs in.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use fence::{FenceSettings, HostEnvironment, Launcher, toolchain};
use packages::{InstalledProgram, Installer, PackageCommand, PackageError, is_registry_variable};
use parking_lot::Mutex;
use upstream::{FenceHost, Preparation, Program, StartError};

use crate::error::Error;
use crate::own_program::own_program;

pub(super) fn plain_program(program: OsString, arguments: Vec<OsString>) -> Program {
    Program {
        program,
        arguments,
        variables: Vec::new(),
        readable: Vec::new(),
        directory: None,
        fence: None,
        explains_refusals: false,
        keeps_state: false,
        preparation: None,
    }
}

/// The built-in server, which is this program itself.
pub(super) fn built_in(
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    fence: Option<Arc<FenceHost>>,
) -> Result<Program, Error> {
    let own = own_program()?.file.clone().into_os_string();
    Ok(Program {
        variables,
        fence,
        explains_refusals: true,
        keeps_state: true,
        ..plain_program(own, arguments)
    })
}

/// Replaces the program by its full path, and makes a script among the arguments readable.
pub(super) fn found(mut program: Program, host_environment: &HostEnvironment) -> Result<Program, Error> {
    let path = search_path(&program.variables, host_environment);
    let written = std::mem::take(&mut program.program);
    // The server starts in its session's directory, but a relative path to a script is relative to this one.
    let script = toolchain::script_among(&written, &program.arguments, &std::env::current_dir()?);
    if let Some((place, script)) = script {
        program.readable = host_environment.needed_by(&script, &path);
        program.arguments[place] = script.into_os_string();
    }
    program.program = packages::find_program(&written, &path)?.into_os_string();
    Ok(program)
}

fn search_path(variables: &[(OsString, OsString)], host_environment: &HostEnvironment) -> OsString {
    let own = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    own.or_else(|| host_environment.environment.get(OsStr::new("PATH"))).cloned().unwrap_or_default()
}

/// Installs the package that a launcher would fetch, and makes `program` run it directly.
pub(super) fn install(
    command: &PackageCommand,
    settings: &FenceSettings,
    host_environment: &HostEnvironment,
    checks_all_files: bool,
    program: &mut Program,
) -> Result<InstalledProgram, PackageError> {
    let variables: Vec<_> =
        program.variables.iter().filter(|(name, _)| is_registry_variable(name)).cloned().collect();
    let installer = Installer {
        settings,
        host_environment,
        launcher: &Launcher::new(),
        variables: &variables,
        checks_all_files,
        progress: &|news| tracing::info!("{news}"),
        warning: &|news| tracing::warn!("{news}"),
    };
    let package = installer.install(command)?;
    run_installed(program, &package, host_environment);
    Ok(package)
}

fn run_installed(program: &mut Program, package: &InstalledProgram, host_environment: &HostEnvironment) {
    let path = search_path(&program.variables, host_environment);
    let searched = std::iter::once(package.programs.clone()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(searched).unwrap_or(path);
    program.variables.retain(|(name, _)| name != "PATH");
    program.variables.push(("PATH".into(), path));
    program.program = package.program.clone().into_os_string();
    program.arguments.clone_from(&package.arguments);
    program.readable.clone_from(&package.readable);
}

/// How the packages of a server are treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackageChoice {
    /// Whether they are installed once, rather than by their launcher in every session.
    pub(super) has_cache: bool,
    pub(super) allows_install_scripts: bool,
}

/// Installs the package of a configured server, or finds its program, before each start. Holds the package while the
/// server may run.
pub(super) fn preparation(
    settings: FenceSettings,
    host_environment: &Arc<HostEnvironment>,
    choice: PackageChoice,
) -> Preparation {
    let host_environment = Arc::clone(host_environment);
    // A refreshed package joins the older ones, because processes may still run these.
    let held: Mutex<Vec<InstalledProgram>> = Mutex::default();
    Preparation(Arc::new(move |mut program| {
        let command: Vec<OsString> =
            std::iter::once(&program.program).chain(&program.arguments).cloned().collect();
        let Some(command) = packages::recognise(&command).filter(|_| choice.has_cache) else {
            let written = program.program.clone();
            return found(program, &host_environment).map_err(|error| not_found(&written, &error));
        };
        let command = command.allow_install_scripts(choice.allows_install_scripts);
        // Later starts save the time: no server can alter the files.
        let is_first = held.lock().is_empty();
        let installed = install(&command, &settings, &host_environment, is_first, &mut program)
            .map_err(|error| StartError::Install { reason: error.in_one_line(), hint: error.hint() })?;
        let mut held = held.lock();
        if held.iter().all(|other| other.program != installed.program) {
            held.push(installed);
        }
        Ok(program)
    }))
}

fn not_found(program: &OsStr, error: &Error) -> StartError {
    let reason = match error {
        Error::Program(error) => error.reason().to_owned(),
        other => other.message(),
    };
    StartError::Spawn { program: Path::new(program).display().to_string(), reason }
}

/// Prepares fences with these settings and tries one, so that a host that cannot enforce them fails at the start.
pub(super) fn fence_host(
    settings: FenceSettings,
    host_environment: &Arc<HostEnvironment>,
) -> Result<Arc<FenceHost>, Error> {
    let host = FenceHost::new(settings, Arc::clone(host_environment));
    let confinement = host.self_test().map_err(|error| match error {
        StartError::Fence { reason, hint } => Error::NoFence { reason, hint },
        other => Error::Upstream(other),
    })?;
    if host.kernel().is_root && host.user().is_none() {
        tracing::warn!(
            "running as root: servers have no capabilities, but what root owns in a scope is root's"
        );
    }
    tracing::info!("fences: {}", confinement.summary());
    Ok(Arc::new(host))
}
