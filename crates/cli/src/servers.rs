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

use std::sync::Arc;

use fence::HostEnvironment;
use packages::InstalledProgram;
use session::{ScopeRules, ServerSet};
use upstream::Lifecycle;

pub(crate) use self::configuration_file::{ConfigurationFile, Reload};
pub(crate) use self::planner::{ClientPlace, ServerPlanner};
use crate::error::Error;
use crate::server_options::ServerOptions;

pub(crate) struct Servers {
    pub(crate) set: ServerSet,
    pub(crate) rules: ScopeRules,
    /// The package that the server runs from. Its files stay while this is held.
    pub(crate) package: Option<InstalledProgram>,
    /// Follows the configuration file, if the servers are from one.
    pub(crate) reload: Option<Reload>,
}

impl Servers {
    /// Takes the servers of the configuration file, or else the one of the command line, which has this lifecycle.
    /// Blocks, for minutes if a package has to be installed.
    pub(crate) fn of(
        options: &ServerOptions,
        lifecycle: Lifecycle,
        clients: ClientPlace,
    ) -> Result<Self, Error> {
        let file = ConfigurationFile::of(options)?;
        let host_environment = Arc::new(HostEnvironment::of_this_process()?);
        let rules = options.scope.rules(&options.fence.scope, &host_environment)?;
        let Some(file) = file else {
            let (server, package) = command_line::server(options, lifecycle, &host_environment)?;
            return Ok(Self { set: ServerSet::One(server), rules, package, reload: None });
        };
        let planner = Arc::new(ServerPlanner::new(options, host_environment)?);
        let set = planner.server_set(&file.configuration, clients);
        Ok(Self { set, rules, package: None, reload: Some(Reload { file, planner, clients }) })
    }
}
