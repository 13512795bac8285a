//! The operator's path for upgrades: asks for one, and shows what became of the last.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::Gateway;
use crate::admin::answer_operator;
use crate::status::RequestError;
use crate::upgrade_request::{AcceptedUpgrade, LastUpgrade, UpgradeRefusal, UpgradeRequest};

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
