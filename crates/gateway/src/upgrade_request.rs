//! Requests to replace the program of this gateway while its sockets stay open: what the operator can ask, and what the
//! answer is. The program itself is looked at, and started, by the process that this gateway is a part of.

use std::time::Duration;

use thiserror::Error;
use tokio::sync::oneshot;

/// Asks for an upgrade.
#[derive(Debug)]
pub struct UpgradeRequest {
    /// Also if sessions are not kept.
    pub is_forced: bool,
    pub answer: oneshot::Sender<Result<AcceptedUpgrade, UpgradeRefusal>>,
}

/// An upgrade that will be tried at the next quiet moment.
#[derive(Clone, Debug)]
pub struct AcceptedUpgrade {
    /// The version of the new program.
    pub version: String,
    /// How long it may take until the new program starts.
    pub within: Duration,
}

/// Why the gateway goes on with its present program.
#[derive(Clone, Debug, Error)]
pub enum UpgradeRefusal {
    #[error(
        "this gateway keeps no sessions, so all would end; hint: start it on a fixed port or with --state-dir, or \
         upgrade with --force"
    )]
    NothingKept,
    #[error("an upgrade is under way already")]
    UnderWay,
    #[error("the gateway is stopping")]
    Stopping,
    /// The new program cannot take over.
    #[error("{0}")]
    Unfit(String),
}

/// What became of the last upgrade of this process.
#[derive(Clone, Debug)]
pub enum LastUpgrade {
    /// This program took over.
    Done,
    /// The other could not be executed, and this one went on.
    Failed(String),
}
