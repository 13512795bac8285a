//! Sends a log to another machine while it is written, so that what was recorded cannot be taken back here.
//!
//! The log's own files are the queue. A thread follows them and sends what is new in batches, in order:
//!
//! ```text
//! FILE.2, FILE.1, FILE ─► Follower ─► Batch ─► Delivery (syslog or HTTP) ─► acknowledged ─► Cursor in FILE.sink
//! ```
//!
//! A batch that is not acknowledged is sent again, also after a restart: nothing is lost as long as rotation keeps the
//! files, and a record may arrive twice. The log is written without waiting for any of this.

mod address;
mod cursor;
mod delivery;
mod follower;
mod http;
mod shipper;
mod syslog;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub use address::{SinkAddress, SinkAddressError};
pub(super) use shipper::Shipper;

use delivery::Delivery;

/// A place that takes the records of a log.
#[derive(Debug)]
pub struct Sink {
    address: SinkAddress,
    delivery: Delivery,
}

/// Why a sink cannot be used.
#[derive(Debug, Error)]
pub enum SinkError {
    #[error("a token can be sent to an HTTP sink only, not to {0}")]
    TokenForSyslog(SinkAddress),
    #[error("the sink {address} cannot be used: {reason}")]
    Unusable { address: SinkAddress, reason: String },
}

impl SinkError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TokenForSyslog(_) => Some("leave out --audit-sink-token, or use an https:// sink"),
            Self::Unusable { .. } => None,
        }
    }
}

impl Sink {
    /// `token`: sent to an HTTP sink as `Authorization: Bearer`. `tls`: whose certificates are trusted.
    pub fn new(
        address: SinkAddress,
        token: Option<&str>,
        tls: rustls::ClientConfig,
    ) -> Result<Self, SinkError> {
        let delivery = match &address {
            SinkAddress::Syslog(_) if token.is_some() => return Err(SinkError::TokenForSyslog(address)),
            SinkAddress::Syslog(receiver) => Delivery::Syslog(syslog::Syslog::new(receiver.clone(), tls)),
            SinkAddress::Http(url) => match http::Http::new(url.clone(), token, tls) {
                Ok(http) => Delivery::Http(http),
                Err(error) => {
                    return Err(SinkError::Unusable { address, reason: error.to_string() });
                }
            },
        };
        Ok(Self { address, delivery })
    }
}
