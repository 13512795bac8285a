//! What a client with a gateway consists of: the gateway's address, the servers here, and the rules for sessions.

#[cfg(any(test, fuzzing))]
pub(crate) mod testing;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use audit::AuditLog;
use identity::Instance;
use parking_lot::Mutex;
use session::{ScopeRules, ServerPlan, ServerSet, Sessions, Settings, Terms};
use tokio_util::task::TaskTracker;

use crate::gateway_address::GatewayAddress;
use crate::gateway_server::gateway_server;

/// How long the end waits for conversations whose server is still starting.
const CONVERSATIONS_END_WITHIN: Duration = Duration::from_secs(5);

/// A client's own servers, and the gateway for the rest.
pub struct Connection {
    pub gateway: GatewayAddress,
    /// The servers for this machine. The gateway can start these by name, and no others.
    pub servers: Vec<ServerPlan>,
    pub terms: Terms,
    pub settings: Settings,
    pub rules: ScopeRules,
    pub audit: Option<Arc<AuditLog>>,
    /// The client's window, if it is named.
    pub instance: Option<Instance>,
    /// Called whenever the gateway has opened a session for the client.
    pub on_gateway_session: Box<dyn Fn(&GatewaySession) + Send + Sync>,
}

/// The client's session on the gateway, for other clients of the same user.
pub struct GatewaySession {
    pub url: String,
    /// A credential: it is all that another client needs to use the session.
    pub id: String,
}

impl fmt::Debug for GatewaySession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewaySession").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl Connection {
    /// The names of the servers that can be started here.
    pub(crate) fn names(&self) -> Vec<String> {
        let servers = self.servers.iter().filter(|plan| plan.disabled.is_none());
        servers.map(|plan| plan.upstream.name.clone()).collect()
    }

    /// The servers here, and the gateway as one more.
    pub(crate) fn all_servers(&self) -> Vec<ServerPlan> {
        let mut servers = self.servers.clone();
        servers.push(gateway_server(&self.gateway, &self.settings, self.names()));
        servers
    }

    pub(crate) fn sessions(&self, servers: Vec<ServerPlan>) -> Arc<Sessions> {
        let settings = Settings { has_many_streams: false, ..self.settings.clone() };
        let offer = ServerSet::Many { servers, terms: self.terms.clone() };
        let sessions = Sessions::new(offer, settings, self.rules.clone(), self.audit.clone(), None);
        tokio::spawn(Arc::clone(&sessions).watch());
        sessions
    }
}

/// The servers here, as the gateway uses them.
pub(crate) struct LocalServers {
    pub(crate) connection: Connection,
    /// The sessions that the gateway opened, by server. They outlive a connection to the gateway.
    channel_sessions: Mutex<HashMap<String, Arc<Sessions>>>,
    /// What carries the gateway's conversations with them.
    pub(crate) conversations: TaskTracker,
}

impl LocalServers {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, channel_sessions: Mutex::default(), conversations: TaskTracker::new() }
    }

    /// Returns the sessions of one server for the gateway, or `None` if the client's configuration does not name it.
    pub(crate) fn sessions_of(&self, server: &str) -> Option<Arc<Sessions>> {
        let mut sessions = self.channel_sessions.lock();
        if let Some(found) = sessions.get(server) {
            return Some(Arc::clone(found));
        }
        let can_run = |plan: &&ServerPlan| plan.upstream.name == server && plan.disabled.is_none();
        let mut plan = self.connection.servers.iter().find(can_run)?.clone();
        plan.names = Some(config::NameMode::None);
        let made = self.connection.sessions(vec![plan]);
        sessions.insert(server.to_owned(), Arc::clone(&made));
        Some(made)
    }

    /// Ends the sessions that the gateway opened, and waits for their conversations: one may just be opening another.
    pub(crate) async fn end_channel_sessions(&self) {
        let sessions: Vec<_> = self.channel_sessions.lock().values().cloned().collect();
        for sessions in sessions {
            sessions.end_all().await;
        }
        self.conversations.close();
        let _ = tokio::time::timeout(CONVERSATIONS_END_WITHIN, self.conversations.wait()).await;
        self.conversations.reopen();
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{connection, server};
    use super::*;
    use config::ExecutionContext;

    #[test]
    fn the_gateway_is_the_last_server_and_hides_those_that_run_here() {
        let disabled = ServerPlan { disabled: Some("off".to_owned()), ..server("disabled") };
        let servers = connection(vec![server("files"), disabled]).all_servers();
        let names: Vec<&str> = servers.iter().map(|plan| plan.upstream.name.as_str()).collect();
        assert_eq!(names, ["files", "disabled", "gateway"]);
        assert_eq!(servers[2].hides, ["files"]);
        assert_eq!(servers[2].context, ExecutionContext::Remote);
    }
}
