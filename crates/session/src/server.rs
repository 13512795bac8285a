//! One configured server: what is known of it from probes, and which sessions share which of its workers. Sessions with
//! different sharing keys never share a process, a directory, an environment or a stream.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use identity::{Instance, Principal};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use upstream::{Directories, Lifecycle, StartError, Transport, Upstream};
use wire::{InitializeParams, Request, Version};

use crate::catalogue::{Catalogue, CatalogueError};
use crate::failure_log::FailureLog;
use crate::gateway_context::GatewayContext;
use crate::handshake;
use crate::plan::ServerPlan;
use crate::probe::{Advertised, Kind, Lookup, ProbeCache, ProbeResult, Probed};
use crate::rights::Rights;
use crate::scope::{Scope, ScopeRefusal};
use crate::worker::{ClientHandle, Greeting, Worker, WorkerTerms};
use crate::workers::{PerCall, Workers};

/// A server among several that could not be probed is probed again after this long.
const PROBE_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Probes of one server at once.
const MAX_PROBES: usize = 2;

/// And those that may wait: a client may say what it likes, and each new thing is a probe.
const MAX_WAITING_PROBES: usize = 16;

/// What several sessions share a worker by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SharingKey {
    Everyone,
    Workspace {
        principal: Principal,
        instance: Option<Instance>,
        directories: Arc<Directories>,
        label: Option<String>,
    },
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) context: Arc<GatewayContext>,
    pub(crate) plan: ServerPlan,
    /// The only server, which clients see as it is.
    is_passed_through: bool,
    shared: Mutex<HashMap<SharingKey, Arc<Worker>>>,
    probes: Arc<Mutex<ProbeCache>>,
    probe_places: Semaphore,
    /// For probes that wait for a place.
    probe_queue: Semaphore,
    /// Whether it asks for its roots when it starts.
    asks_for_roots: Arc<AtomicBool>,
    /// What was logged of its failures.
    pub(crate) failures: Arc<FailureLog>,
    /// The scope of a worker that all sessions share.
    fixed_scope: OnceLock<Arc<Scope>>,
}

impl Server {
    pub(crate) fn new(context: &Arc<GatewayContext>, plan: ServerPlan, is_passed_through: bool) -> Arc<Self> {
        // A server that is passed through is described by a guess until a worker has shown itself.
        let retry_after = (!is_passed_through).then_some(PROBE_AGAIN_AFTER);
        Arc::new(Self {
            context: Arc::clone(context),
            plan,
            is_passed_through,
            shared: Mutex::default(),
            probes: Arc::new(Mutex::new(ProbeCache::new(retry_after))),
            probe_places: Semaphore::new(MAX_PROBES),
            probe_queue: Semaphore::new(MAX_WAITING_PROBES),
            asks_for_roots: Arc::default(),
            failures: Arc::default(),
            fixed_scope: OnceLock::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.upstream.name
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.plan.upstream.lifecycle
    }

    fn terms(&self, upstream: &Arc<Upstream>, scope: &Arc<Scope>) -> WorkerTerms {
        WorkerTerms {
            upstream: Arc::clone(upstream),
            scope: Arc::clone(scope),
            is_passed_through: self.is_passed_through,
            asks_for_roots: Arc::clone(&self.asks_for_roots),
            verbose_meta: self.context.settings.verbose_meta,
            failures: Arc::clone(&self.failures),
        }
    }

    /// Where a worker of all sessions works, as it was at the first look.
    pub(crate) fn fixed_scope(&self) -> Result<Arc<Scope>, ScopeRefusal> {
        if let Some(scope) = self.fixed_scope.get() {
            return Ok(Arc::clone(scope));
        }
        let scope = Arc::new(self.context.rules.by_default(&Rights::default())?);
        Ok(Arc::clone(self.fixed_scope.get_or_init(|| scope)))
    }

    /// The one worker of all sessions, in the scope that was fixed at start.
    pub(crate) fn worker_of_everyone(&self, scope: &Arc<Scope>) -> Arc<Worker> {
        let mut workers = self.shared.lock();
        let new = || self.greeted_by_us(&self.plan.upstream, scope);
        Arc::clone(workers.entry(SharingKey::Everyone).or_insert_with(new))
    }

    /// The workers for a session whose scope is known.
    pub(crate) fn workers_for(
        &self,
        client: ClientHandle,
        upstream: &Arc<Upstream>,
        scope: &Arc<Scope>,
        greeting: Greeting,
    ) -> Workers {
        let key = match upstream.lifecycle {
            Lifecycle::Shared => SharingKey::Everyone,
            Lifecycle::Workspace => self.workspace_key(&client, scope),
            Lifecycle::Session => {
                let worker = Worker::new(&self.context, self.terms(upstream, scope), greeting);
                worker.join(client);
                return Workers::One(worker);
            }
            Lifecycle::Call => {
                // Each of them is greeted to the end, whenever the client's own handshake ends.
                let initialized = greeting.initialized.or(Some(Bytes::from_static(handshake::INITIALIZED)));
                return Workers::PerCall(PerCall {
                    context: Arc::clone(&self.context),
                    terms: self.terms(upstream, scope),
                    greeting: Greeting { initialized, ..greeting },
                    client,
                    running: Mutex::default(),
                });
            }
        };
        // Joined while the map is locked, so that `rest_idle` does not take the worker for a deserted one.
        let mut workers = self.shared.lock();
        let worker = workers.entry(key).or_insert_with(|| self.greeted_by_us(upstream, scope));
        worker.join(client);
        Workers::One(Arc::clone(worker))
    }

    fn workspace_key(&self, client: &ClientHandle, scope: &Scope) -> SharingKey {
        let isolates_instances = self.context.settings.isolate_instances;
        let record = client.client.record();
        SharingKey::Workspace {
            principal: record.key.principal.clone(),
            instance: isolates_instances.then(|| record.instance.clone()),
            // Where the session works. This server may work elsewhere, for all workspaces at the same place.
            directories: record.scope.as_ref().map(|own| Arc::clone(&own.directories)).unwrap_or_default(),
            label: scope.label.clone(),
        }
    }

    /// A worker that serves several sessions, so that the gateway itself greets it.
    fn greeted_by_us(&self, upstream: &Arc<Upstream>, scope: &Arc<Scope>) -> Arc<Worker> {
        let handshake = Arc::new(handshake::own());
        let initialized = Some(Bytes::from_static(handshake::INITIALIZED));
        let greeting = Greeting { handshake, initialized, advertised: None };
        Worker::new(&self.context, self.terms(upstream, scope), greeting)
    }

    /// The `initialize` that the upstream of a client will be greeted with.
    pub(crate) fn greeting(&self, of_client: &Arc<Request>) -> Arc<Request> {
        if self.lifecycle().serves_many() { Arc::new(handshake::own()) } else { Arc::clone(of_client) }
    }

    /// What a client of the only server is told at `initialize`, before its worker may start.
    pub(crate) async fn advertise(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        handshake: Arc<Request>,
    ) -> Advertised {
        let version =
            InitializeParams::read(handshake.params()).map_or(Version::NEWEST, |params| params.version());
        let kind = kind_of(&upstream, &handshake);
        let result = self.probe(upstream, handshake).await;
        Advertised::new(&self.probes, kind, &result, version)
    }

    /// The lists of one server among several.
    pub(crate) async fn catalogue(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        handshake: Arc<Request>,
    ) -> Result<Arc<Catalogue>, CatalogueError> {
        let probed = self.probe(upstream, handshake).await?;
        probed.catalogue.ok_or(CatalogueError::Start(StartError::Stopped))
    }

    /// The lists that are known already, without a probe.
    pub(crate) fn known_catalogue(&self, upstream: &Upstream, handshake: &Request) -> Option<Arc<Catalogue>> {
        self.probes.lock().known_catalogue(kind_of(upstream, handshake))
    }

    /// What the upstream offers to such a client. A probe that has begun goes on without the client that it was begun
    /// for.
    async fn probe(self: &Arc<Self>, upstream: Arc<Upstream>, handshake: Arc<Request>) -> ProbeResult {
        let kind = kind_of(&upstream, &handshake);
        let lookup = self.probes.lock().lookup(kind, Instant::now());
        let receiver = match lookup {
            Lookup::Known(result) => return result,
            Lookup::Wait(receiver) => receiver,
            Lookup::Probe(receiver) => {
                let server = Arc::clone(self);
                self.context.tasks.spawn(async move { server.run_probe(kind, upstream, handshake).await });
                receiver
            }
        };
        receiver.await.unwrap_or(Err(CatalogueError::Start(StartError::Stopped)))
    }

    /// Starts the upstream in a fence around nothing, and ends it when it has shown what it can do.
    async fn run_probe(self: Arc<Self>, kind: Kind, upstream: Arc<Upstream>, handshake: Arc<Request>) {
        let finish = |result| self.probes.lock().finish(kind, result, Instant::now());
        let Ok(turn) = self.probe_queue.try_acquire() else {
            return finish(Err(CatalogueError::Start(StartError::TooManyWaiting)));
        };
        let place = self.probe_places.acquire().await;
        drop(turn);
        let initialized = Some(Bytes::from_static(handshake::INITIALIZED));
        let greeting = Greeting { handshake, initialized, advertised: None };
        let terms = self.terms(&upstream, &Arc::new(Scope::nothing()));
        let worker = Worker::new(&self.context, terms, greeting);
        let result = self.look_at(&worker).await;
        let is_up = result.is_ok();
        // Why a start failed was logged by the worker.
        if let Some(error) = result.as_ref().err().and_then(CatalogueError::not_of_start) {
            tracing::warn!(upstream = self.name(), "it could not be probed in an empty workspace: {error}");
        }
        finish(result);
        if is_up {
            // A server that asks for its roots when it starts asks before it answers this.
            worker.ping().await;
        }
        drop(place);
        worker.stop().await;
        self.context.note_freed_memory();
    }

    async fn look_at(&self, worker: &Arc<Worker>) -> ProbeResult {
        let initialize = worker.ready().await?;
        let mut catalogue = None;
        if !self.is_passed_through {
            let within = self.context.settings.timeout;
            let shown = Catalogue::after(&initialize, worker, within).await?;
            catalogue = Some(Arc::new(shown.with_resources(worker, within).await));
        }
        Ok(Probed { initialize, catalogue })
    }

    /// Stops shared workers that no session has used for a while.
    pub(crate) fn rest_idle(&self) {
        let after = self.context.settings.idle_stop;
        let mut deserted = Vec::new();
        self.shared.lock().retain(|key, worker| {
            let is_deserted = worker.is_deserted(after);
            if is_deserted {
                deserted.push((Arc::clone(worker), *key == SharingKey::Everyone));
            }
            !is_deserted || *key == SharingKey::Everyone
        });
        for (worker, stays) in deserted {
            self.context
                .tasks
                .spawn(async move { if stays { worker.rest(after).await } else { worker.stop().await } });
        }
    }

    /// Lets no probe begin from now on, so that nothing becomes known.
    #[cfg(test)]
    pub(crate) fn hold_probes(&self) {
        self.probe_places.forget_permits(MAX_PROBES);
    }

    /// Gives up every worker that several sessions share.
    pub(crate) fn take_shared(&self) -> Vec<Arc<Worker>> {
        self.shared.lock().drain().map(|(_, worker)| worker).collect()
    }

    /// Whether a session uses a shared worker.
    pub(crate) fn is_in_use(&self) -> bool {
        self.shared.lock().values().any(|worker| !worker.is_deserted(Duration::ZERO))
    }
}

/// What a probe's result depends on, as a hash: the client, and what the server is given.
fn kind_of(upstream: &Upstream, handshake: &Request) -> Kind {
    let mut hash = Sha256::new();
    hash.update(handshake::fingerprint(handshake));
    let mut add = |text: &[u8]| {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    match &upstream.transport {
        Transport::Process(program) => {
            for argument in &program.arguments {
                add(argument.as_encoded_bytes());
            }
            for (name, value) in &program.variables {
                add(name.as_encoded_bytes());
                add(value.as_encoded_bytes());
            }
        }
        Transport::Http(address) => {
            add(address.url.as_bytes());
            for (name, value) in &address.headers {
                add(name.as_bytes());
                add(value.as_bytes());
            }
        }
        Transport::Attached => {}
    }
    hash.finalize().into()
}
