//! The servers of one configuration. A session keeps the roster that it was opened with; a new configuration is a
//! new roster.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use wire::{Request, Version};

use crate::catalogue::{Catalogue, ServerCapabilities};
use crate::gateway_context::GatewayContext;
use crate::plan::{Beneficiary, ServerPlan, ServerSet, Terms};
use crate::server::Server;
use crate::view::Views;
use crate::{Instance, SessionKey};
use upstream::Transport;

/// A client's `initialize` is answered without the servers that could not be tried by then.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// What one server may say in the instructions for the model.
const MAX_INSTRUCTIONS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Roster {
    /// In the order of the configuration, which is the order of all lists.
    pub(crate) servers: Vec<Arc<Server>>,
    /// `None`: there is one server, and it is passed through as it is.
    pub(crate) terms: Option<Terms>,
    pub(crate) views: Views,
}

impl Roster {
    pub(crate) fn new(context: &Arc<GatewayContext>, offer: ServerSet) -> Arc<Self> {
        let (plans, terms) = match offer {
            ServerSet::One(upstream) => (vec![ServerPlan::fixed(upstream)], None),
            ServerSet::Many { servers, terms } => (servers, Some(terms)),
        };
        let servers = plans.into_iter().map(|plan| Server::new(context, plan)).collect();
        Arc::new(Self { servers, terms, views: Views::default() })
    }

    /// The server that is passed through, if one is.
    pub(crate) fn sole(&self) -> Option<&Arc<Server>> {
        if self.terms.is_none() { self.servers.first() } else { None }
    }

    /// What all servers offer to such a client, in their order. Of those that are not known in time, `None`.
    pub(crate) async fn probed(
        &self,
        key: &SessionKey,
        instance: &Instance,
        handshake: &Arc<Request>,
    ) -> Vec<(String, Option<Arc<Catalogue>>)> {
        let Some(terms) = &self.terms else { return Vec::new() };
        let whom = Beneficiary { key, instance, scope: None };
        let is_here = |server: &&Arc<Server>| {
            let plan = &server.plan;
            let is_named = !matches!(plan.upstream.transport, Transport::Attached);
            plan.disabled.is_none() && !plan.is_away(terms) && is_named
        };
        let mut probes = JoinSet::new();
        for (place, server) in self.servers.iter().filter(is_here).enumerate() {
            let Ok(upstream) = server.plan.for_session(terms, whom) else { continue };
            let (server, handshake) = (Arc::clone(server), server.greeting(handshake));
            probes.spawn(async move {
                let tried = tokio::time::timeout(PROBE_WITHIN, server.catalogue(upstream, handshake)).await;
                (place, server.name().to_owned(), tried.ok().and_then(Result::ok))
            });
        }
        let mut known = probes.join_all().await;
        known.sort_by_key(|(place, ..)| *place);
        known.into_iter().map(|(_, name, catalogue)| (name, catalogue)).collect()
    }

    /// The answer to a client's `initialize`: what all servers together can do.
    pub(crate) async fn answer(
        &self,
        key: &SessionKey,
        instance: &Instance,
        handshake: &Arc<Request>,
        version: Version,
    ) -> String {
        let known = self.probed(key, instance, handshake).await;
        // A server that is away or slow may turn out to have any of these.
        let is_away = |server: &Arc<Server>| {
            let plan = &server.plan;
            plan.disabled.is_none() && self.terms.as_ref().is_some_and(|terms| plan.is_away(terms))
        };
        let has_unknown = self.servers.iter().any(is_away) || known.iter().any(|(_, it)| it.is_none());
        let unknown = ServerCapabilities {
            tools: true,
            prompts: has_unknown,
            resources: has_unknown,
            logging: has_unknown,
            ..ServerCapabilities::default()
        };
        let offers =
            known.iter().filter_map(|(_, it)| it.as_ref()).fold(unknown, |all, it| all.or(it.capabilities));
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        let mut offer = |name: &str, is_there: bool, what: Value| {
            if is_there {
                capabilities[name] = what;
            }
        };
        offer("prompts", offers.prompts, json!({ "listChanged": true }));
        offer("resources", offers.resources, json!({ "listChanged": true, "subscribe": offers.subscribe }));
        offer("completions", offers.completions, json!({}));
        offer("logging", offers.logging, json!({}));
        offer(
            "tasks",
            offers.tasks,
            json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }),
        );
        let mut answer = json!({
            "protocolVersion": version.as_str(),
            "capabilities": capabilities,
            "serverInfo": { "name": "ringfence", "title": "ringfence", "version": env!("CARGO_PKG_VERSION") },
        });
        let instructions = instructions(&known);
        if !instructions.is_empty() {
            answer["instructions"] = instructions.into();
        }
        answer.to_string()
    }

    pub(crate) fn rest_idle(&self) {
        for server in &self.servers {
            server.rest_idle();
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.servers.iter().any(|server| server.is_in_use())
    }

    pub(crate) async fn stop_all(&self) {
        let mut stopping = JoinSet::new();
        for worker in self.servers.iter().flat_map(|server| server.take_shared()) {
            stopping.spawn(async move { worker.stop().await });
        }
        while stopping.join_next().await.is_some() {}
    }
}

/// What the servers tell the model, one after the other.
fn instructions(known: &[(String, Option<Arc<Catalogue>>)]) -> String {
    let mut text = String::new();
    for (name, catalogue) in known {
        if let Some(own) = catalogue.as_ref().and_then(|it| it.instructions.as_ref()) {
            let own: String = own.chars().take(MAX_INSTRUCTIONS).collect();
            let _ = write!(text, "{}# {name}\n{own}", if text.is_empty() { "" } else { "\n\n" });
        }
    }
    text
}
