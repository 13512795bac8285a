//! Hands a batch to the sink, and waits until the sink has acknowledged it.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::follower::Batch;
use super::http::Http;
use super::syslog::Syslog;

/// How long a sink may take for a batch, with connecting.
const WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Delivery {
    Syslog(Syslog),
    Http(Http),
}

/// Why a batch may not have arrived.
#[derive(Debug, Error)]
pub(super) enum DeliveryError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Http(String),
    #[error("it answers with the HTTP status {0}")]
    Status(u16),
    #[error("it takes longer than {} seconds", WITHIN.as_secs())]
    TooSlow,
}

impl Delivery {
    pub(super) async fn send(&self, batch: &Batch) -> Result<(), DeliveryError> {
        let sent = async {
            match self {
                Self::Syslog(syslog) => syslog.send(batch).await,
                Self::Http(http) => http.send(batch).await,
            }
        };
        tokio::time::timeout(WITHIN, sent).await.unwrap_or(Err(DeliveryError::TooSlow))
    }
}
