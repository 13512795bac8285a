//! How a worker reaches one of its clients, and all that it tells that client's session beside messages.

use std::fmt;
use std::sync::Arc;

use crate::client::Client;
use crate::list::List;

/// One client of a worker.
#[derive(Clone)]
pub(crate) struct ClientHandle {
    pub(crate) client: Arc<Client>,
    events: Arc<dyn Fn(WorkerEvent) + Send + Sync>,
}

/// What a session must know of its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkerEvent {
    /// A generation answered `initialize`; its own lists count from now on.
    CameUp,
    /// The upstream says that one of its lists changed.
    ListChanged(List),
    /// The answer to a call named a task, which belongs to the caller.
    TaskStarted(String),
    /// The upstream is not what the client was told at `initialize`.
    Contradicted,
}

impl ClientHandle {
    pub(crate) fn new(client: &Arc<Client>, events: impl Fn(WorkerEvent) + Send + Sync + 'static) -> Self {
        Self { client: Arc::clone(client), events: Arc::new(events) }
    }

    pub(crate) fn tell(&self, event: WorkerEvent) {
        (self.events)(event);
    }
}

impl fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientHandle").field(&self.client.handle()).finish()
    }
}
