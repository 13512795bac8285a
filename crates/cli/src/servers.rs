//! From the options to the servers that sessions get, and the rules for where they may work.
//!
//! ```text
//! ServerOptions ─┬─ a command, or nothing ─► command_line ─┐
//!                └─ a ConfigurationFile ───► planner ──────┴─► server_program (found, built in, installed; its fence)
//! ```

mod command_line;
mod configuration_file;
mod planner;
mod server_program;

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use fence::HostEnvironment;
use packages::InstalledProgram;
use session::{Grants, ScopeRules, ServerSet};
use upstream::Lifecycle;

pub(crate) use self::configuration_file::{ConfigurationFile, Reload};
pub(crate) use self::planner::{ClientPlace, ServerPlanner};
use crate::clients::Client;
use crate::error::Error;
use crate::server_options::ServerOptions;

pub(crate) struct Servers {
    pub(crate) set: ServerSet,
    pub(crate) rules: ScopeRules,
    /// What principals may do, where callers need tokens.
    pub(crate) grants: Grants,
    /// The package that the server runs from. Its files stay while this is held.
    pub(crate) package: Option<InstalledProgram>,
    /// Follows the configuration file, if the servers are from one.
    pub(crate) reload: Option<Reload>,
}

impl Servers {
    /// `trusted_files` are more files that no scope may reach, such as those with tokens.
    ///
    /// Takes the servers of the configuration file, or else the one of the command line, which has this lifecycle.
    /// Blocks, for minutes if a package has to be installed.
    pub(crate) fn of(
        options: &ServerOptions,
        lifecycle: Lifecycle,
        clients: ClientPlace,
        trusted_files: &[PathBuf],
    ) -> Result<Self, Error> {
        let file = ConfigurationFile::of(options)?;
        let host_environment = HostEnvironment::of_this_process()?;
        let has_users = options.fence.user.is_some();
        let host_environment =
            Arc::new(if has_users { host_environment.with_users() } else { host_environment });
        reserve(options, trusted_files, &host_environment);
        if let Some(file) = &file {
            file.reserve(&host_environment);
        }
        let rules = options.scope.rules(&options.fence.scope, &host_environment)?;
        check_default_scope(&rules, !options.fence.scope.is_empty())?;
        let mut grants =
            Grants { scopes: rules.allowed.clone(), workspaces: rules.names.clone(), ..Grants::default() };
        let Some(file) = file else {
            let (server, package) = command_line::server(options, lifecycle, &host_environment)?;
            let storage = planner::storage_directory(&host_environment);
            let set = ServerSet::One { server: Box::new(server), storage };
            return Ok(Self { set, rules, grants, package, reload: None });
        };
        let planner = Arc::new(ServerPlanner::new(options, host_environment)?);
        let set = planner.server_set(&file.configuration, clients);
        grants.principals = planner::with_canonical_scopes(file.configuration.principals.clone());
        let reload = Reload { file, planner, clients, grants: None };
        Ok(Self { set, rules, grants, package: None, reload: Some(reload) })
    }
}

/// Keeps what this process trusts out of every scope.
fn reserve(options: &ServerOptions, trusted_files: &[PathBuf], host_environment: &HostEnvironment) {
    for file in options.upstream.audit.files() {
        host_environment.reserve("the audit log or a secret of it", file);
    }
    if let Some(storage) = planner::storage_directory(host_environment) {
        host_environment.reserve("the data of servers", &storage);
    }
    for file in trusted_files {
        host_environment.reserve("a file that decides who may connect", file);
    }
    for file in Client::value_variants().iter().flat_map(|client| client.files()) {
        host_environment.reserve("the settings of a client", &file);
    }
}

/// Checks the directory of clients that name none. One that the operator named must be usable. The working directory
/// need not be, but then the operator hears of it now, and not from the first client.
fn check_default_scope(rules: &ScopeRules, is_named: bool) -> Result<(), Error> {
    for path in rules.default.iter().flatten() {
        match rules.host_environment.vet_named(path) {
            Ok(_) => tracing::info!(directory = %path.display(), "clients that name no directory work here"),
            Err(error) if is_named => return Err(error.into()),
            Err(error) => tracing::warn!(
                "clients that name no directory are refused, because ringfence was started in {}: {error}; hint: \
                 start it in the directory of a project, or name one with --sandbox-scope DIR",
                path.display()
            ),
        }
    }
    Ok(())
}
