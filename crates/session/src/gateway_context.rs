//! What all sessions and workers of one gateway share.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::counters::Counters;
use crate::scope::{ScopeRefusal, ScopeRules};
use crate::settings::Settings;
use crate::ticker::Ticker;
use audit::{AuditEntry, AuditLog};

/// Servers that have nothing to write in, as on probe, are often started many at once. So many are launched at a time,
/// because each launch keeps a thread and a core busy.
const PROBE_LAUNCHES: usize = 4;

#[derive(Debug)]
pub(crate) struct GatewayContext {
    pub(crate) settings: Settings,
    pub(crate) rules: Arc<ScopeRules>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ticker: Ticker,
    pub(crate) audit: Option<Arc<AuditLog>>,
    /// Turns of launching a server that has nothing to write in.
    pub(crate) probe_launches: Semaphore,
    /// Probes have ended since unused memory was given back.
    pub(crate) had_probes: AtomicBool,
    /// What is still being cleared away after workers that have ended.
    clearing: Mutex<JoinSet<()>>,
}

impl GatewayContext {
    pub(crate) fn new(settings: Settings, rules: ScopeRules, audit: Option<Arc<AuditLog>>) -> Arc<Self> {
        Arc::new(Self {
            settings,
            rules: Arc::new(rules),
            counters: Arc::default(),
            ticker: Ticker::default(),
            audit,
            probe_launches: Semaphore::new(PROBE_LAUNCHES),
            had_probes: AtomicBool::new(false),
            clearing: Mutex::default(),
        })
    }

    /// Lets go of what may take long to go, without anybody waiting.
    pub(crate) fn clear_away<T: Send + 'static>(&self, what: T) {
        let mut clearing = self.clearing.lock();
        while clearing.try_join_next().is_some() {}
        clearing.spawn_blocking(move || drop(what));
    }

    /// Waits until everything is cleared away.
    pub(crate) async fn cleared(&self) {
        let mut clearing = std::mem::take(&mut *self.clearing.lock());
        while clearing.join_next().await.is_some() {}
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

    /// Writes an entry, if there is a log; else nothing is made.
    pub(crate) fn record(&self, entry: impl FnOnce() -> AuditEntry) {
        if let Some(audit) = &self.audit {
            audit.record(entry());
        }
    }
}
