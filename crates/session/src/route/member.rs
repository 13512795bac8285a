//! One of several servers, as one session has it: where it runs, and the workers that it has there.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use config::Start;
use serde::Serialize;
use upstream::Lifecycle;
use wire::Request;

use super::placement::{Choice, Placement};
use crate::catalogue::{Catalogue, CatalogueError};
use crate::client::Client;
use crate::handshake;
use crate::scope::Scope;
use crate::server::Server;
use crate::worker::{ClientHandle, Greeting, Worker};
use crate::workers::Workers;

/// Trouble is looked into again after this long, when a client asks.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The same for a server on a machine that is connected: the trouble may have been the machine before.
const TRY_ATTACHED_AFTER: Duration = Duration::from_millis(500);
const ATTACHED_TRIES: usize = 4;

/// A probe that takes longer is not waited for: the session's own server shows as much.
const PROBE_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Member {
    pub(super) server: Arc<Server>,
    choice: Choice,
    placement: Placement,
    /// The `initialize` that it is greeted with.
    handshake: Arc<Request>,
    workers: OnceLock<Workers>,
}

/// One server of a session, for reports.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    #[serde(skip)]
    pub name: String,
    pub execution_context: &'static str,
    pub endpoint: &'static str,
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_directories: Vec<PathBuf>,
    /// What the client wanted and did not get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub override_refused: Option<String>,
    pub lifecycle: &'static str,
}

impl Member {
    pub(super) fn new(
        server: &Arc<Server>,
        choice: Choice,
        placement: Placement,
        handshake: Arc<Request>,
    ) -> Self {
        Self { server: Arc::clone(server), choice, placement, handshake, workers: OnceLock::new() }
    }

    pub(super) fn name(&self) -> &str {
        self.server.name()
    }

    pub(super) fn is_eager(&self) -> bool {
        // A worker for a single call would wait for it in vain.
        self.server.plan.start == Start::Eager && self.server.lifecycle() != Lifecycle::Call
    }

    pub(super) fn is_attached(&self) -> bool {
        matches!(self.placement, Placement::Attached(_))
    }

    /// The lists that an earlier probe has shown.
    pub(super) fn known_catalogue(&self) -> Option<Arc<Catalogue>> {
        match &self.placement {
            Placement::Here { probe: Some(probe), .. } => self.server.known_catalogue(probe, &self.handshake),
            _ => None,
        }
    }

    /// Why it cannot run now, whatever it was like before.
    pub(super) fn obstacle(&self, client: &Client) -> Option<String> {
        match &self.placement {
            Placement::Off(reason) => Some(reason.clone()),
            Placement::Attached(_) if !self.is_reachable(client) => {
                Some("it runs on the client's machine, which is not connected (ringfence connect)".to_owned())
            }
            Placement::Attached(_) | Placement::Here { .. } => None,
        }
    }

    /// How long trouble with it is left alone. `None`: it cannot be looked at now.
    pub(super) fn look_again_after(&self, client: &Client) -> Option<Duration> {
        match &self.placement {
            Placement::Off(_) => None,
            Placement::Attached(_) => self.is_reachable(client).then_some(TRY_ATTACHED_AFTER),
            Placement::Here { .. } => Some(TRY_AGAIN_AFTER),
        }
    }

    fn is_reachable(&self, client: &Client) -> bool {
        client.attachment().is_some_and(|attachment| attachment.has(self.name()))
    }

    /// The workers that there are now.
    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.get().map(Workers::all).unwrap_or_default()
    }

    /// The worker for the next call. None runs before it is needed.
    pub(super) fn worker(&self, client: impl FnOnce() -> ClientHandle) -> Option<Arc<Worker>> {
        let (upstream, scope) = match &self.placement {
            Placement::Here { upstream, scope, .. } => (upstream, Arc::clone(scope)),
            Placement::Attached(upstream) => (upstream, Arc::new(Scope::nothing())),
            Placement::Off(_) => return None,
        };
        let workers = self.workers.get_or_init(|| {
            let greeting = Greeting {
                handshake: Arc::clone(&self.handshake),
                initialized: Some(Bytes::from_static(handshake::INITIALIZED)),
                advertised: None,
            };
            self.server.workers_for(client(), upstream, &scope, greeting)
        });
        Some(workers.for_call())
    }

    /// Finds out what it offers from a probe. `None` if that takes too long, or fails for a reason that may be due to the
    /// empty workspace of the probe.
    pub(super) async fn probe(&self) -> Option<Result<Arc<Catalogue>, CatalogueError>> {
        let Placement::Here { probe: Some(probe), .. } = &self.placement else { return None };
        let probe = self.server.catalogue(Arc::clone(probe), Arc::clone(&self.handshake));
        let probed = tokio::time::timeout(PROBE_WITHIN, probe).await.ok()?;
        let holds_anywhere = match &probed {
            Ok(_) => true,
            Err(CatalogueError::Start(error)) => error.is_without_program(),
            Err(_) => false,
        };
        holds_anywhere.then_some(probed)
    }

    /// Finds out what it offers from the session's own worker.
    pub(super) async fn look_at(
        &self,
        worker: &Arc<Worker>,
        client: &Client,
    ) -> Result<Arc<Catalogue>, CatalogueError> {
        let mut catalogue = Catalogue::of_worker(worker, worker.call_timeout()).await;
        // A machine that has just taken another's place finds the other's conversation on its way out.
        for _ in 0..ATTACHED_TRIES {
            if catalogue.is_ok() || !self.is_attached() || !self.is_reachable(client) {
                break;
            }
            tokio::time::sleep(TRY_ATTACHED_AFTER).await;
            catalogue = Catalogue::of_worker(worker, worker.call_timeout()).await;
        }
        worker.stop_if_for_one_call().await;
        catalogue.map(Arc::new)
    }

    /// The lists of the session's own worker, if it has one that runs.
    pub(super) async fn own_catalogue(&self) -> Option<Catalogue> {
        let worker = self.workers().pop()?;
        Catalogue::of_worker(&worker, worker.call_timeout()).await.ok()
    }

    pub(super) fn report(&self, reason: Option<String>) -> MemberReport {
        let (directories, starts_in) = self.placement.directories();
        MemberReport {
            name: self.name().to_owned(),
            execution_context: self.choice.context.as_str(),
            endpoint: "internal",
            enabled: reason.is_none(),
            reason,
            working_directory: starts_in.or_else(|| directories.first().cloned()),
            allowed_directories: directories,
            override_refused: self.choice.refused.clone(),
            lifecycle: self.server.lifecycle().as_str(),
        }
    }
}
