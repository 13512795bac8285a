//! One configured server: what is known of it, and who shares which of its workers. Different keys never share a
//! process, a directory, an environment or a stream.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use upstream::Directories;
use wire::{InitializeParams, InitializeResult, Request, Version};

use crate::aggregate::Aggregate;
use crate::capability_cache::{Advertised, CapabilityCache};
use crate::catalogue_probes::CatalogueProbes;
use crate::gateway_context::GatewayContext;
use crate::handshake;
use crate::plan::ServerPlan;
use crate::scope::{Scope, ScopeRefusal};
use crate::worker::{Greeting, Worker};
use crate::{Instance, Lifecycle, Principal, Session, StartError, Upstream};

/// What several sessions share a worker by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SharingKey {
    Everybody,
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
    shared: Mutex<HashMap<SharingKey, Arc<Worker>>>,
    /// Of a server that is passed through.
    pub(crate) capabilities: CapabilityCache,
    /// Of one among several.
    pub(crate) catalogue_probes: CatalogueProbes,
    /// The scope of a worker that everybody shares.
    fixed_scope: OnceLock<Arc<Scope>>,
}

/// Where a session's calls go.
#[derive(Debug)]
pub(crate) enum Route {
    Worker(Arc<Worker>),
    /// A worker for each call.
    PerCall {
        server: Arc<Server>,
        upstream: Arc<Upstream>,
        birth: Greeting,
        scope: Arc<Scope>,
        running: Mutex<Vec<Weak<Worker>>>,
    },
    /// Several servers; the requests themselves tell them apart.
    Many(Arc<Aggregate>),
}

impl Route {
    /// Those that there are now.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        match self {
            Self::Worker(worker) => vec![Arc::clone(worker)],
            Self::PerCall { running, .. } => {
                let running = running.lock();
                running.iter().filter_map(Weak::upgrade).collect()
            }
            Self::Many(aggregate) => aggregate.workers(),
        }
    }

    /// The one for the next call, if the servers need not be told apart.
    pub(crate) fn worker_for(&self, session: &Arc<Session>) -> Option<Arc<Worker>> {
        match self {
            Self::Worker(worker) => Some(Arc::clone(worker)),
            Self::PerCall { server, upstream, birth, scope, running } => {
                let worker = server.for_one(session, upstream, scope, birth.clone());
                let mut running = running.lock();
                running.retain(|worker| worker.strong_count() > 0);
                running.push(Arc::downgrade(&worker));
                Some(worker)
            }
            Self::Many(_) => None,
        }
    }
}

impl Server {
    pub(crate) fn new(context: &Arc<GatewayContext>, plan: ServerPlan) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            plan,
            shared: Mutex::default(),
            capabilities: CapabilityCache::default(),
            catalogue_probes: CatalogueProbes::default(),
            fixed_scope: OnceLock::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.upstream.name
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.plan.upstream.lifecycle
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, Arc<Worker>>> {
        self.shared.lock()
    }

    /// Where a worker of everybody works, as it was at the first look.
    pub(crate) fn fixed_scope(&self) -> Result<Arc<Scope>, ScopeRefusal> {
        if let Some(scope) = self.fixed_scope.get() {
            return Ok(Arc::clone(scope));
        }
        let scope = Arc::new(self.context.rules.by_default()?);
        Ok(Arc::clone(self.fixed_scope.get_or_init(|| scope)))
    }

    /// The one worker of everybody, in the scope that was fixed at start.
    pub(crate) fn of_everybody(&self, scope: &Arc<Scope>) -> Arc<Worker> {
        let upstream = &self.plan.upstream;
        let mut workers = self.lock();
        let worker =
            workers.entry(SharingKey::Everybody).or_insert_with(|| self.greeted_by_us(upstream, scope));
        Arc::clone(worker)
    }

    /// Takes a route for a session whose scope is known.
    pub(crate) fn route(
        self: &Arc<Self>,
        session: &Arc<Session>,
        upstream: &Arc<Upstream>,
        scope: &Arc<Scope>,
        greeting: Greeting,
    ) -> Route {
        let key = match upstream.lifecycle {
            Lifecycle::Shared => SharingKey::Everybody,
            Lifecycle::Workspace => SharingKey::Workspace {
                principal: session.key().principal.clone(),
                instance: self.context.settings.isolate_instances.then(|| session.instance().clone()),
                // Where the session works. This server may work elsewhere, for all workspaces at the same place.
                directories: session.scope().map(|own| Arc::clone(&own.directories)).unwrap_or_default(),
                label: scope.label.clone(),
            },
            Lifecycle::Session => return Route::Worker(self.for_one(session, upstream, scope, greeting)),
            Lifecycle::Call => {
                // Each of them is greeted to the end, whenever the client's own handshake ends.
                let initialized = greeting.initialized.or(Some(Bytes::from_static(handshake::INITIALIZED)));
                return Route::PerCall {
                    server: Arc::clone(self),
                    upstream: Arc::clone(upstream),
                    birth: Greeting { initialized, ..greeting },
                    scope: Arc::clone(scope),
                    running: Mutex::default(),
                };
            }
        };
        // Joined while the list is locked, so that nobody takes the worker for a deserted one.
        let mut workers = self.lock();
        let worker = workers.entry(key).or_insert_with(|| self.greeted_by_us(upstream, scope));
        worker.join(session);
        Route::Worker(Arc::clone(worker))
    }

    fn greeted_by_us(&self, upstream: &Arc<Upstream>, scope: &Arc<Scope>) -> Arc<Worker> {
        let handshake = Arc::new(handshake::own());
        let initialized = Some(Bytes::from_static(handshake::INITIALIZED));
        let greeting = Greeting { handshake, initialized, advertised: None };
        Worker::new(&self.context, upstream, scope, greeting)
    }

    /// A worker in a fence around nothing, to see what the upstream can do.
    pub(crate) fn probe_worker(&self, upstream: &Arc<Upstream>, greeting: Greeting) -> Arc<Worker> {
        Worker::new(&self.context, upstream, &Arc::new(Scope::nothing()), greeting)
    }

    /// What the upstream answers to `initialize`, tried in a fence around nothing.
    pub(crate) async fn probe_initialize(
        &self,
        handshake: Arc<Request>,
    ) -> Result<Arc<InitializeResult>, StartError> {
        let greeting = Greeting { handshake, initialized: None, advertised: None };
        let worker = self.probe_worker(&self.plan.upstream, greeting);
        let answer = worker.ready().await;
        // The client need not wait for its end.
        tokio::spawn(async move { worker.stop().await });
        answer
    }

    /// What the upstream of a client will be greeted with.
    pub(crate) fn greeting(&self, of_client: &Arc<Request>) -> Arc<Request> {
        if self.lifecycle().serves_many() { Arc::new(handshake::own()) } else { Arc::clone(of_client) }
    }

    /// What the upstream will answer to this `initialize`.
    pub(crate) async fn probe(self: &Arc<Self>, handshake: Arc<Request>) -> Advertised {
        let kind = handshake::fingerprint(&handshake);
        let requested =
            InitializeParams::read(handshake.params()).map_or(Version::NEWEST, |params| params.version());
        let server = Arc::clone(self);
        let probe = async move { server.probe_initialize(handshake).await };
        self.capabilities.answer(kind, requested, probe).await
    }

    /// Lets those rest that nobody has used for a while.
    pub(crate) fn rest_idle(&self) {
        let after = self.context.settings.idle_stop;
        let mut deserted = Vec::new();
        self.lock().retain(|key, worker| {
            let is_deserted = worker.is_deserted(after);
            if is_deserted {
                deserted.push((Arc::clone(worker), *key == SharingKey::Everybody));
            }
            !is_deserted || *key == SharingKey::Everybody
        });
        for (worker, stays) in deserted {
            tokio::spawn(async move { if stays { worker.rest(after).await } else { worker.stop().await } });
        }
    }

    /// Every worker that several sessions share, given up.
    pub(crate) fn take_shared(&self) -> Vec<Arc<Worker>> {
        self.lock().drain().map(|(_, worker)| worker).collect()
    }

    /// Whether a worker that several sessions share is still there.
    pub(crate) fn is_in_use(&self) -> bool {
        self.lock().values().any(|worker| !worker.is_deserted(std::time::Duration::ZERO))
    }

    /// A worker of this session alone.
    pub(crate) fn for_one(
        &self,
        session: &Arc<Session>,
        upstream: &Arc<Upstream>,
        scope: &Arc<Scope>,
        greeting: Greeting,
    ) -> Arc<Worker> {
        let worker = Worker::new(&self.context, upstream, scope, greeting);
        worker.join(session);
        worker
    }
}
