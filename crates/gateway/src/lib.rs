//! HTTP in and out: admission, the MCP endpoint, health, and errors as status codes.
//!
//! The principal type is [`Gateway`]: it holds the sessions and the HTTP configuration, and serves both on a
//! listener until it is stopped. One request takes a straight line, each step a function:
//!
//! ```text
//! admit (Host, Origin) → authenticate (principal) → check headers → read body → parse → classify (era) → locate (session)
//!       → Session::call | notify | answer → respond (JSON or SSE) ; errors become HTTP in `status`
//! ```

mod admin;
mod admission;
mod attach;
mod authentication;
mod copy_endpoints;
mod denials;
mod event_body;
mod failed_attempts;
mod gateway;
mod headers;
mod health;
mod mcp;
mod metrics;
mod pieces_body;
mod places;
mod refused_connection;
mod reloaded;
mod revocation;
mod router;
mod self_wake;
mod serve;
mod served_body;
mod session_endpoints;
mod status;
#[cfg(test)]
mod test_gateway;
mod tls;
mod token_file;
mod token_store;
mod upgrade;
mod upgrade_request;

pub use admission::{AllowedHost, AllowedNameError, AllowedOrigin};
pub use gateway::{Config, DEFAULT_MAX_CONNECTIONS, Gateway};
pub use serve::{Departure, Leaving, Listeners};
pub use tls::{CertificateError, Tls};
pub use token_file::{NewToken, TokenFile, TokenFileError, TokenLineError};
pub use token_store::{Authentication, TokenStore};
pub use upgrade_request::{AcceptedUpgrade, LastUpgrade, UpgradeRefusal, UpgradeRequest};
