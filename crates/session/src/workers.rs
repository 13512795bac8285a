//! The workers of one server in one session: one for all calls, or a new one for each.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::gateway_context::GatewayContext;
use crate::worker::{ClientHandle, Greeting, Worker, WorkerTerms};

#[derive(Debug)]
pub(crate) enum Workers {
    One(Arc<Worker>),
    PerCall(PerCall),
}

/// Makes a worker for each call.
#[derive(Debug)]
pub(crate) struct PerCall {
    pub(crate) context: Arc<GatewayContext>,
    pub(crate) terms: WorkerTerms,
    pub(crate) greeting: Greeting,
    pub(crate) client: ClientHandle,
    pub(crate) running: Mutex<Vec<Weak<Worker>>>,
}

impl Workers {
    /// The worker for the next call.
    pub(crate) fn for_call(&self) -> Arc<Worker> {
        match self {
            Self::One(worker) => Arc::clone(worker),
            Self::PerCall(making) => making.hire(),
        }
    }

    /// All workers that there are now.
    pub(crate) fn all(&self) -> Vec<Arc<Worker>> {
        match self {
            Self::One(worker) => vec![Arc::clone(worker)],
            Self::PerCall(making) => making.running.lock().iter().filter_map(Weak::upgrade).collect(),
        }
    }

    /// The one worker, unless each call has its own.
    pub(crate) fn sole(&self) -> Option<&Arc<Worker>> {
        match self {
            Self::One(worker) => Some(worker),
            Self::PerCall(_) => None,
        }
    }
}

impl PerCall {
    fn hire(&self) -> Arc<Worker> {
        let worker = Worker::new(&self.context, self.terms.clone(), self.greeting.clone());
        worker.join(self.client.clone());
        let mut running = self.running.lock();
        running.retain(|worker| worker.strong_count() > 0);
        running.push(Arc::downgrade(&worker));
        worker
    }
}
