//! A command that runs in its fence, seen by the process that started it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;

use crate::confinement::Confinement;
use crate::error::{FenceError, LaunchError};
use crate::launch::{Ending, Fenced, Remote};
use crate::network::{self, AllowedHosts, Listeners};
use crate::tool_caches::ToolCaches;

/// A command that runs in its fence. Dropping it, and its [`Remote`] if there is one, kills the command.
#[derive(Debug)]
pub struct RunningFence {
    fenced: Fenced,
    /// The hosts that its private network may reach.
    hosts: AllowedHosts,
    /// Not removed as long as the command runs.
    caches: Option<Arc<ToolCaches>>,
}

impl RunningFence {
    pub(crate) fn new(fenced: Fenced, hosts: AllowedHosts, caches: Option<Arc<ToolCaches>>) -> Self {
        Self { fenced, hosts, caches }
    }

    /// What holds around the command.
    pub fn confinement(&self) -> &Confinement {
        &self.fenced.confinement
    }

    /// The process to watch from outside: it waits for the command.
    pub fn supervisor(&self) -> Pid {
        self.fenced.supervisor()
    }

    /// A handle that signals and kills the command while another task attends to it. Once it is taken, the command
    /// lives as long as the handle.
    pub fn remote(&mut self) -> io::Result<Remote> {
        self.fenced.remote()
    }

    /// Serves the private network of the command until it and everything it started have ended. A network that
    /// fails is reported to `network_failed`, and the command runs on without it.
    pub async fn attend(self, network_failed: impl FnOnce(io::Error)) -> Result<Ending, FenceError> {
        let Self { mut fenced, hosts, caches: _in_use } = self;
        // A gateway holds many fences, and these descriptions take more memory than the rest of each.
        fenced.confinement.protections = Vec::new();
        let listeners = std::mem::take(&mut fenced.listeners);
        // If the descriptor cannot be watched, the thread below waits instead.
        if listeners.is_empty() {
            let _ = fenced.ended().await;
        } else {
            serve_until_ended(&fenced, listeners, hosts, network_failed).await;
        }
        let ending = tokio::task::spawn_blocking(move || fenced.wait()).await;
        Ok(ending.map_err(|error| LaunchError::Io(io::Error::other(error)))??)
    }

    /// Does the same for a caller without a runtime, and kills the command when `limit` has passed. Returns `None`
    /// if it was killed.
    pub fn attend_blocking(
        mut self,
        limit: Duration,
        network_failed: impl FnOnce(io::Error),
    ) -> Result<Option<Ending>, FenceError> {
        let mut remote = self.remote().map_err(LaunchError::from)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LaunchError::from)?;
        let ending = runtime.block_on(async {
            let mut ending = pin!(self.attend(network_failed));
            if let Ok(ending) = tokio::time::timeout(limit, &mut ending).await {
                return ending.map(Some);
            }
            remote.kill();
            ending.await.map(|_| None)
        });
        // Name look-ups may still block threads of the runtime.
        runtime.shutdown_background();
        ending
    }
}

async fn serve_until_ended(
    fenced: &Fenced,
    listeners: Listeners,
    hosts: AllowedHosts,
    network_failed: impl FnOnce(io::Error),
) {
    let mut ended = pin!(fenced.ended());
    tokio::select! {
        // On the heap: few fences have a private network, and the others should not pay for its state.
        served = Box::pin(network::serve(listeners, hosts)) => {
            if let Err(error) = served {
                network_failed(error);
            }
            let _ = ended.await;
        }
        _ = &mut ended => {}
    }
}
