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

use std::path::Path;
use std::sync::Arc;

use packages::InstalledProgram;
use session::{Grants, ScopeRules, ServerSet};
use upstream::Lifecycle;

pub(crate) use self::configuration_file::{ConfigurationFile, Reload};
pub(crate) use self::planner::{ClientPlace, ServerPlanner};
use crate::error::Error;
use crate::guarded_host::{GuardedHost, TrustedFiles};
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
    /// `trusted` are more files that no scope may reach, such as those with tokens.
    ///
    /// Takes the servers of the configuration file, or else the one of the command line, which has this lifecycle.
    /// Blocks, for minutes if a package has to be installed.
    pub(crate) fn of(
        options: &ServerOptions,
        lifecycle: Lifecycle,
        clients: ClientPlace,
        trusted: TrustedFiles,
    ) -> Result<Self, Error> {
        let file = ConfigurationFile::of(options)?;
        let host = guarded_host(options, file.as_ref(), trusted)?;
        let rules = scope_rules(options, &host)?;
        let mut grants =
            Grants { scopes: rules.allowed.clone(), workspaces: rules.names.clone(), ..Grants::default() };
        let Some(file) = file else {
            let (server, package) = command_line::server(options, lifecycle, host.environment())?;
            let storage = host.storage();
            let set = ServerSet::One { server: Box::new(server), storage };
            return Ok(Self { set, rules, grants, package, reload: None });
        };
        let planner = Arc::new(ServerPlanner::new(options, &host)?);
        let set = planner.server_set(&file.configuration, clients);
        grants.principals = planner::with_canonical_scopes(file.configuration.principals.clone());
        let reload = Reload { file, planner, clients, grants: None };
        Ok(Self { set, rules, grants, package: None, reload: Some(reload) })
    }
}

/// Finds out whether these options and their configuration can be used, without installing anything.
pub(crate) fn check(options: &ServerOptions, trusted: TrustedFiles) -> Result<(), Error> {
    let file = ConfigurationFile::of(options)?;
    let host = guarded_host(options, file.as_ref(), trusted)?;
    scope_rules(options, &host)?;
    if file.is_some() {
        return ServerPlanner::new(options, &host).map(drop);
    }
    if !options.scope.unfenced {
        server_program::fence_host(options.fence_settings()?, host.environment())?;
    }
    Ok(())
}

/// The host, without the files that the options, the configuration and the command trust.
pub(crate) fn guarded_host(
    options: &ServerOptions,
    file: Option<&ConfigurationFile>,
    trusted: TrustedFiles,
) -> Result<GuardedHost, Error> {
    let audit = TrustedFiles {
        what: "the audit log or a secret of it",
        files: options.upstream.audit.files().map(Path::to_owned).collect(),
    };
    let configuration = file.map(ConfigurationFile::trusted_files).into_iter().flatten();
    GuardedHost::new(configuration.chain([audit, trusted]), options.fence.user.is_some())
}

/// The rules for where sessions work.
pub(crate) fn scope_rules(options: &ServerOptions, host: &GuardedHost) -> Result<ScopeRules, Error> {
    let rules = options.scope.rules(&options.fence.scope, host)?;
    check_default_scope(&rules, !options.fence.scope.is_empty())?;
    Ok(rules)
}

/// Checks the directory of clients that name none. One that the operator named must be usable. The working directory
/// need not be, but then the operator hears of it now, and not from the first client.
fn check_default_scope(rules: &ScopeRules, is_named: bool) -> Result<(), Error> {
    for path in rules.default.iter().flatten() {
        match rules.host_environment.vet_named(path) {
            Ok(_) => tracing::info!(directory = %path.display(), "clients that name no directory work here"),
            Err(error) if is_named => return Err(error.into()),
            Err(error) => tracing::warn!(
                "clients that name no directory are refused, because ringfence was started in {}: {error}; hint: {}, \
                 or start ringfence in the directory of a project, or name one with --sandbox-scope DIR",
                path.display(),
                error.hint()
            ),
        }
    }
    Ok(())
}
