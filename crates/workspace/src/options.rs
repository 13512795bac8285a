//! The server's options, and starting it with them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::baseline::Baseline;
use crate::context::ServerContext;
use crate::files::Workspace;
use crate::gateway_line::GatewayLine;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::output::Output;
use crate::rules::{PathRules, RuleError, RuleOptions, Rules};
use crate::server::Server;
use crate::shell::{OperationLimits, Operations};
use crate::state::{Restored, State};
use crate::tools::{self, ResultForm};

/// The operator's options.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "the operator's switches are independent of each other")]
pub struct Options {
    /// The directories to work in. Relative paths start at the first.
    pub roots: Vec<PathBuf>,
    /// Offer no tool that writes. Preventing writes is the job of the fence.
    pub is_read_only: bool,
    /// Sync writes to the disk before reporting them.
    pub has_durable_writes: bool,
    pub rules: RuleOptions,
    /// Report file operations to the gateway.
    pub reports: bool,
    pub results: ResultForm,
    /// Offer to take the changes of a copy over into its project.
    pub offers_apply: bool,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("the workspace cannot be opened: {0}")]
    Workspace(io::Error),
    #[error(transparent)]
    Rules(#[from] RuleError),
    #[error("commands cannot be isolated from the server: {0}")]
    Operations(io::Error),
    #[error("standard input: {0}")]
    Input(io::Error),
}

impl RuleOptions {
    /// Refuses unknown tools and patterns that do not parse.
    pub fn check(&self) -> Result<(), RuleError> {
        Rules::new(self.clone(), &tools::all_names())?;
        PathRules::new(self).map(drop)
    }
}

/// Serves one client on stdin and stdout until its input ends.
pub fn serve(options: Options) -> Result<(), ServeError> {
    let workspace = Workspace::open(&options.roots)
        .map_err(ServeError::Workspace)?
        .durable(options.has_durable_writes)
        .with_rules(PathRules::new(&options.rules)?);
    let rules = Rules::new(options.rules, &tools::all_names())?;
    let identity = Identity::of_this_process();
    let mut offered_tools = if options.is_read_only {
        tools::names_of_readers(identity.confinement.is_some())
    } else {
        tools::names()
    };
    offered_tools.retain(|name| rules.allows_tool(name));
    offered_tools.retain(|name| options.offers_apply || !tools::takes_over(name));
    let (state, mut recovered) = State::take();
    let state = Arc::new(state);
    // A path leads no further than one that a client names.
    recovered.originals.retain(|(path, _)| workspace.root_of(path).is_some());
    let restored = Restored::of(&recovered);
    let output = Arc::new(Output::new(Box::new(io::stdout())));
    let context = ServerContext {
        gateway: GatewayLine::new(Arc::clone(&output)),
        workspace,
        offered_tools,
        rules,
        identity,
        operations: Operations::new(OperationLimits::default())
            .map_err(ServeError::Operations)?
            .keeping(&state, recovered.operations),
        journal: Journal::keeping(&state, recovered.originals, recovered.is_incomplete),
        baseline: Baseline::keeping(&state, recovered.snapshot),
        restored,
        is_read_only: options.is_read_only,
        reports: options.reports,
        results: options.results,
    };
    let server = Server::new(context, output);
    server.run(io::stdin().lock()).map_err(ServeError::Input)
}
