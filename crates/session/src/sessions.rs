//! The registry: opens sessions, finds them by principal and id, watches their deadlines, ends them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use wire::{Id, InitializeParams, InitializeResult, Request, Text, Version};

use crate::audit::{AuditEntry, AuditLog};
use crate::capability_cache::CapabilityCache;
use crate::counters::Counters;
use crate::deployment::Deployment;
use crate::gate::Gate;
use crate::handshake;
use crate::quota::Quotas;
use crate::scope::{Scope, ScopeRefusal, ScopeRules, WorkspaceChoice};
use crate::session::Beginning;
use crate::settings::Settings;
use crate::tombstones::Tombstones;
use crate::tree::{end_all_children, reap_orphans};
use crate::workers::{Seat, Workers};
use crate::{EndReason, Instance, Lifecycle, Principal, Refusal, Session, SessionId, SessionKey, Upstream};

/// How long an adopted process that ended may stay a zombie.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Sessions {
    deployment: Arc<Deployment>,
    workers: Arc<Workers>,
    quotas: Arc<Quotas>,
    capabilities: CapabilityCache,
    open: RwLock<HashMap<SessionKey, Arc<Session>>>,
    tombstones: Tombstones,
    /// The scope of a worker that everybody shares.
    fixed_scope: std::sync::OnceLock<Arc<Scope>>,
    is_closing: AtomicBool,
}

/// Who opens a session, and what they say about themselves beside `initialize`.
#[derive(Clone, Debug)]
pub struct Caller {
    pub principal: Principal,
    pub instance: Option<Instance>,
    pub workspace: Option<WorkspaceChoice>,
}

impl Sessions {
    pub fn new(
        upstream: Upstream,
        settings: Settings,
        rules: ScopeRules,
        audit: Option<Arc<AuditLog>>,
    ) -> Arc<Self> {
        let quotas = Quotas::new(&settings);
        let deployment = Deployment::new(upstream, settings, rules, audit);
        Arc::new(Self {
            workers: Arc::new(Workers::new(&deployment)),
            deployment,
            quotas,
            capabilities: CapabilityCache::default(),
            open: RwLock::default(),
            tombstones: Tombstones::default(),
            fixed_scope: std::sync::OnceLock::new(),
            is_closing: AtomicBool::new(false),
        })
    }

    pub fn counters(&self) -> &Counters {
        &self.deployment.counters
    }

    pub fn upstream(&self) -> &Upstream {
        &self.deployment.upstream
    }

    pub fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
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
        if self.deployment.upstream.lifecycle == Lifecycle::Shared {
            let scope = self.fixed_scope()?;
            self.workers.of_everybody(&scope).ready().await?;
        } else {
            let sessions = Arc::clone(self);
            let greeting = self.greeting(&Arc::new(handshake::foreseen()));
            tokio::spawn(async move { sessions.foresee(greeting).await });
        }
        Ok(())
    }

    fn fixed_scope(&self) -> Result<Arc<Scope>, Refusal> {
        if let Some(scope) = self.fixed_scope.get() {
            return Ok(Arc::clone(scope));
        }
        let scope = Arc::new(self.deployment.rules.by_default()?);
        Ok(Arc::clone(self.fixed_scope.get_or_init(|| scope)))
    }

    /// Opens a session with a client's `initialize`; returns it with the answer for the client. If the
    /// caller stops waiting, the session ends.
    pub async fn open(&self, caller: Caller, request: Request) -> Result<(Arc<Session>, Text), Refusal> {
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let params = InitializeParams::read(request.params()).map_err(Refusal::BadInitialize)?;
        let (id, requested) = (request.id.clone(), params.version());
        let scope = self.known_scope(&caller, &params).await?;
        let key = SessionKey { principal: caller.principal, id: SessionId::random() };
        let instance = caller.instance.unwrap_or_else(Instance::random);
        let place = self.quotas.enter(&key, &instance)?;
        let handshake = Arc::new(handshake::with_our_roots(&request));
        let is_started_now = scope.is_some() && self.deployment.upstream.lifecycle != Lifecycle::Call;
        let told = if is_started_now { None } else { Some(self.foresee(self.greeting(&handshake)).await) };
        let told_answer = told.as_ref().map(|told| Arc::clone(&told.answer));
        let beginning = Beginning { key, instance, params, gate: Gate::new(handshake, told), place };
        let session = Session::new(&self.deployment, &self.workers, beginning);
        let opening = Opening(Some(Arc::clone(&session)));
        if let Some(scope) = scope {
            // Whoever shares a process shares its scope.
            let is_shared = self.deployment.upstream.lifecycle == Lifecycle::Shared;
            let scope = if is_shared { scope } else { session.check_neighbours(scope)? };
            session.lock_scope(&Arc::new(scope));
        }
        let answer = match (told_answer, session.seat()) {
            (Some(answer), _) => answer,
            (None, Some(Seat::Worker(worker))) => worker.ready().await?,
            (None, _) => return Err(Refusal::SessionNotFound),
        };
        let (version, answer) = self.negotiate(requested, &answer);
        session.set_version(version);
        self.admit(&session)?;
        opening.done();
        Ok((session, initialize_answer(&id, &answer)))
    }

    /// The scope of a new session, if nobody need be asked for it.
    async fn known_scope(
        &self,
        caller: &Caller,
        params: &InitializeParams,
    ) -> Result<Option<Scope>, Refusal> {
        if self.deployment.upstream.lifecycle == Lifecycle::Shared {
            let fixed = self.fixed_scope()?;
            let named = caller.workspace.as_ref().map(|choice| self.deployment.rules.of_workspace(choice));
            return match named.transpose()? {
                Some(named) if named.roots != fixed.roots => {
                    Err(ScopeRefusal::NotShared(named.paths().swap_remove(0)).into())
                }
                _ => Ok(Some((*fixed).clone())),
            };
        }
        let scope = match &caller.workspace {
            None if params.capabilities.roots => return Ok(None),
            // The operator's own, so no client can make this wait.
            None => self.deployment.rules.by_default(),
            Some(choice) => {
                let choice = choice.clone();
                self.deployment.look_at_scope(move |rules| rules.of_workspace(&choice)).await
            }
        };
        if let Err(refusal) = &scope {
            self.deployment.counters.denials.add("scope");
            tracing::warn!("no session: {refusal}");
            self.refused(&refusal.to_string(), None);
        }
        Ok(Some(scope?))
    }

    /// Notes that somebody was turned away.
    pub fn refused(&self, reason: &str, peer: Option<&str>) {
        self.deployment.record(|| AuditEntry::RequestRefused {
            session: None,
            reason: reason.into(),
            peer: peer.map(Into::into),
        });
    }

    /// What the upstream of a client will be greeted with.
    fn greeting(&self, of_client: &Arc<Request>) -> Arc<Request> {
        let serves_many = self.deployment.upstream.lifecycle.serves_many();
        if serves_many { Arc::new(handshake::own()) } else { Arc::clone(of_client) }
    }

    /// What the upstream will answer to this `initialize`.
    async fn foresee(&self, handshake: Arc<Request>) -> crate::capability_cache::Told {
        let kind = handshake::fingerprint(&handshake);
        let requested =
            InitializeParams::read(handshake.params()).map_or(Version::NEWEST, |params| params.version());
        let workers = Arc::clone(&self.workers);
        let trial = async move { workers.try_out(handshake).await };
        self.capabilities.answer(kind, requested, trial).await
    }

    /// A client of a shared upstream gets the older of what it asked for and what the upstream speaks.
    fn negotiate(&self, requested: Version, result: &InitializeResult) -> (Option<Version>, String) {
        match result.version {
            Some(upstream) if self.deployment.upstream.lifecycle.serves_many() => {
                let version = requested.min(upstream);
                (Some(version), result.with_version(version))
            }
            version => (version, result.as_json().to_owned()),
        }
    }

    fn admit(&self, session: &Arc<Session>) -> Result<(), Refusal> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        open.insert(session.key().clone(), Arc::clone(session));
        drop(open);
        self.deployment.counters.sessions_opened.add();
        tracing::info!(
            session = %session.handle(),
            instance = %session.instance(),
            client = session.client(),
            "session opened"
        );
        self.deployment.record(|| AuditEntry::SessionOpened {
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
        let session = self.open.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if let Some(session) = session {
            return session.epitaph().map_or(Ok(session), Err);
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
        let find = || self.open.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        // The stone stands before the session goes: nobody is told in between that it is unknown.
        if let Some(words) = find().and_then(|session| session.last_words()) {
            self.tombstones.add(key.clone(), words);
        }
        let session = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        let session = session.ok_or(Refusal::SessionNotFound)?;
        let reason = session.end_reason().unwrap_or(reason);
        self.deployment.counters.session_ended(reason);
        session.end(reason).await;
        Ok(())
    }

    /// Watches deadlines until the process ends.
    pub async fn watch(self: Arc<Self>) {
        let (mut quiet_beats, mut is_busy, mut reaped) = (0, false, Instant::now());
        loop {
            self.deployment.pulse.beat(&mut quiet_beats, is_busy).await;
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
                self.workers.rest_idle();
                reaped = now;
            }
        }
    }

    /// Every open session.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes no new sessions, gives calls in flight until `drain` to finish, then ends everything.
    pub async fn shut_down(self: &Arc<Self>, drain: Duration) {
        self.is_closing.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + drain;
        while Instant::now() < deadline && self.all().iter().any(|session| session.calls_in_flight() > 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut ends = JoinSet::new();
        for session in self.all() {
            let sessions = Arc::clone(self);
            ends.spawn(async move { sessions.end(session.key(), EndReason::Shutdown).await });
        }
        while ends.join_next().await.is_some() {}
        self.workers.stop_all().await;
        self.deployment.cleared().await;
        end_all_children().await;
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
