//! The upgrade of a running gateway: another program takes over its process and its sockets, by `exec`.
//!
//! ```text
//! SIGUSR2, POST /upgrade → start_check::ask (can it start?) → Gateway::serve finds a quiet moment, ends sessions (their
//!       records stay) and leaves the sockets open → take_over → exec; if that fails, this program serves again
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use gateway::{AcceptedUpgrade, UpgradeRefusal, UpgradeRequest};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::own_program::own_program;
use crate::start_check;

/// What ending all sessions and starting the other program may take beside the times for calls.
const ALLOWANCE: Duration = Duration::from_secs(30);

/// Where the sockets of a gateway listen, and what an upgrade of it leaves.
#[derive(Debug)]
pub(crate) struct UpgradeTerms {
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether sessions outlive this program.
    pub(crate) is_kept: bool,
    /// How long calls in flight may delay it.
    pub(crate) within: Duration,
}

/// Those who want an upgrade.
#[derive(Debug)]
pub(crate) struct Upgrades {
    requests: mpsc::Receiver<UpgradeRequest>,
    signals: Signal,
    terms: UpgradeTerms,
}

impl Upgrades {
    /// Also returns where requests are sent to.
    pub(crate) fn listen(terms: UpgradeTerms) -> io::Result<(mpsc::Sender<UpgradeRequest>, Self)> {
        let (sender, requests) = mpsc::channel(1);
        Ok((sender, Self { requests, signals: signal(SignalKind::user_defined2())?, terms }))
    }

    /// Resolves when an upgrade is to be done. Others are refused from then on.
    pub(crate) async fn accepted(mut self) {
        loop {
            let request = tokio::select! {
                Some(request) = self.requests.recv() => Some(request),
                _ = self.signals.recv() => None,
            };
            let (is_forced, answer) = request.map(|request| (request.is_forced, request.answer)).unzip();
            let judged = self.judge(is_forced.unwrap_or(false)).await;
            let is_accepted = judged.is_ok();
            match &judged {
                Ok(accepted) => {
                    tracing::info!(version = accepted.version, "upgrading at the next quiet moment");
                }
                Err(refusal) => tracing::error!("no upgrade: {refusal}"),
            }
            tell(answer, judged);
            if is_accepted {
                break;
            }
        }
        tokio::spawn(async move {
            while let Some(request) = self.requests.recv().await {
                tell(Some(request.answer), Err(UpgradeRefusal::UnderWay));
            }
        });
    }

    async fn judge(&self, is_forced: bool) -> Result<AcceptedUpgrade, UpgradeRefusal> {
        if !self.terms.is_kept && !is_forced {
            return Err(UpgradeRefusal::NothingKept);
        }
        let program = own_program().map_err(|error| UpgradeRefusal::Unfit(error.to_string()))?;
        let fit = start_check::ask(&program.started_as, &self.terms.addresses).await?;
        if self.terms.is_kept && fit.store_schema < store::SCHEMA_VERSION {
            return Err(UpgradeRefusal::Unfit(format!(
                "{} is version {} and cannot read the sessions of this one (schema {}, here {}); hint: stop this \
                 gateway, and start the older one with another --state-dir",
                program.started_as.display(),
                fit.version,
                fit.store_schema,
                store::SCHEMA_VERSION,
            )));
        }
        Ok(AcceptedUpgrade { version: fit.version, within: self.terms.within + ALLOWANCE })
    }
}

type Answer = oneshot::Sender<Result<AcceptedUpgrade, UpgradeRefusal>>;

/// One who asked may have gone since, and a signal wants no answer.
fn tell(answer: Option<Answer>, judged: Result<AcceptedUpgrade, UpgradeRefusal>) {
    if let Some(answer) = answer {
        let _ = answer.send(judged);
    }
}

/// Replaces this program by the one at its path. Returns only if that fails.
pub(crate) fn take_over(listeners: &[TcpListener]) -> io::Error {
    let program = match own_program() {
        Ok(own) => &own.started_as,
        Err(error) => return error,
    };
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let sockets: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    fence::become_program(program, &arguments, std::env::vars_os(), &sockets)
}
