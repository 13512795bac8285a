//! What all sessions and workers of one gateway share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use audit::{AuditEntry, AuditLog};
use identity::Principal;
use jiff::Timestamp;
use parking_lot::RwLock;
use store::Store;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::counters::Counters;
use crate::durable::Durable;
use crate::rights::{Rights, RightsBook, RightsError};
use crate::scope::{ScopeRefusal, ScopeRules};
use crate::settings::Settings;
use crate::ticker::Ticker;

/// Probes are often started many at once. So many are launched at a time, because each launch keeps a thread and a core
/// busy.
const PROBE_LAUNCHES: usize = 4;

/// How long a gateway that ends waits for the last process to be gone.
const ENDS_RECORDED_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct GatewayContext {
    pub(crate) settings: Settings,
    pub(crate) rules: Arc<ScopeRules>,
    /// The present ones; a session keeps those that it was opened with.
    pub(crate) rights: RwLock<RightsBook>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ticker: Ticker,
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) durable: Durable,
    /// Turns of launching a server that is probed.
    pub(crate) probe_launches: Semaphore,
    /// Something large was freed since unused memory was given back to the kernel.
    has_freed_memory: AtomicBool,
    /// Every task that runs on its own.
    pub(crate) tasks: TaskTracker,
    /// What is still being cleared away after workers that have ended.
    clearing: TaskTracker,
    /// Sessions that are ending.
    departing: TaskTracker,
    /// What still watches a process to its end, and records that end.
    watching: TaskTracker,
}

impl GatewayContext {
    pub(crate) fn new(
        settings: Settings,
        rules: ScopeRules,
        audit: Option<Arc<AuditLog>>,
        store: Option<Store>,
    ) -> Arc<Self> {
        Arc::new(Self {
            durable: Durable::new(store, settings.max_stored_bytes),
            settings,
            rules: Arc::new(rules),
            rights: RwLock::default(),
            counters: Arc::default(),
            ticker: Ticker::default(),
            audit,
            probe_launches: Semaphore::new(PROBE_LAUNCHES),
            has_freed_memory: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            clearing: TaskTracker::new(),
            departing: TaskTracker::new(),
            watching: TaskTracker::new(),
        })
    }

    /// What a principal may do now.
    pub(crate) fn rights_of(&self, principal: &Principal) -> Result<Rights, RightsError> {
        self.rights.read().of(principal, Timestamp::now())
    }

    /// Notes that a process or a client is gone, and with it what it used here.
    pub(crate) fn note_freed_memory(&self) {
        self.has_freed_memory.store(true, Ordering::Relaxed);
    }

    /// Whether memory was freed since this was last asked.
    pub(crate) fn take_freed_memory(&self) -> bool {
        self.has_freed_memory.swap(false, Ordering::Relaxed)
    }

    /// Drops what may take long to go on a thread that may block.
    pub(crate) fn clear_away<T: Send + 'static>(&self, what: T) {
        self.clearing.spawn_blocking(move || drop(what));
    }

    /// Waits until everything is cleared away.
    pub(crate) async fn cleared(&self) {
        wait_for_all(&self.clearing).await;
    }

    /// Ends a session, or a part of it, whether or not the caller waits for that. Returns when it is done.
    pub(crate) fn depart<Done: Send + 'static>(
        &self,
        end: impl Future<Output = Done> + Send + 'static,
    ) -> JoinHandle<Done> {
        self.tasks.spawn(self.departing.track_future(end))
    }

    /// Waits until the sessions that were told to end have ended.
    pub(crate) async fn departed(&self) {
        wait_for_all(&self.departing).await;
    }

    /// Watches a process to its end.
    pub(crate) fn watch(&self, watcher: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.watching.track_future(watcher));
    }

    /// Waits until the end of every process is recorded, once all of them were told to end. A process that the kernel
    /// cannot end, because its file system does not answer, keeps nothing else waiting for long.
    pub(crate) async fn ends_recorded(&self) {
        if tokio::time::timeout(ENDS_RECORDED_WITHIN, wait_for_all(&self.watching)).await.is_err() {
            tracing::warn!("processes outlive their end; the audit log lacks how they ended");
        }
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

async fn wait_for_all(tasks: &TaskTracker) {
    tasks.close();
    tasks.wait().await;
    tasks.reopen();
}
