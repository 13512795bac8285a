//! The gateway: the sessions, the settings of the HTTP side, and what all requests share.

use std::sync::Arc;
use std::time::Duration;

use fence::Peers;
use session::Sessions;
use tokio::sync::Semaphore;

use crate::admission::{AllowedHost, AllowedOrigin};
use crate::denials::Denials;
use crate::token_store::Authentication;

/// Machines attached at once. Their connections do not count as requests.
const MAX_ATTACHMENTS: usize = 4096;

/// The settings of the HTTP side.
#[derive(Clone, Debug)]
pub struct Config {
    /// Host names, besides the loopback ones, under which clients may address the gateway.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Web origins, besides the loopback ones, that may call it. Only these get CORS headers.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// Longest body of a POST.
    pub max_body: usize,
    /// Closes a call's event stream after this long; a client whose protocol revision can resume comes back for the
    /// rest. `None` leaves streams open.
    pub park_after: Option<Duration>,
    /// How long a client waits before it comes back.
    pub retry: Duration,
    /// The operator's token. Without one the operator's paths refuse every request.
    pub admin_token: Option<String>,
    /// How callers other than the operator are identified.
    pub authentication: Authentication,
    /// Connections come from a proxy, which names the callers' addresses in `X-Forwarded-For`.
    pub is_behind_proxy: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: wire::MAX_MESSAGE_BYTES,
            park_after: None,
            retry: Duration::from_secs(1),
            admin_token: None,
            authentication: Authentication::Open,
            is_behind_proxy: false,
        }
    }
}

/// The HTTP side of ringfence.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) config: Config,
    pub(crate) peers: Peers,
    pub(crate) denials: Denials,
    /// Bounds the number of attached machines.
    pub(crate) attachments: Arc<Semaphore>,
}

impl Gateway {
    pub fn new(sessions: Arc<Sessions>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            config,
            peers: Peers::new(),
            denials: Denials::default(),
            attachments: Arc::new(Semaphore::new(MAX_ATTACHMENTS)),
        })
    }

    pub(crate) fn wants_tokens(&self) -> bool {
        matches!(self.config.authentication, Authentication::Tokens(_))
    }
}
