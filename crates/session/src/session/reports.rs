//! What a client is told about its servers and tools beside MCP.

use serde::Serialize;

use super::Session;
use crate::aggregate::MemberReport;
use crate::catalogue::{List, list_all};
use crate::server::Route;

/// One tool of a session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolReport {
    pub name: String,
    pub execution_context: &'static str,
    pub server: String,
}

impl Session {
    /// What each server is and does.
    pub fn servers(&self) -> Vec<MemberReport> {
        if let Some(aggregate) = self.aggregate() {
            return aggregate.reports();
        }
        let directories = self.scope().map(|scope| scope.paths()).unwrap_or_default();
        let sole = self.roster().sole().map(|server| MemberReport {
            name: server.name().to_owned(),
            // It works on the files of this machine.
            execution_context: "local",
            endpoint: "internal",
            enabled: true,
            reason: None,
            working_directory: directories.first().cloned(),
            allowed_directories: directories,
            override_refused: None,
            lifecycle: server.lifecycle().as_str(),
        });
        sole.into_iter().collect()
    }

    /// The tools that the client sees, each with its server and where that runs.
    pub async fn tools(&self) -> Vec<ToolReport> {
        let servers = self.servers();
        let tools = match self.route() {
            Some(Route::Many(aggregate)) => aggregate.tools().await,
            Some(Route::Worker(worker)) => {
                let listed = list_all(worker, List::Tools, worker.call_timeout()).await;
                listed.unwrap_or_default().into_iter().map(|tool| (tool.own, 0)).collect()
            }
            Some(Route::PerCall { .. }) | None => Vec::new(),
        };
        let report = |(name, place): (String, usize)| {
            let server = servers.get(place)?;
            Some(ToolReport {
                name,
                execution_context: server.execution_context,
                server: server.name.clone(),
            })
        };
        tools.into_iter().filter_map(report).collect()
    }
}
