//! What a server among several offers, known before any session has started it: tried once in a fence around
//! nothing for each kind of client and set of secrets, and kept.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, Semaphore};
use wire::Request;

use crate::Upstream;
use crate::catalogue::{Catalogue, CatalogueError};
use crate::handshake;
use crate::server::Server;
use crate::worker::Greeting;
use upstream::Transport;

/// Kinds that are kept apart.
const MAX_KINDS: usize = 64;

/// A server that could not be tried is tried again after this long.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Probes of one server at once.
const MAX_PROBES: usize = 2;

/// And those that may wait; a client may say what it likes, and each new thing is a probe.
const MAX_QUEUE: usize = 16;

#[derive(Debug)]
pub(crate) struct CatalogueProbes {
    entries: Mutex<HashMap<[u8; 32], Arc<Entry>>>,
    places: Semaphore,
    /// For probes that wait for a place.
    queue: Semaphore,
}

impl Default for CatalogueProbes {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            places: Semaphore::new(MAX_PROBES),
            queue: Semaphore::new(MAX_QUEUE),
        }
    }
}

#[derive(Debug)]
struct Entry {
    began: Instant,
    tried: OnceCell<Result<Arc<Catalogue>, CatalogueError>>,
}

impl CatalogueProbes {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<Entry>>> {
        self.entries.lock()
    }

    fn entry(&self, kind: [u8; 32]) -> Arc<Entry> {
        let mut entries = self.lock();
        entries.retain(|_, entry| {
            !matches!(entry.tried.get(), Some(Err(_))) || entry.began.elapsed() < TRY_AGAIN_AFTER
        });
        if entries.len() >= MAX_KINDS && !entries.contains_key(&kind) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.began).map(|(kind, _)| *kind);
            entries.remove(&oldest.unwrap_or(kind));
        }
        let entry = entries
            .entry(kind)
            .or_insert_with(|| Arc::new(Entry { began: Instant::now(), tried: OnceCell::new() }));
        Arc::clone(entry)
    }

    /// The catalogue as it is kept: one that is known already is not kept twice.
    fn kept(&self, catalogue: Catalogue) -> Arc<Catalogue> {
        let entries = self.lock();
        let mut known = entries.values().filter_map(|entry| entry.tried.get()?.as_ref().ok());
        let same = known.find(|known| ***known == catalogue).cloned();
        same.unwrap_or_else(|| Arc::new(catalogue))
    }
}

impl Server {
    /// What is known already, without a probe.
    pub(crate) fn known_catalogue(&self, upstream: &Upstream, handshake: &Request) -> Option<Arc<Catalogue>> {
        let entry = self.catalogue_probes.lock().get(&kind_of(upstream, handshake)).cloned()?;
        entry.tried.get()?.clone().ok()
    }

    /// What the upstream offers to such a client. A probe that has begun goes on without the client that it was
    /// begun for.
    pub(crate) async fn catalogue(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        handshake: Arc<Request>,
    ) -> Result<Arc<Catalogue>, CatalogueError> {
        let entry = self.catalogue_probes.entry(kind_of(&upstream, &handshake));
        if let Some(tried) = entry.tried.get() {
            return tried.clone();
        }
        let server = Arc::clone(self);
        let probe = tokio::spawn(async move {
            let tried = entry.tried.get_or_init(|| server.look_at(&upstream, handshake)).await;
            tried.clone()
        });
        probe.await.unwrap_or(Err(CatalogueError::Start(crate::StartError::Stopped)))
    }

    async fn look_at(
        &self,
        upstream: &Arc<Upstream>,
        handshake: Arc<Request>,
    ) -> Result<Arc<Catalogue>, CatalogueError> {
        let Ok(turn) = self.catalogue_probes.queue.try_acquire() else {
            return Err(CatalogueError::Start(crate::StartError::TooManyWaiting));
        };
        let _place = self.catalogue_probes.places.acquire().await;
        drop(turn);
        let initialized = Some(Bytes::from_static(handshake::INITIALIZED));
        let worker = self.probe_worker(upstream, Greeting { handshake, initialized, advertised: None });
        let catalogue = Catalogue::of_worker(&worker, self.context.settings.timeout).await;
        if let Err(error) = &catalogue {
            tracing::warn!(upstream = self.name(), "could not be tried in an empty workspace: {error}");
        }
        // Whoever waits for the catalogue need not wait for its end.
        let context = Arc::clone(&self.context);
        tokio::spawn(async move {
            worker.stop().await;
            context.had_probes.store(true, Ordering::Relaxed);
        });
        catalogue.map(|catalogue| self.catalogue_probes.kept(catalogue))
    }
}

/// What a catalogue depends on, as a hash: the client, and what the server is given.
fn kind_of(upstream: &Upstream, handshake: &Request) -> [u8; 32] {
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
