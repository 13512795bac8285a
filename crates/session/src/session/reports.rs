//! What a client is told about its servers and tools beside MCP.

use serde::Serialize;

use super::Session;
use crate::route::{MemberReport, Route};

/// One tool of a session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolReport {
    pub name: String,
    pub execution_context: &'static str,
    pub server: String,
}

impl Session {
    /// What each server is and does. Empty until the scope is locked.
    pub fn servers(&self) -> Vec<MemberReport> {
        self.route().map(Route::reports).unwrap_or_default()
    }

    /// The tools that the client sees, each with its server and where that runs.
    pub async fn tools(&self) -> Vec<ToolReport> {
        let Some(route) = self.route() else { return Vec::new() };
        let servers = route.reports();
        let report = |(name, place): (String, usize)| {
            let server = servers.get(place)?;
            Some(ToolReport {
                name,
                execution_context: server.execution_context,
                server: server.name.clone(),
            })
        };
        route.tools().await.into_iter().filter_map(report).collect()
    }
}
