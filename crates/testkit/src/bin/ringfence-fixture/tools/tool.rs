//! The two kinds of tools, and the reasons why a blocking one has no outcome.

use std::sync::Arc;

use crate::outgoing::ToolOutcome;
use crate::running_calls::{BlockingCall, Cancelled};
use crate::server::Server;

/// A tool that answers at once, on the reading thread; its error becomes a result with `isError`.
pub(crate) type QuickTool = fn(&Arc<Server>, &str) -> Result<ToolOutcome, String>;

/// A tool that waits, on a thread of its own.
pub(crate) type BlockingTool = fn(&Arc<Server>, &BlockingCall) -> Result<ToolOutcome, Interruption>;

/// Why a blocking tool has no outcome.
#[derive(Debug)]
pub(crate) enum Interruption {
    Cancelled,
    Failed(String),
}

impl From<Cancelled> for Interruption {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<String> for Interruption {
    fn from(complaint: String) -> Self {
        Self::Failed(complaint)
    }
}
