//! What a client said and was told when its session opened, in the form that workers need.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use upstream::Lifecycle;
use wire::Request;

use crate::probe::Advertised;
use crate::worker::Greeting;

#[derive(Debug)]
pub(super) struct ClientHandshake {
    /// The client's `initialize` as servers get it: with the gateway's roots.
    pub(super) request: Arc<Request>,
    /// The client's `notifications/initialized`.
    initialized: OnceLock<Bytes>,
    /// What the client was told before a worker could start.
    advertised: Mutex<Option<Advertised>>,
}

impl ClientHandshake {
    pub(super) fn new(request: Arc<Request>, advertised: Option<Advertised>) -> Self {
        Self { request, initialized: OnceLock::new(), advertised: Mutex::new(advertised) }
    }

    /// Takes the client's `notifications/initialized`. Returns whether it is the first one.
    pub(super) fn finish(&self, initialized: &Bytes) -> bool {
        // A copy, because the text may be a part of a much larger buffer.
        self.initialized.set(Bytes::copy_from_slice(initialized)).is_ok()
    }

    /// What the one server of a session is greeted with. A worker of several sessions does not know what each of them
    /// was told.
    pub(super) fn greeting(&self, lifecycle: Lifecycle) -> Greeting {
        Greeting {
            handshake: Arc::clone(&self.request),
            initialized: self.initialized.get().cloned(),
            advertised: if lifecycle.serves_many() { None } else { self.take_advertised() },
        }
    }

    /// What the client was told, if no worker has taken it over to check it.
    pub(super) fn take_advertised(&self) -> Option<Advertised> {
        self.advertised.lock().take()
    }
}
