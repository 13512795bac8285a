//! The gateway: the sessions, the settings of the HTTP side, and what all requests share.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fence::Peers;
use session::{Count, Sessions};
use tokio::sync::{Semaphore, mpsc};

use crate::admission::{AllowedHost, AllowedOrigin};
use crate::denials::Denials;
use crate::places::Places;
use crate::token_store::Authentication;
use crate::upgrade_request::{LastUpgrade, UpgradeRequest};

/// Machines attached at once. Their connections do not count as requests.
const MAX_ATTACHMENTS: usize = 4096;

/// Connections at once, unless the operator sets another number. Each session of a busy client holds a handful.
pub const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(8191);

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
    /// Users of this host, besides the gateway's own, who may connect without a token.
    pub allowed_uids: Vec<u32>,
    /// Connections at once.
    pub max_connections: NonZeroUsize,
    /// Takes requests for an upgrade. Without it they are refused.
    pub upgrades: Option<mpsc::Sender<UpgradeRequest>>,
    /// What became of the upgrade before.
    pub last_upgrade: Option<LastUpgrade>,
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
            allowed_uids: Vec::new(),
            max_connections: DEFAULT_MAX_CONNECTIONS,
            upgrades: None,
            last_upgrade: None,
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
    /// For the connections of clients. The operator's listener has its own.
    pub(crate) places: Places,
    /// Connections refused as those of strangers or for lack of places.
    pub(crate) refused_connections: Count,
    /// Bounds the number of attached machines.
    pub(crate) attachments: Arc<Semaphore>,
    /// Clients are to use another connection for their next request.
    is_moving: AtomicBool,
}

impl Gateway {
    pub fn new(sessions: Arc<Sessions>, config: Config, peers: Peers) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            places: Places::new(config.max_connections.get()),
            refused_connections: Count::default(),
            config,
            peers,
            denials: Denials::default(),
            attachments: Arc::new(Semaphore::new(MAX_ATTACHMENTS)),
            is_moving: AtomicBool::new(false),
        })
    }

    /// Whether an upgrade is pending.
    pub(crate) fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_moving(&self) {
        self.is_moving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn wants_tokens(&self) -> bool {
        matches!(self.config.authentication, Authentication::Tokens(_))
    }
}
