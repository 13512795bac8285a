//! The servers of one configuration. A session keeps the roster that it was opened with; a new configuration is a new
//! roster.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{NameMode, Secrets, Storage};
use identity::{Instance, Principal, SessionId, SessionKey};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use upstream::{Lifecycle, Transport};
use wire::{InitializeResult, Request, Version};

use crate::catalogue::{Catalogue, ServerCapabilities};
use crate::gateway_context::GatewayContext;
use crate::handshake;
use crate::plan::{Beneficiary, ServerSet, Terms};
use crate::probe::Advertised;
use crate::rights::Rights;
use crate::route::{Placed, Placing};
use crate::scope::{Scope, ScopeRefusal};
use crate::server::Server;
use crate::view::Views;

/// A client's `initialize` is answered without the servers that could not be probed by then: it never waits for a slow
/// one.
const PROBE_WITHIN: Duration = Duration::from_millis(700);

/// Longest part of one server in the instructions for the model.
const MAX_INSTRUCTIONS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Roster {
    context: Arc<GatewayContext>,
    /// In the order of the configuration, which is the order of all lists.
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) terms: Terms,
    /// There is one server, and it is passed through as it is.
    is_passed_through: bool,
    pub(crate) views: Views,
}

/// The result of `initialize` for a client.
#[derive(Debug)]
pub(crate) struct Told {
    /// The negotiated revision, if it is one that we know.
    pub(crate) version: Option<Version>,
    pub(crate) answer: String,
}

/// Stands for a session where there is none: a server is probed before the first client.
struct NoSession {
    key: SessionKey,
    instance: Instance,
    rights: Rights,
}

impl Default for NoSession {
    fn default() -> Self {
        let key = SessionKey { principal: Principal::anonymous(), id: SessionId::random() };
        Self { key, instance: Instance::random(), rights: Rights::default() }
    }
}

impl NoSession {
    fn as_beneficiary(&self) -> Beneficiary<'_> {
        Beneficiary { key: &self.key, instance: &self.instance, rights: &self.rights, scope: None }
    }
}

/// Who answers a client's `initialize`.
#[derive(Debug)]
pub(crate) enum Welcome {
    /// The gateway, for several servers.
    Gateway(Told),
    /// The gateway, with what a probe of the one server has shown: its worker cannot start yet.
    Probed(Told, Advertised),
    /// The worker itself, as soon as it runs.
    Worker,
}

impl Roster {
    pub(crate) fn new(context: &Arc<GatewayContext>, servers: ServerSet) -> Arc<Self> {
        let is_passed_through = matches!(servers, ServerSet::One { .. });
        let (plans, terms) = match servers {
            ServerSet::One { server, storage } => (vec![*server], terms_of_one(storage)),
            ServerSet::Many { servers, terms } => (servers, terms),
        };
        let servers = plans.into_iter().map(|plan| Server::new(context, plan, is_passed_through)).collect();
        let context = Arc::clone(context);
        Arc::new(Self { context, servers, terms, is_passed_through, views: Views::default() })
    }

    /// The server that is passed through, if one is. What depends on that is asked with the methods below; a route is
    /// made for what [`Roster::placed_at_once`] says.
    fn sole(&self) -> Option<&Arc<Server>> {
        if self.is_passed_through { self.servers.first() } else { None }
    }

    /// A name for what is served, in a word or two.
    pub(crate) fn name(&self) -> &str {
        self.sole().map_or("servers", |server| server.name())
    }

    /// Which sessions share processes; each of several servers has its own answer.
    pub(crate) fn lifecycle(&self) -> &'static str {
        self.sole().map_or("mixed", |server| server.lifecycle().as_str())
    }

    /// The server whose one process all sessions share, if that is all there is.
    pub(crate) fn shared_server(&self) -> Option<&Arc<Server>> {
        self.sole().filter(|server| server.lifecycle() == Lifecycle::Shared)
    }

    /// Whether all sessions work in the scope of one process.
    pub(crate) fn shares_scope(&self) -> bool {
        self.shared_server().is_some()
    }

    /// Whether what a session works with may serve others at the same time, all of it.
    pub(crate) fn serves_many(&self) -> bool {
        self.sole().is_some_and(|server| server.lifecycle().serves_many())
    }

    /// Whether the gateway itself answers `initialize`, and so speaks every revision. One server has decided for itself.
    pub(crate) fn answers_for_itself(&self) -> bool {
        self.sole().is_none()
    }

    /// Where the servers of a session run.
    pub(crate) fn place(&self, placing: &Placing) -> Result<Placed, ScopeRefusal> {
        match self.sole() {
            Some(server) => Ok(Placed::One(Arc::clone(server), placing.scope_of_one(server)?)),
            None => Ok(Placed::Many(placing.members())),
        }
    }

    /// The same, where no file has to be looked at for it.
    pub(crate) fn placed_at_once(&self, scope: &Arc<Scope>) -> Option<Placed> {
        let server = self.sole().filter(|server| server.plan.storage == Storage::None)?;
        Some(Placed::One(Arc::clone(server), Arc::clone(scope)))
    }

    /// Probes all servers in the background, with what the next client most probably says.
    pub(crate) fn probe_all(self: &Arc<Self>) {
        let (roster, handshake) = (Arc::clone(self), Arc::new(handshake::expected()));
        self.context.tasks.spawn(async move {
            let no_session = NoSession::default();
            if let Some(server) = roster.sole() {
                roster.advertise(server, no_session.as_beneficiary(), &handshake).await;
            } else {
                roster.probed(no_session.as_beneficiary(), &handshake, PROBE_WITHIN).await;
            }
        });
    }

    /// Probes all servers that run here, and waits as long as that takes.
    pub(crate) async fn try_all(&self) -> Vec<(String, Result<usize, String>)> {
        let (no_session, handshake) = (NoSession::default(), Arc::new(handshake::expected()));
        let mut trials = JoinSet::new();
        let mut found = Vec::new();
        for (place, server) in self.servers.iter().enumerate() {
            let name = server.name().to_owned();
            if server.plan.disabled.is_some() {
                continue;
            }
            match server.plan.for_session(&self.terms, no_session.as_beneficiary()) {
                Err(missing) => found.push((place, name, Err(missing.to_string()))),
                Ok(upstream) => {
                    let (server, handshake) = (Arc::clone(server), server.greeting(&handshake));
                    trials.spawn(async move {
                        let shown = server.catalogue(upstream, handshake).await;
                        let tools = shown.map(|shown| shown.tools.len()).map_err(|error| error.to_string());
                        (place, name, tools)
                    });
                }
            }
        }
        found.extend(trials.join_all().await);
        found.sort_by_key(|(place, ..)| *place);
        found.into_iter().map(|(_, name, tools)| (name, tools)).collect()
    }

    /// Answers a client's `initialize`, or leaves that to the worker. `starts_now`: the scope is known, so a worker can
    /// start at once.
    pub(crate) async fn welcome(
        &self,
        whom: Beneficiary<'_>,
        handshake: &Arc<Request>,
        requested: Version,
        starts_now: bool,
    ) -> Welcome {
        let Some(server) = self.sole() else {
            let answer = self.answer(whom, handshake, requested, PROBE_WITHIN).await;
            return Welcome::Gateway(Told { version: Some(requested), answer });
        };
        if starts_now && server.lifecycle() != Lifecycle::Call {
            return Welcome::Worker;
        }
        let advertised = self.advertise(server, whom, handshake).await;
        Welcome::Probed(self.negotiate(requested, &advertised.answer), advertised)
    }

    /// What a client of the one server is told at `initialize`. Nothing of the session is known to the probe but its rights.
    async fn advertise(
        &self,
        server: &Arc<Server>,
        whom: Beneficiary<'_>,
        handshake: &Arc<Request>,
    ) -> Advertised {
        let upstream = server.plan.passed_through(&self.terms, Beneficiary { scope: None, ..whom });
        server.advertise(upstream, server.greeting(handshake)).await
    }

    /// The result for a client of the one server. A client of a shared upstream gets the older of the revision that it
    /// asked for and the one that the upstream speaks.
    pub(crate) fn negotiate(&self, requested: Version, result: &InitializeResult) -> Told {
        match result.version {
            Some(upstream) if self.serves_many() => {
                let version = requested.min(upstream);
                Told { version: Some(version), answer: result.with_version(version) }
            }
            version => Told { version, answer: result.as_json().to_owned() },
        }
    }

    /// What all servers offer to such a client, in their order. `None` for those that are not known in time.
    async fn probed(
        &self,
        whom: Beneficiary<'_>,
        handshake: &Arc<Request>,
        within: Duration,
    ) -> Vec<(String, Option<Arc<Catalogue>>)> {
        let terms = &self.terms;
        let is_here = |server: &&Arc<Server>| {
            let plan = &server.plan;
            let is_named = !matches!(plan.upstream.transport, Transport::Attached);
            let is_granted = whom.rights.has_server(server.name());
            plan.disabled.is_none() && !plan.is_away(terms) && is_named && is_granted
        };
        let mut probes = JoinSet::new();
        for (place, server) in self.servers.iter().filter(is_here).enumerate() {
            let Ok(upstream) = server.plan.for_session(terms, whom) else { continue };
            let (server, handshake) = (Arc::clone(server), server.greeting(handshake));
            probes.spawn(async move {
                let found = tokio::time::timeout(within, server.catalogue(upstream, handshake)).await;
                (place, server.name().to_owned(), found.ok().and_then(Result::ok))
            });
        }
        let mut known = probes.join_all().await;
        known.sort_by_key(|(place, ..)| *place);
        known.into_iter().map(|(_, name, catalogue)| (name, catalogue)).collect()
    }

    /// The answer to a client's `initialize`: what all servers together can do.
    async fn answer(
        &self,
        whom: Beneficiary<'_>,
        handshake: &Arc<Request>,
        version: Version,
        within: Duration,
    ) -> String {
        let known = self.probed(whom, handshake, within).await;
        let mut answer = json!({
            "protocolVersion": version.as_str(),
            "capabilities": self.capabilities(&known, whom.rights),
            "serverInfo": { "name": "ringfence", "title": "ringfence", "version": env!("CARGO_PKG_VERSION") },
        });
        let instructions = instructions(&known);
        if !instructions.is_empty() {
            answer["instructions"] = instructions.into();
        }
        answer.to_string()
    }

    /// The capabilities of all servers together. A server that is away or slow may turn out to have any of them.
    fn capabilities(&self, known: &[(String, Option<Arc<Catalogue>>)], rights: &Rights) -> Value {
        let is_away = |server: &Arc<Server>| {
            let plan = &server.plan;
            plan.disabled.is_none() && plan.is_away(&self.terms) && rights.has_server(server.name())
        };
        let has_unknown = self.servers.iter().any(is_away) || known.iter().any(|(_, it)| it.is_none());
        let unknown = ServerCapabilities {
            tools: true,
            prompts: has_unknown,
            resources: has_unknown,
            logging: has_unknown,
            ..ServerCapabilities::default()
        };
        let found = known.iter().filter_map(|(_, it)| it.as_ref());
        let all = found.fold(unknown, |all, it| all.or(it.capabilities));
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        let mut add = |name: &str, is_there: bool, what: Value| {
            if is_there {
                capabilities[name] = what;
            }
        };
        add("prompts", all.prompts, json!({ "listChanged": true }));
        add("resources", all.resources, json!({ "listChanged": true, "subscribe": all.subscribe }));
        add("completions", all.completions, json!({}));
        add("logging", all.logging, json!({}));
        add("tasks", all.tasks, json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }));
        capabilities
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

/// The terms of a server that is passed through: it runs here, and its storage is all that a session fills in.
fn terms_of_one(storage: Option<PathBuf>) -> Terms {
    Terms { names: NameMode::default(), secrets: Secrets::default(), local_is_here: true, storage }
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

#[cfg(test)]
mod tests;
