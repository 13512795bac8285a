//! Who shares which worker. Different keys never share a process, a directory, an environment or a stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use fence::VettedDirectory;
use tokio::task::JoinSet;
use wire::{InitializeResult, Request};

use crate::deployment::Deployment;
use crate::handshake;
use crate::scope::Scope;
use crate::worker::{Greeting, Worker};
use crate::{Instance, Lifecycle, Principal, Session, StartFailure};

/// What several sessions share a worker by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SharingKey {
    Everybody,
    Workspace { principal: Principal, instance: Option<Instance>, scope: Vec<VettedDirectory> },
}

#[derive(Debug)]
pub(crate) struct Workers {
    deployment: Arc<Deployment>,
    shared: Mutex<HashMap<SharingKey, Arc<Worker>>>,
}

/// Where a session's calls go.
#[derive(Debug)]
pub(crate) enum Seat {
    Worker(Arc<Worker>),
    /// A worker for each call.
    PerCall {
        birth: Greeting,
        scope: Arc<Scope>,
        running: Mutex<Vec<Weak<Worker>>>,
    },
}

impl Seat {
    /// Those that there are now.
    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        match self {
            Self::Worker(worker) => vec![Arc::clone(worker)],
            Self::PerCall { running, .. } => {
                let running = running.lock().unwrap_or_else(PoisonError::into_inner);
                running.iter().filter_map(Weak::upgrade).collect()
            }
        }
    }
}

impl Workers {
    pub(crate) fn new(deployment: &Arc<Deployment>) -> Self {
        Self { deployment: Arc::clone(deployment), shared: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, Arc<Worker>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one worker of everybody, in the scope that was fixed at start.
    pub(crate) fn of_everybody(&self, scope: &Arc<Scope>) -> Arc<Worker> {
        let mut workers = self.lock();
        let worker = workers.entry(SharingKey::Everybody).or_insert_with(|| self.greeted_by_us(scope));
        Arc::clone(worker)
    }

    /// Takes a seat for a session whose scope is known.
    pub(crate) fn seat(&self, session: &Arc<Session>, scope: &Arc<Scope>, greeting: Greeting) -> Seat {
        let key = match self.deployment.upstream.lifecycle {
            Lifecycle::Shared => SharingKey::Everybody,
            Lifecycle::Workspace => SharingKey::Workspace {
                principal: session.key().principal.clone(),
                instance: self.deployment.settings.isolate_instances.then(|| session.instance().clone()),
                scope: scope.roots.clone(),
            },
            Lifecycle::Session => return Seat::Worker(self.for_one(session, scope, greeting)),
            Lifecycle::Call => {
                // Each of them is greeted to the end, whenever the client's own handshake ends.
                let initialized = greeting.initialized.or(Some(Bytes::from_static(handshake::INITIALIZED)));
                return Seat::PerCall {
                    birth: Greeting { initialized, ..greeting },
                    scope: Arc::clone(scope),
                    running: Mutex::default(),
                };
            }
        };
        // Joined while the list is locked, so that nobody takes the worker for a deserted one.
        let mut workers = self.lock();
        let worker = workers.entry(key).or_insert_with(|| self.greeted_by_us(scope));
        worker.join(session);
        Seat::Worker(Arc::clone(worker))
    }

    fn own_worker(&self, scope: &Arc<Scope>, greeting: Greeting) -> Arc<Worker> {
        Worker::new(&self.deployment, scope, greeting)
    }

    fn greeted_by_us(&self, scope: &Arc<Scope>) -> Arc<Worker> {
        let handshake = Arc::new(handshake::own());
        let initialized = Some(Bytes::from_static(handshake::INITIALIZED));
        self.own_worker(scope, Greeting { handshake, initialized, told: None })
    }

    /// What the upstream answers to `initialize`, tried in a fence around nothing.
    pub(crate) async fn try_out(
        &self,
        handshake: Arc<Request>,
    ) -> Result<Arc<InitializeResult>, StartFailure> {
        let greeting = Greeting { handshake, initialized: None, told: None };
        let worker = self.own_worker(&Arc::new(Scope::nothing()), greeting);
        let answer = worker.ready().await;
        // The client need not wait for its end.
        tokio::spawn(async move { worker.stop().await });
        answer
    }

    /// Lets those rest that nobody has used for a while.
    pub(crate) fn rest_idle(&self) {
        let after = self.deployment.settings.idle_stop;
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

    pub(crate) async fn stop_all(&self) {
        let workers: Vec<_> = self.lock().drain().map(|(_, worker)| worker).collect();
        let mut stopping = JoinSet::new();
        for worker in workers {
            stopping.spawn(async move { worker.stop().await });
        }
        while stopping.join_next().await.is_some() {}
    }

    /// A worker of this session alone.
    pub(crate) fn for_one(
        &self,
        session: &Arc<Session>,
        scope: &Arc<Scope>,
        greeting: Greeting,
    ) -> Arc<Worker> {
        let worker = self.own_worker(scope, greeting);
        worker.join(session);
        worker
    }
}
