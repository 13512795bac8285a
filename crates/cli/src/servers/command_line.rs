//! The one server that the command line names.

use std::ffi::OsString;
use std::sync::Arc;

use config::Storage;
use fence::HostEnvironment;
use packages::InstalledProgram;
use session::{Fill, ServerPlan};
use upstream::{FenceHost, Lifecycle, Program, Transport, Upstream};

use super::planner::storage_template;
use super::server_program::{built_in, fence_host, found, install, plain_program};
use crate::environment;
use crate::error::Error;
use crate::presets;
use crate::program::upstream_name;
use crate::server_options::ServerOptions;
use crate::workspace_options::OfGateway;

/// Returns the server, and the package that it runs from, if it is one.
pub(super) fn server(
    options: &ServerOptions,
    lifecycle: Lifecycle,
    host_environment: &Arc<HostEnvironment>,
) -> Result<(ServerPlan, Option<InstalledProgram>), Error> {
    let has_storage = options.upstream.storage;
    if has_storage && options.upstream.command.is_empty() {
        return Err(Error::StorageOfBuiltIn);
    }
    if has_storage && lifecycle == Lifecycle::Shared {
        return Err(Error::SharedStorage);
    }
    let (upstream, package) = if options.scope.unfenced {
        (unfenced(options, lifecycle, host_environment)?, None)
    } else {
        in_a_fence(options, lifecycle, host_environment)?
    };
    let plan = if has_storage {
        with_storage(upstream, &options.upstream.command)
    } else {
        ServerPlan::fixed(upstream)
    };
    Ok((plan, package))
}

/// Gives the server a storage, and fills in where that is: in its arguments and variables, and in the variables that
/// ringfence knows of it.
fn with_storage(mut upstream: Upstream, command: &[OsString]) -> ServerPlan {
    let mut fill = Fill::default();
    if let Transport::Process(program) = &mut upstream.transport {
        let arguments = std::mem::take(&mut program.arguments);
        fill.arguments = arguments.iter().map(|word| storage_template(&word.to_string_lossy())).collect();
        let is_given = |name: &String| program.variables.iter().any(|(given, _)| given == name.as_str());
        let known = presets::storage_variables(command.iter().filter_map(|word| word.to_str()));
        let known = known.into_iter().filter(|(name, _)| !is_given(name));
        let given = program.variables.iter().filter_map(|(name, value)| {
            let (name, value) = (name.to_str()?, value.to_str()?);
            value.contains("{storage}").then(|| (name.to_owned(), value.to_owned()))
        });
        let all = known.chain(given);
        fill.variables = all.map(|(name, value)| (name, storage_template(&value))).collect();
    }
    ServerPlan { fill, storage: Storage::Persistent, ..ServerPlan::fixed(upstream) }
}

fn unfenced(
    options: &ServerOptions,
    lifecycle: Lifecycle,
    host_environment: &HostEnvironment,
) -> Result<Upstream, Error> {
    tracing::warn!("the server runs without a fence (--unfenced): it can do whatever this user can");
    let given = &options.upstream;
    let variables = environment::for_upstream(std::env::vars_os(), &given.env, &given.force_env)?;
    upstream(options, lifecycle, host_environment, variables, None)
}

fn in_a_fence(
    options: &ServerOptions,
    lifecycle: Lifecycle,
    host_environment: &Arc<HostEnvironment>,
) -> Result<(Upstream, Option<InstalledProgram>), Error> {
    let given = &options.upstream;
    let variables = environment::added(&host_environment.environment, &given.env, &given.force_env)?;
    let mut settings = options.fence_settings()?;
    // The shell of the built-in server may run any program.
    settings.all_programs = given.command.is_empty();
    let host = fence_host(settings.clone(), host_environment)?;
    let mut upstream = upstream(options, lifecycle, host_environment, variables, Some(host))?;
    let command = packages::recognise(&given.command).filter(|_| !given.no_package_cache);
    let package = match (command, &mut upstream.transport) {
        (Some(command), Transport::Process(program)) => {
            let command = command.allow_install_scripts(given.allow_install_scripts);
            let package = install(&command, &settings, host_environment, true, program)?;
            add_package_variables(program, &given.command);
            Some(package)
        }
        _ => None,
    };
    Ok((upstream, package))
}

/// Adds what ringfence knows of a server that would write beside its installed code.
fn add_package_variables(program: &mut Program, command: &[OsString]) {
    let words = command.iter().filter_map(|word| word.to_str());
    for (name, value) in presets::package_variables(words) {
        if !program.variables.iter().any(|(given, _)| *given == *name) {
            program.variables.push((name.into(), value.into()));
        }
    }
}

/// The server as the command line names it: a command, or the built-in one.
fn upstream(
    options: &ServerOptions,
    lifecycle: Lifecycle,
    host_environment: &HostEnvironment,
    variables: Vec<(OsString, OsString)>,
    fence: Option<Arc<FenceHost>>,
) -> Result<Upstream, Error> {
    let Some((program, arguments)) = options.upstream.command.split_first() else {
        options.workspace.check()?;
        let reports_files = options.upstream.audit.is_on();
        let arguments = options.workspace.to_arguments(OfGateway {
            read_only: options.fence.read_only,
            report_files: reports_files,
            offer_apply: options.scope.allow_apply,
        });
        let program = built_in(arguments, variables, fence)?;
        return Ok(Upstream {
            reports_files,
            ..Upstream::process("workspace".to_owned(), program, lifecycle)
        });
    };
    if options.workspace.is_given() {
        return Err(Error::NotTheBuiltIn);
    }
    let name = upstream_name(program, arguments);
    let plain = Program { variables, fence, ..plain_program(program.clone(), arguments.to_vec()) };
    Ok(Upstream::process(name, found(plain, host_environment)?, lifecycle))
}
