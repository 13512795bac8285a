//! Tests of the registry, with a gateway that has no servers, so that sessions open and end without a process.

mod ending;
mod opening;

use identity::{Instance, Principal, SessionId};
use testkit::workspace_dir;

use super::*;
use crate::scope::{ScopeRefusal, WorkspaceChoice};
use crate::testing::{caller, initialize, no_servers, request, rules, sessions, settle};

/// A client that can be asked for its roots.
const WITH_ROOTS: &str = r#"{"roots":{}}"#;

fn gateway() -> Arc<Sessions> {
    sessions(Settings::default(), rules())
}

async fn open(sessions: &Arc<Sessions>, principal: &str) -> Arc<Session> {
    sessions.open(caller(principal), initialize(WITH_ROOTS)).await.unwrap().0
}
