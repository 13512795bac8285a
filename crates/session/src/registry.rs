//! The registry: finds sessions by principal and id, watches their deadlines, ends them. `opening.rs` opens them.

mod contexts;
mod dormant;
mod opening;
mod quota;
mod restoring;
mod retention;
mod tombstones;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use audit::{AuditEntry, AuditLog};
use identity::{Principal, RecordKey, SessionKey};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use store::{Condition, Loaded, Store};
use tokio::task::JoinSet;
use upstream::{end_all_children, reap_orphans};

pub use self::contexts::{context_of, update_context_of};
use self::dormant::Dormant;
pub use self::opening::Caller;
pub(crate) use self::quota::Place;
use self::quota::Quotas;
use self::retention::Evictions;
pub use self::retention::prune_store;
use self::tombstones::Tombstones;
use crate::client;
use crate::counters::Counters;
use crate::error::Refusal;
use crate::gateway_context::GatewayContext;
use crate::lost_call::{outcome_unknown, outcome_unknown_in_upgrade};
use crate::plan::ServerSet;
use crate::record::EndReason;
use crate::rights::{RightsBook, Working};
use crate::roster::Roster;
use crate::scope::{ScopeRules, ScopeSource};
use crate::session::{Session, SessionOverview};
use crate::session_context::SessionQuery;
use crate::settings::Settings;

/// How long an adopted process that ended may stay a zombie.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// How often memory is given back at most: it stops every thread that needs some for a moment.
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(10);

/// Why all sessions end here, as the callers of calls that are cut are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutDownCause {
    End,
    /// Another program goes on in this process.
    Upgrade,
}

#[derive(Debug)]
pub struct Sessions {
    context: Arc<GatewayContext>,
    /// The present one; sessions keep theirs.
    roster: RwLock<Arc<Roster>>,
    /// Earlier ones that some session still uses.
    retired: Mutex<Vec<Arc<Roster>>>,
    quotas: Arc<Quotas>,
    open: RwLock<HashMap<SessionKey, Arc<Session>>>,
    /// Those of an earlier gateway, until their clients come back.
    dormant: Dormant,
    evictions: Evictions,
    tombstones: Tombstones,
    is_closing: AtomicBool,
    /// Another program goes on with the sessions.
    is_upgrade: AtomicBool,
}

impl Sessions {
    pub fn new(
        servers: ServerSet,
        settings: Settings,
        rules: ScopeRules,
        audit: Option<Arc<AuditLog>>,
        kept: Option<(Store, Loaded)>,
    ) -> Arc<Self> {
        let quotas = Quotas::new(&settings);
        let (store, mut loaded) = kept.map_or_else(Default::default, |(store, loaded)| (Some(store), loaded));
        let context = GatewayContext::new(settings, rules, audit, store);
        let tombstones = Tombstones::of(std::mem::take(&mut loaded.ends));
        let known: HashSet<RecordKey> = loaded.sessions.iter().map(|row| row.key).collect();
        context.durable.sweep_states(|key| known.contains(key));
        let (dormant, useless) = Dormant::of(loaded);
        for key in useless {
            context.durable.session_expired(key);
        }
        Arc::new(Self {
            roster: RwLock::new(Roster::new(&context, servers)),
            retired: Mutex::default(),
            context,
            quotas,
            open: RwLock::default(),
            dormant,
            evictions: Evictions::default(),
            tombstones,
            is_closing: AtomicBool::new(false),
            is_upgrade: AtomicBool::new(false),
        })
    }

    pub fn counters(&self) -> &Counters {
        &self.context.counters
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.read())
    }

    /// Replaces the servers for sessions that are opened from now on. Those that are open keep what they have.
    pub fn replace(self: &Arc<Self>, servers: ServerSet) {
        let roster = Roster::new(&self.context, servers);
        let before = std::mem::replace(&mut *self.roster.write(), Arc::clone(&roster));
        self.retired.lock().push(before);
        roster.probe_all();
    }

    /// Sets what principals may do. Sessions that their principals may not have any more end.
    pub fn set_rights(self: &Arc<Self>, rights: RightsBook) {
        *self.context.rights.write() = rights;
        for session in self.all() {
            if self.may_go_on(&session) {
                continue;
            }
            self.withdraw_access(session, "its principal has other rights now");
        }
    }

    /// Ends a session whose caller may not have it any more, without being waited for.
    pub fn withdraw_access(self: &Arc<Self>, session: Arc<Session>, why: &str) {
        tracing::info!(session = %session.handle(), "ending the session: {why}");
        let sessions = Arc::clone(self);
        // An error says that it has ended by itself.
        self.context.depart(async move { sessions.end(session.key(), EndReason::AccessWithdrawn).await });
    }

    /// Whether the access of a principal has expired.
    pub fn has_expired(&self, principal: &Principal) -> bool {
        self.context.rights.read().has_expired(principal, Timestamp::now())
    }

    fn may_go_on(&self, session: &Session) -> bool {
        let rights = self.context.rights_of(&session.key().principal);
        let working = session.scope().map(|scope| Working {
            directories: scope.paths(),
            is_default: scope.source() == ScopeSource::Default,
        });
        rights.is_ok_and(|rights| rights.suit(session.rights(), working.as_ref()))
    }

    /// A name for what is served, in a word or two.
    pub fn name(&self) -> String {
        self.roster().name().to_owned()
    }

    /// Which sessions share processes; each of several servers has its own answer.
    pub fn lifecycle(&self) -> &'static str {
        self.roster().lifecycle()
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

    /// How many sessions of an earlier gateway have not come back yet.
    pub fn count_dormant(&self) -> usize {
        self.dormant.count()
    }

    /// Whether sessions reach the disk; `None` if none are kept.
    pub fn store_condition(&self) -> Option<Condition> {
        self.context.durable.condition()
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Whether servers for the client's files run on this machine.
    pub fn local_is_here(&self) -> bool {
        self.roster().terms.local_is_here
    }

    /// Records of the audit log that its sink does not have yet; `None` without a sink.
    pub fn unsent_audit_records(&self) -> Option<u64> {
        self.context.audit.as_ref()?.unsent()
    }

    /// Writes to the audit log that a request was turned away.
    pub fn refused(&self, reason: &str, peer: Option<&str>) {
        self.context.record(|| AuditEntry::RequestRefused {
            session: None,
            reason: reason.into(),
            peer: peer.map(Into::into),
        });
    }

    /// The session of a key, or why there is none.
    pub fn find(&self, key: &SessionKey) -> Result<Arc<Session>, Refusal> {
        let session = self.open.read().get(key).cloned();
        if let Some(session) = session {
            return match session.client().ended() {
                None => Ok(session),
                // The next gateway has it.
                Some(end) if end.reason == EndReason::Shutdown && self.context.durable.is_kept() => {
                    Err(Refusal::ShuttingDown)
                }
                Some(end) => Err(end.refusal()),
            };
        }
        if let Some(session) = self.restore(key)? {
            return Ok(session);
        }
        match self.tombstones.find(&key.record_key()) {
            Some(error) => Err(Refusal::Terminated(Box::new(error))),
            // It may be one that the next gateway will have.
            None if self.is_closing() && self.context.durable.is_kept() => Err(Refusal::ShuttingDown),
            None => Err(Refusal::SessionNotFound),
        }
    }

    /// The session that a handle names, for the operator.
    fn find_by_handle(&self, handle: &str) -> Option<Arc<Session>> {
        self.all().into_iter().find(|session| session.handle().to_string() == handle)
    }

    /// Every open session.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.open.read().values().cloned().collect()
    }

    /// Every session that is looked for, the oldest first. Reads much of `/proc`: not for a thread that must not block.
    pub fn overview(&self, query: &SessionQuery) -> Vec<SessionOverview> {
        let mut all: Vec<_> = self.all().iter().map(|session| session.overview()).collect();
        all.extend(self.dormant.report(SessionOverview::of_stored));
        all.retain(|session| session.is_found_by(query));
        all.sort_by(|one, other| other.age_seconds.total_cmp(&one.age_seconds));
        all
    }

    /// The session with this handle. Reads `/proc` likewise.
    pub fn overview_of(&self, handle: &str) -> Option<SessionOverview> {
        let open = self.find_by_handle(handle).map(|session| session.overview());
        open.or_else(|| self.dormant.report_of(handle, SessionOverview::of_stored))
    }

    /// Ends a session. From here on its id is unknown, or refused with the reason.
    pub async fn end(&self, key: &SessionKey, reason: EndReason) -> Result<(), Refusal> {
        let find = || self.open.read().get(key).cloned();
        // The tombstone is there before the session goes, so that no request in between finds the session unknown.
        if let Some(error) = find().and_then(|session| session.client().ended()?.error) {
            self.tombstones.add(key.record_key(), error);
        }
        let session = self.open.write().remove(key).ok_or(Refusal::SessionNotFound)?;
        let reason = session.client().ended().map_or(reason, |end| end.reason);
        self.context.counters.session_ended(reason);
        if reason == EndReason::Shutdown && self.context.durable.is_kept() {
            client::note(session.client());
            let is_upgrade = self.is_upgrade.load(Ordering::Relaxed);
            let outcome = if is_upgrade { outcome_unknown_in_upgrade() } else { outcome_unknown() };
            session.end_with(reason, Some(outcome)).await;
        }
        session.end(reason).await;
        Ok(())
    }

    /// Ends the session that a handle names, for the operator; also one whose client has not come back.
    pub async fn stop(&self, handle: &str) -> Result<(), Refusal> {
        if let Some(session) = self.find_by_handle(handle) {
            return self.end(session.key(), EndReason::Stopped).await;
        }
        let key = self.dormant.find(handle).ok_or(Refusal::SessionNotFound)?;
        self.dormant.take(key).ok_or(Refusal::SessionNotFound)?;
        self.context.counters.session_ended(EndReason::Stopped);
        self.context.durable.session_ended(key, None).await;
        Ok(())
    }

    /// Watches deadlines until the process ends.
    pub async fn watch(self: Arc<Self>) {
        let (mut quiet_beats, mut is_busy) = (0, false);
        let (mut reaped, mut given_back) = (Instant::now(), Instant::now());
        loop {
            self.context.ticker.beat(&mut quiet_beats, is_busy).await;
            let now = Instant::now();
            is_busy = self.tick(now);
            self.context.counters.beats.add();
            if now.duration_since(reaped) >= REAP_INTERVAL {
                reap_orphans();
                self.rest_idle();
                retention::expire(&self.dormant, &self.context);
                self.evictions.make_room(&self.dormant, &self.context);
                if let Some(copies) = self.context.rules.copies.clone() {
                    tokio::task::spawn_blocking(move || copies.remove_unchanged());
                }
                reaped = now;
            }
            if now.duration_since(given_back) >= GIVE_BACK_INTERVAL && self.context.take_freed_memory() {
                tokio::task::spawn_blocking(fence::give_back_memory);
                given_back = now;
            }
        }
    }

    /// Looks at the deadlines of all sessions. Returns whether calls are in flight.
    fn tick(self: &Arc<Self>, now: Instant) -> bool {
        let mut is_busy = false;
        for session in self.all() {
            is_busy |= session.calls_in_flight() > 0;
            let Some(reason) = session.tick(now) else { continue };
            let (sessions, key) = (Arc::clone(self), session.key().clone());
            self.context.depart(async move { sessions.end(&key, reason).await });
        }
        is_busy
    }

    /// Stops shared workers that are not in use, and lets go of configurations that no session has any more.
    fn rest_idle(&self) {
        self.roster().rest_idle();
        let mut retired = self.retired.lock();
        for roster in &*retired {
            roster.rest_idle();
        }
        let gone = retired.extract_if(.., |roster| Arc::strong_count(roster) == 1 && !roster.is_in_use());
        for roster in gone.collect::<Vec<_>>() {
            self.context.tasks.spawn(async move { roster.stop_all().await });
        }
    }

    /// Takes no new sessions, gives calls in flight until `drain` to finish, then ends everything.
    pub async fn shut_down(self: &Arc<Self>, drain: Duration, cause: ShutDownCause) {
        self.is_upgrade.store(cause == ShutDownCause::Upgrade, Ordering::Relaxed);
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
        self.context.departed().await;
        self.context.cleared().await;
        self.context.ends_recorded().await;
        let context = Arc::clone(&self.context);
        // Its thread may wait for the disk.
        let _ = tokio::task::spawn_blocking(move || context.durable.close()).await;
    }
}

#[cfg(test)]
mod tests;
