//! What all sessions and workers of one gateway share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use audit::{AuditEntry, AuditLog};
use identity::Principal;
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::counters::Counters;
use crate::rights::{AccessExpired, Rights, RightsBook};
use crate::scope::{ScopeRefusal, ScopeRules};
use crate::settings::Settings;
use crate::ticker::Ticker;

/// Probes are often started many at once. So many are launched at a time, because each launch keeps a thread and a core
/// busy.
const PROBE_LAUNCHES: usize = 4;

#[derive(Debug)]
pub(crate) struct GatewayContext {
    pub(crate) settings: Settings,
    pub(crate) rules: Arc<ScopeRules>,
    /// The present ones; a session keeps those that it was opened with.
    pub(crate) rights: RwLock<RightsBook>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ticker: Ticker,
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Turns of launching a server that is probed.
    pub(crate) probe_launches: Semaphore,
    /// Probes have ended since unused memory was given back.
    pub(crate) had_probes: AtomicBool,
    /// Every task that runs on its own.
    pub(crate) tasks: TaskTracker,
    /// What is still being cleared away after workers that have ended.
    clearing: TaskTracker,
}

impl GatewayContext {
    pub(crate) fn new(settings: Settings, rules: ScopeRules, audit: Option<Arc<AuditLog>>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            rules: Arc::new(rules),
            rights: RwLock::default(),
            counters: Arc::default(),
            ticker: Ticker::default(),
            audit,
            probe_launches: Semaphore::new(PROBE_LAUNCHES),
            had_probes: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            clearing: TaskTracker::new(),
        })
    }

    /// What a principal may do now.
    pub(crate) fn rights_of(&self, principal: &Principal) -> Result<Rights, AccessExpired> {
        self.rights.read().of(principal, Timestamp::now())
    }

    /// Drops what may take long to go on a thread that may block.
    pub(crate) fn clear_away<T: Send + 'static>(&self, what: T) {
        self.clearing.spawn_blocking(move || drop(what));
    }

    /// Waits until everything is cleared away.
    pub(crate) async fn cleared(&self) {
        self.clearing.close();
        self.clearing.wait().await;
        self.clearing.reopen();
    }

    /// Looks at directories of a session. They may lie on a file system that does not answer, so this happens on a
    /// thread that can be left behind.
    pub(crate) async fn look_at_files<Seen: Send + 'static>(
        &self,
        look: impl FnOnce(&ScopeRules) -> Result<Seen, ScopeRefusal> + Send + 'static,
    ) -> Result<Seen, ScopeRefusal> {
        let rules = Arc::clone(&self.rules);
        let looked = tokio::task::spawn_blocking(move || look(&rules));
        match tokio::time::timeout(self.settings.scope_timeout, looked).await {
            Ok(Ok(seen)) => seen,
            Ok(Err(error)) => Err(ScopeRefusal::BadAnswer(error.to_string())),
            Err(_) => Err(ScopeRefusal::NoReply),
        }
    }

    /// Writes an entry to the audit log, if there is one; else none is made.
    pub(crate) fn record(&self, entry: impl FnOnce() -> AuditEntry) {
        if let Some(audit) = &self.audit {
            audit.record(entry());
        }
    }
}
