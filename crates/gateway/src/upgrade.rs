//! Requests to replace the program of this gateway while its sockets stay open: what the operator can ask, and what the
//! answer is. The program itself is looked at, and started, by the process that this gateway is a part of.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::json;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::Gateway;
use crate::admin::answer_operator;
use crate::status::RequestError;

/// Asks for an upgrade.
#[derive(Debug)]
pub struct UpgradeRequest {
    /// Also if sessions are not kept.
    pub is_forced: bool,
    pub answer: oneshot::Sender<Result<AcceptedUpgrade, UpgradeRefusal>>,
}

/// An upgrade that will be tried at the next quiet moment.
#[derive(Clone, Debug)]
pub struct AcceptedUpgrade {
    /// The version of the new program.
    pub version: String,
    /// How long it may take until the new program starts.
    pub within: Duration,
}

/// Why the gateway goes on with its present program.
#[derive(Clone, Debug, Error)]
pub enum UpgradeRefusal {
    #[error(
        "this gateway keeps no sessions, so all would end; hint: start it on a fixed port or with --state-dir, or \
         upgrade with --force"
    )]
    NothingKept,
    #[error("an upgrade is under way already")]
    UnderWay,
    #[error("the gateway is stopping")]
    Stopping,
    /// The new program cannot take over.
    #[error("{0}")]
    Unfit(String),
}

/// What became of the last upgrade of this process.
#[derive(Clone, Debug)]
pub enum LastUpgrade {
    /// This program took over.
    Done,
    /// The other could not be executed, and this one went on.
    Failed(String),
}

/// `POST /upgrade`, on the operator's own listener alone.
pub(crate) async fn begin(
    State(gateway): State<Arc<Gateway>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    answer_operator(&gateway, &headers, async || {
        let is_forced = query.as_deref() == Some("force");
        let accepted = ask(gateway.config.upgrades.as_ref(), is_forced).await?;
        Ok(json!({ "version": accepted.version, "within_seconds": accepted.within.as_secs_f64() }))
    })
    .await
}

async fn ask(
    upgrades: Option<&mpsc::Sender<UpgradeRequest>>,
    is_forced: bool,
) -> Result<AcceptedUpgrade, RequestError> {
    let upgrades = upgrades.ok_or(UpgradeRefusal::Stopping)?;
    let (answer, answered) = oneshot::channel();
    match upgrades.try_send(UpgradeRequest { is_forced, answer }) {
        Ok(()) => Ok(answered.await.map_err(|_| UpgradeRefusal::Stopping)??),
        Err(mpsc::error::TrySendError::Full(_)) => Err(UpgradeRefusal::UnderWay.into()),
        Err(mpsc::error::TrySendError::Closed(_)) => Err(UpgradeRefusal::Stopping.into()),
    }
}

/// `GET /upgrade`: which program serves, and how it came to that.
pub(crate) async fn show(State(gateway): State<Arc<Gateway>>, headers: HeaderMap) -> Response {
    answer_operator(&gateway, &headers, async || {
        let last = match &gateway.config.last_upgrade {
            None => json!("none"),
            Some(LastUpgrade::Done) => json!("done"),
            Some(LastUpgrade::Failed(reason)) => json!({ "failed": reason }),
        };
        let calls: usize = gateway.sessions.all().iter().map(|session| session.calls_in_flight()).sum();
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "last": last,
            "pending": gateway.is_moving(),
            "calls_in_flight": calls,
        }))
    })
    .await
}
