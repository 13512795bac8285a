//! The registry: opens sessions, finds them by principal and id, watches their deadlines, ends them.

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::task::JoinSet;
use wire::{Id, InitializeParams, InitializeResult, Message, Outcome, Request, Text, Version};

use crate::counters::Counters;
use crate::gate::Gate;
use crate::gateway_context::GatewayContext;
use crate::handshake;
use crate::plan::ServerSet;
use crate::quota::Quotas;
use crate::roster::Roster;
use crate::scope::{Scope, ScopeRefusal, ScopeRules, WorkspaceChoice};
use crate::server::{Route, Server};
use crate::session::Beginning;
use crate::session::Contexts;
use crate::settings::Settings;
use crate::tombstones::Tombstones;
use crate::{EndReason, Instance, Lifecycle, Principal, Refusal, Session, SessionId, SessionKey};
use audit::{AuditEntry, AuditLog};
use upstream::{end_all_children, reap_orphans};

/// How long an adopted process that ended may stay a zombie.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// How often memory is given back at most: it stops everybody who needs some for a moment.
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Sessions {
    context: Arc<GatewayContext>,
    /// The present one; sessions keep theirs.
    roster: RwLock<Arc<Roster>>,
    /// Earlier ones that some session still uses.
    retired: Mutex<Vec<Arc<Roster>>>,
    quotas: Arc<Quotas>,
    open: RwLock<HashMap<SessionKey, Arc<Session>>>,
    tombstones: Tombstones,
    is_closing: AtomicBool,
}

/// Who opens a session, and what they say about themselves beside `initialize`.
#[derive(Clone, Debug)]
pub struct Caller {
    pub principal: Principal,
    pub instance: Option<Instance>,
    pub workspace: Option<WorkspaceChoice>,
    pub contexts: Contexts,
}

impl Sessions {
    pub fn new(
        offer: ServerSet,
        settings: Settings,
        rules: ScopeRules,
        audit: Option<Arc<AuditLog>>,
    ) -> Arc<Self> {
        let quotas = Quotas::new(&settings);
        let context = GatewayContext::new(settings, rules, audit);
        Arc::new(Self {
            roster: RwLock::new(Roster::new(&context, offer)),
            retired: Mutex::default(),
            context,
            quotas,
            open: RwLock::default(),
            tombstones: Tombstones::default(),
            is_closing: AtomicBool::new(false),
        })
    }

    pub fn counters(&self) -> &Counters {
        &self.context.counters
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.read())
    }

    /// Sessions that are opened from now on find this. Those that are open keep what they have.
    pub fn replace(self: &Arc<Self>, offer: ServerSet) {
        let roster = Roster::new(&self.context, offer);
        let before = std::mem::replace(&mut *self.roster.write(), Arc::clone(&roster));
        self.retired.lock().push(before);
        Self::probe(&roster);
    }

    /// What is served, in a word or two.
    pub fn name(&self) -> String {
        let roster = self.roster();
        roster.sole().map_or_else(|| "servers".to_owned(), |server| server.name().to_owned())
    }

    /// Who shares processes; each of several servers has its own answer.
    pub fn lifecycle(&self) -> &'static str {
        self.roster().sole().map_or("mixed", |server| server.lifecycle().as_str())
    }

    /// The names of all servers.
    pub fn servers(&self) -> Vec<String> {
        self.roster().servers.iter().map(|server| server.name().to_owned()).collect()
    }

    pub fn count(&self) -> usize {
        self.open.read().len()
    }

    /// How many client windows have sessions.
    pub fn instances(&self) -> usize {
        self.quotas.instances()
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Starts a shared upstream now, so that a broken command is noticed before the first client; tries any
    /// other in the background, so that the first client need not wait for it.
    pub async fn prepare(self: &Arc<Self>) -> Result<(), Refusal> {
        let roster = self.roster();
        if let Some(server) = roster.sole().filter(|server| server.lifecycle() == Lifecycle::Shared) {
            let scope = server.fixed_scope()?;
            server.of_everybody(&scope).ready().await?;
        } else {
            Self::probe(&roster);
        }
        Ok(())
    }

    /// Tries all servers, so that the first client need not wait for it.
    fn probe(roster: &Arc<Roster>) {
        let handshake = Arc::new(handshake::probed());
        if let Some(server) = roster.sole() {
            let (server, greeting) = (Arc::clone(server), server.greeting(&handshake));
            tokio::spawn(async move { server.probe(greeting).await });
        } else {
            let whom = (
                SessionKey { principal: Principal::anonymous(), id: SessionId::random() },
                Instance::random(),
            );
            let roster = Arc::clone(roster);
            tokio::spawn(async move { roster.probed(&whom.0, &whom.1, &handshake).await });
        }
    }

    /// Opens a session with a client's `initialize`; returns it with the answer for the client. If the
    /// caller stops waiting, the session ends.
    pub async fn open(&self, caller: Caller, request: Request) -> Result<(Arc<Session>, Text), Refusal> {
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let params = InitializeParams::read(request.params()).map_err(Refusal::BadInitialize)?;
        let roster = self.roster();
        if roster.terms.is_some() {
            return self.open_several(&roster, caller, &request, params).await;
        }
        let server = &roster.servers[0];
        let (id, requested) = (request.id.clone(), params.version());
        let scope = self.known_scope(server, &caller, &params).await?;
        let key = SessionKey { principal: caller.principal, id: SessionId::random() };
        let is_named = caller.instance.is_some();
        let instance = caller.instance.unwrap_or_else(Instance::random);
        let place = self.quotas.enter(&key, &instance)?;
        let handshake = Arc::new(handshake::with_our_roots(&request));
        let is_started_now = scope.is_some() && server.lifecycle() != Lifecycle::Call;
        let told = if is_started_now { None } else { Some(server.probe(server.greeting(&handshake)).await) };
        let advertised_answer = told.as_ref().map(|told| Arc::clone(&told.answer));
        let gate = Gate::new(handshake, told);
        let beginning = Beginning { key, instance, is_named, params, gate, place, contexts: caller.contexts };
        let session = Session::new(&self.context, &roster, beginning);
        let opening = Opening(Some(Arc::clone(&session)));
        if let Some(scope) = scope {
            // Whoever shares a process shares its scope.
            let is_shared = server.lifecycle() == Lifecycle::Shared;
            let scope = if is_shared { scope } else { session.check_neighbours(scope)? };
            session.lock_scope(scope).await?;
        }
        let answer = match (advertised_answer, session.route()) {
            (Some(answer), _) => answer,
            (None, Some(Route::Worker(worker))) => worker.ready().await?,
            (None, _) => return Err(Refusal::SessionNotFound),
        };
        let (version, answer) = negotiate(server, requested, &answer);
        session.set_version(version);
        self.admit(&session)?;
        opening.done();
        Ok((session, initialize_answer(&id, &answer)))
    }

    /// Opens a session for a client that has not said `initialize` yet, and may never do so: the gateway does in its
    /// place.
    pub async fn begin(
        &self,
        caller: Caller,
        client: &Value,
        version: Version,
    ) -> Result<(Arc<Session>, String), Refusal> {
        let (session, answer) = self.open(caller, handshake::on_behalf_of(client, version)).await?;
        let answer = match Message::parse(answer.into_bytes()) {
            Ok(Message::Response(response)) => match response.outcome() {
                Outcome::Result(result) | Outcome::Error(result) => result.to_owned(),
            },
            _ => return Err(Refusal::SessionNotFound),
        };
        session.expect_initialize(answer.clone());
        if let Ok(Message::Notification(initialized)) =
            Message::parse(Bytes::from_static(handshake::INITIALIZED))
        {
            session.notify(&initialized).await?;
        }
        Ok((session, answer))
    }

    /// Whether servers for the client's files run on this machine.
    pub fn local_is_here(&self) -> bool {
        self.roster().terms.as_ref().is_none_or(|terms| terms.local_is_here)
    }

    /// The scope of a new session, if nobody need be asked for it.
    async fn known_scope(
        &self,
        server: &Server,
        caller: &Caller,
        params: &InitializeParams,
    ) -> Result<Option<Scope>, Refusal> {
        if server.lifecycle() == Lifecycle::Shared {
            let fixed = server.fixed_scope()?;
            let named = caller.workspace.as_ref().map(|choice| self.context.rules.of_workspace(choice));
            return match named.transpose()? {
                // One that is on another machine names nothing here.
                Some(named) if named.roots() != fixed.roots() && named.label.is_none() => {
                    Err(ScopeRefusal::NotShared(named.paths().into_iter().next().unwrap_or_default()).into())
                }
                _ => Ok(Some((*fixed).clone())),
            };
        }
        self.named_scope(caller, params).await
    }

    /// What the client names, or the default for one that cannot be asked.
    async fn named_scope(
        &self,
        caller: &Caller,
        params: &InitializeParams,
    ) -> Result<Option<Scope>, Refusal> {
        let scope = match &caller.workspace {
            None if params.capabilities.roots => return Ok(None),
            // The operator's own, so no client can make this wait.
            None => self.context.rules.by_default(),
            Some(choice) => {
                let choice = choice.clone();
                self.context.look_at_files(move |rules| rules.of_workspace(&choice)).await
            }
        };
        if let Err(refusal) = &scope {
            self.context.counters.denials.add("scope");
            tracing::warn!("no session: {refusal}");
            self.refused(&refusal.to_string(), None);
        }
        Ok(Some(scope?))
    }

    /// Notes that somebody was turned away.
    pub fn refused(&self, reason: &str, peer: Option<&str>) {
        self.context.record(|| AuditEntry::RequestRefused {
            session: None,
            reason: reason.into(),
            peer: peer.map(Into::into),
        });
    }

    /// Opens a session on several servers. The gateway answers for all of them.
    async fn open_several(
        &self,
        roster: &Arc<Roster>,
        caller: Caller,
        request: &Request,
        params: InitializeParams,
    ) -> Result<(Arc<Session>, Text), Refusal> {
        let version = params.version();
        let scope = self.named_scope(&caller, &params).await?;
        let key = SessionKey { principal: caller.principal, id: SessionId::random() };
        let is_named = caller.instance.is_some();
        let instance = caller.instance.unwrap_or_else(Instance::random);
        let place = self.quotas.enter(&key, &instance)?;
        let handshake = Arc::new(handshake::with_our_roots(request));
        let answer = roster.answer(&key, &instance, &handshake, version).await;
        let gate = Gate::new(handshake, None);
        let beginning = Beginning { key, instance, is_named, params, gate, place, contexts: caller.contexts };
        let session = Session::new(&self.context, roster, beginning);
        let opening = Opening(Some(Arc::clone(&session)));
        if let Some(scope) = scope {
            session.lock_scope(session.check_neighbours(scope)?).await?;
        }
        session.set_version(Some(version));
        self.admit(&session)?;
        opening.done();
        Ok((session, initialize_answer(&request.id, &answer)))
    }

    fn admit(&self, session: &Arc<Session>) -> Result<(), Refusal> {
        let mut open = self.open.write();
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        open.insert(session.key().clone(), Arc::clone(session));
        drop(open);
        self.context.counters.sessions_opened.add();
        tracing::info!(
            session = %session.handle(),
            instance = %session.instance(),
            client = session.client(),
            "session opened"
        );
        self.context.record(|| AuditEntry::SessionOpened {
            session: session.handle(),
            principal: session.key().principal.clone(),
            instance: Some(session.instance().as_str().into()),
            client: session.client().into(),
            scope_source: session.scope().map(|scope| scope.source().as_str().into()),
        });
        Ok(())
    }

    /// The session of a key, or why there is none.
    pub fn find(&self, key: &SessionKey) -> Result<Arc<Session>, Refusal> {
        let session = self.open.read().get(key).cloned();
        if let Some(session) = session {
            return session.end_refusal().map_or(Ok(session), Err);
        }
        let words = self.tombstones.find(key).ok_or(Refusal::SessionNotFound)?;
        Err(Refusal::Terminated(Box::new(words)))
    }

    /// The session that a handle names, for the operator.
    pub fn find_by_handle(&self, handle: &str) -> Option<Arc<Session>> {
        self.all().into_iter().find(|session| session.handle().to_string() == handle)
    }

    /// Ends a session. From here on its id is unknown, or refused with the reason.
    pub async fn end(&self, key: &SessionKey, reason: EndReason) -> Result<(), Refusal> {
        let find = || self.open.read().get(key).cloned();
        // The stone stands before the session goes: nobody is told in between that it is unknown.
        if let Some(words) = find().and_then(|session| session.end_error()) {
            self.tombstones.add(key.clone(), words);
        }
        let session = self.open.write().remove(key);
        let session = session.ok_or(Refusal::SessionNotFound)?;
        let reason = session.end_reason().unwrap_or(reason);
        self.context.counters.session_ended(reason);
        session.end(reason).await;
        Ok(())
    }

    /// Watches deadlines until the process ends.
    pub async fn watch(self: Arc<Self>) {
        let (mut quiet_beats, mut is_busy) = (0, false);
        let (mut reaped, mut given_back) = (Instant::now(), Instant::now());
        loop {
            self.context.ticker.beat(&mut quiet_beats, is_busy).await;
            let now = Instant::now();
            is_busy = false;
            for session in self.all() {
                is_busy |= session.calls_in_flight() > 0;
                let Some(reason) = session.tick(now) else { continue };
                let (sessions, key) = (Arc::clone(&self), session.key().clone());
                tokio::spawn(async move { sessions.end(&key, reason).await });
            }
            if now.duration_since(reaped) >= REAP_INTERVAL {
                reap_orphans();
                self.rest_idle();
                reaped = now;
            }
            if now.duration_since(given_back) >= GIVE_BACK_INTERVAL
                && self.context.had_probes.swap(false, Ordering::Relaxed)
            {
                tokio::task::spawn_blocking(fence::give_back_memory);
                given_back = now;
            }
        }
    }

    /// Lets shared workers rest that nobody uses, and lets go of configurations that no session has any more.
    fn rest_idle(&self) {
        self.roster().rest_idle();
        let mut retired = self.retired.lock();
        for roster in &*retired {
            roster.rest_idle();
        }
        let gone = retired.extract_if(.., |roster| Arc::strong_count(roster) == 1 && !roster.is_in_use());
        for roster in gone.collect::<Vec<_>>() {
            tokio::spawn(async move { roster.stop_all().await });
        }
    }

    /// Every open session.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.open.read().values().cloned().collect()
    }

    /// Takes no new sessions, gives calls in flight until `drain` to finish, then ends everything.
    pub async fn shut_down(self: &Arc<Self>, drain: Duration) {
        self.is_closing.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + drain;
        while Instant::now() < deadline && self.all().iter().any(|session| session.calls_in_flight() > 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.end_all().await;
        end_all_children().await;
    }

    /// Ends everything that is open, and waits until nothing of it is left.
    pub async fn end_all(self: &Arc<Self>) {
        let mut ends = JoinSet::new();
        for session in self.all() {
            let sessions = Arc::clone(self);
            ends.spawn(async move { sessions.end(session.key(), EndReason::Shutdown).await });
        }
        while ends.join_next().await.is_some() {}
        let retired = std::mem::take(&mut *self.retired.lock());
        for roster in retired.into_iter().chain([self.roster()]) {
            roster.stop_all().await;
        }
        self.context.cleared().await;
    }
}

/// A client of a shared upstream gets the older of what it asked for and what the upstream speaks.
fn negotiate(server: &Server, requested: Version, result: &InitializeResult) -> (Option<Version>, String) {
    match result.version {
        Some(upstream) if server.lifecycle().serves_many() => {
            let version = requested.min(upstream);
            (Some(version), result.with_version(version))
        }
        version => (version, result.as_json().to_owned()),
    }
}

fn initialize_answer(id: &Id, answer: &str) -> Text {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{answer}}}"#, id.as_json())).into()
}

/// Ends a session whose opener failed, or went away before it was told the session id.
struct Opening(Option<Arc<Session>>);

impl Opening {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            tokio::spawn(async move { session.end(EndReason::Abandoned).await });
        }
    }
}
