//! How the server is started.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::baseline::Baseline;
use crate::files::Workspace;
use crate::host::Host;
use crate::identity::Identity;
use crate::journal::Journal;
use crate::output::Output;
use crate::rules::{PathRules, RuleError, RuleOptions, Rules};
use crate::server::Server;
use crate::shell::{OperationLimits, Operations};

/// What the operator wants of the server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where it works; the first is where relative paths start.
    pub roots: Vec<PathBuf>,
    /// Offer no tool that writes. That nothing is written is the fence's business.
    pub is_read_only: bool,
    /// Writes reach the disk before they are reported.
    pub has_durable_writes: bool,
    pub rules: RuleOptions,
    /// Tell the gateway about file operations.
    pub reports: bool,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("the workspace cannot be opened: {0}")]
    Workspace(io::Error),
    #[error(transparent)]
    Rules(#[from] RuleError),
    #[error("commands cannot be kept apart from the server: {0}")]
    Operations(io::Error),
    #[error("standard input: {0}")]
    Input(io::Error),
}

/// Serves one client on stdin and stdout, until its input ends.
pub fn serve(options: Options) -> Result<(), ServeError> {
    let workspace = Workspace::open(&options.roots)
        .map_err(ServeError::Workspace)?
        .durable(options.has_durable_writes)
        .with_rules(PathRules::new(&options.rules)?);
    let host = Host {
        workspace,
        rules: Rules::new(options.rules)?,
        identity: Identity::of_this_process(),
        operations: Operations::new(OperationLimits::default()).map_err(ServeError::Operations)?,
        journal: Journal::default(),
        baseline: Baseline::default(),
        is_read_only: options.is_read_only,
        reports: options.reports,
    };
    let server = Server::new(host, Output::new(Box::new(io::stdout())));
    server.run(io::stdin().lock()).map_err(ServeError::Input)
}
