//! The registry: opens sessions, finds them by principal and id, watches their deadlines, ends them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use wire::{InitializeParams, InitializeResult, Message, Request, Text, Version};

use crate::counters::Counters;
use crate::pulse::Pulse;
use crate::settings::Settings;
use crate::tree::{end_all_children, reap_orphans};
use crate::worker::Worker;
use crate::{
    EndReason, Lifecycle, Principal, Refusal, Session, SessionId, SessionKey, StartFailure, Upstream,
};

/// How long an adopted process that ended may stay a zombie.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Who shares a worker. Different keys never share a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LifecycleKey {
    Shared,
    Session(SessionId),
}

#[derive(Debug)]
pub struct Sessions {
    upstream: Arc<Upstream>,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
    open: RwLock<HashMap<SessionKey, Arc<Session>>>,
    workers: Mutex<HashMap<LifecycleKey, Arc<Worker>>>,
    places: Arc<Semaphore>,
    pulse: Arc<Pulse>,
    is_closing: AtomicBool,
}

impl Sessions {
    pub fn new(upstream: Upstream, settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            upstream: Arc::new(upstream),
            places: Arc::new(Semaphore::new(settings.max_sessions)),
            settings: Arc::new(settings),
            counters: Arc::default(),
            open: RwLock::default(),
            workers: Mutex::default(),
            pulse: Arc::default(),
            is_closing: AtomicBool::new(false),
        })
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Starts a shared upstream now, so that a broken command is noticed before the first client.
    pub async fn start_shared(&self) -> Result<(), StartFailure> {
        match self.upstream.lifecycle {
            Lifecycle::Shared => self.worker(LifecycleKey::Shared, None).ready().await.map(drop),
            Lifecycle::Session => Ok(()),
        }
    }

    /// Opens a session with a client's `initialize`; returns it with the answer for the client. If the
    /// caller stops waiting, the session ends.
    pub async fn open(
        &self,
        principal: Principal,
        request: Request,
    ) -> Result<(Arc<Session>, Text), Refusal> {
        if self.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let params = InitializeParams::read(request.params()).map_err(Refusal::BadInitialize)?;
        let limit = self.settings.max_sessions;
        let permit =
            Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refusal::TooManySessions { limit })?;
        let id = SessionId::random();
        let client_id = request.id.clone();
        let key = match self.upstream.lifecycle {
            Lifecycle::Shared => LifecycleKey::Shared,
            Lifecycle::Session => LifecycleKey::Session(id),
        };
        let worker = self.worker(key, Some(request));
        let session_key = SessionKey { principal, id };
        let session =
            Session::new(session_key, &params, Arc::clone(&worker), Arc::clone(&self.pulse), permit);
        worker.join(&session);
        let opening = Opening { sessions: self, key, session: Some(Arc::clone(&session)) };
        let result = worker.ready().await?;
        let (version, answer) = self.negotiate(&params, &result);
        session.set_version(version);
        let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{answer}}}"#, client_id.as_json());
        self.open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(session.key().clone(), Arc::clone(&session));
        self.counters.sessions_opened.add();
        tracing::info!(session = %session.handle(), client = session.client(), "session opened");
        opening.done();
        Ok((session, Bytes::from(text).into()))
    }

    /// A client of a shared upstream gets the older of what it asked for and what the upstream speaks.
    fn negotiate(&self, params: &InitializeParams, result: &InitializeResult) -> (Option<Version>, String) {
        match (self.upstream.lifecycle, result.version) {
            (Lifecycle::Shared, Some(upstream)) => {
                let version = params.version().min(upstream);
                (Some(version), result.with_version(version))
            }
            _ => (result.version, result.as_json().to_owned()),
        }
    }

    fn worker(&self, key: LifecycleKey, client: Option<Request>) -> Arc<Worker> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let (handshake, initialized) = match (self.upstream.lifecycle, client) {
                (Lifecycle::Session, Some(client)) => (client, None),
                _ => (own_handshake(), Some(Bytes::from_static(INITIALIZED))),
            };
            Worker::new(
                Arc::clone(&self.upstream),
                Arc::clone(&self.settings),
                Arc::clone(&self.counters),
                Arc::new(handshake),
                initialized,
            )
        };
        Arc::clone(workers.entry(key).or_insert_with(make))
    }

    fn forget_worker(&self, key: LifecycleKey) {
        if key != LifecycleKey::Shared {
            self.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }

    pub fn find(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Ends a session. From here on its id is unknown.
    pub async fn end(&self, key: &SessionKey, reason: EndReason) -> Result<(), Refusal> {
        let session = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        let session = session.ok_or(Refusal::SessionNotFound)?;
        self.forget_worker(LifecycleKey::Session(key.id));
        session.end(reason).await;
        self.counters.sessions_ended.add();
        Ok(())
    }

    /// Watches deadlines until the process ends.
    pub async fn watch(self: Arc<Self>) {
        let (mut quiet_beats, mut is_busy, mut reaped) = (0, false, Instant::now());
        loop {
            self.pulse.beat(&mut quiet_beats, is_busy).await;
            let now = Instant::now();
            is_busy = false;
            for session in self.all() {
                is_busy |= session.calls_in_flight() > 0;
                let reason = if session.has_ended() {
                    EndReason::UpstreamChanged
                } else if session.tick(now) {
                    EndReason::Idle
                } else {
                    continue;
                };
                let (sessions, key) = (Arc::clone(&self), session.key().clone());
                tokio::spawn(async move { sessions.end(&key, reason).await });
            }
            if now.duration_since(reaped) >= REAP_INTERVAL {
                reap_orphans();
                reaped = now;
            }
        }
    }

    fn all(&self) -> Vec<Arc<Session>> {
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
        ends.join_all().await;
        let workers: Vec<_> = self
            .workers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain()
            .map(|(_, worker)| worker)
            .collect();
        for worker in workers {
            worker.stop().await;
        }
        end_all_children().await;
    }
}

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// How the gateway greets an upstream that all clients share. It declares whatever some client may be able
/// to do; a client that cannot is not asked. Roots are left out: they are one client's.
fn own_handshake() -> Request {
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{{"sampling":{{}},"elicitation":{{"form":{{}},"url":{{}}}}}},"clientInfo":{{"name":"ringfence","version":"{}"}}}}}}"#,
        Version::NEWEST,
        env!("CARGO_PKG_VERSION"),
    );
    match Message::parse(text.into()) {
        Ok(Message::Request(request)) => request,
        other => unreachable!("our own initialize is a request: {other:?}"),
    }
}

/// Ends a session whose opener failed, or went away before it was told the session id.
struct Opening<'a> {
    sessions: &'a Sessions,
    key: LifecycleKey,
    session: Option<Arc<Session>>,
}

impl Opening<'_> {
    fn done(mut self) {
        self.session = None;
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.sessions.forget_worker(self.key);
            tokio::spawn(async move { session.end(EndReason::Abandoned).await });
        }
    }
}
