//! The durable part of a session: what it would take to open it again after its gateway has gone. Plain data, apart
//! from everything that lives only in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::ExecutionContext;
use identity::{Instance, SessionKey};
use jiff::Timestamp;
use wire::{ErrorReply, LogLevel, Request, Version};

use crate::scope::Scope;
use crate::session_context::SessionContext;

#[derive(Clone, Debug)]
pub(crate) struct SessionRecord {
    pub(crate) key: SessionKey,
    pub(crate) instance: Instance,
    /// Whether the client named its instance, or the gateway made the name up.
    pub(crate) is_instance_named: bool,
    /// `name/version` of the client, for logs.
    pub(crate) client: String,
    /// When the client opened the session.
    pub(crate) opened: Timestamp,
    /// Counts the gateways that have had the session, from 0.
    pub(crate) epoch: u32,
    /// `initialize` as the client sent it.
    pub(crate) initialize: Arc<Request>,
    /// The gateway said `initialize` in the client's place, and the client may still say it.
    pub(crate) expects_initialize: bool,
    /// The result that the client got.
    pub(crate) answer: Option<String>,
    /// The negotiated revision, if it is one that we know.
    pub(crate) version: Option<Version>,
    /// Set once, never changed.
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) contexts: Contexts,
    /// What is said about it.
    pub(crate) context: SessionContext,
    pub(crate) subscriptions: BTreeSet<Subscription>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) end: Option<SessionEnd>,
}

impl SessionRecord {
    /// What the client has asked of a server: its subscriptions there, and how much it wants to hear.
    pub(crate) fn wishes_at(&self, server: &str) -> (Vec<String>, Option<LogLevel>) {
        let at_server = self.subscriptions.iter().filter(|subscription| subscription.server == server);
        (at_server.map(|subscription| subscription.uri.clone()).collect(), self.log_level)
    }
}

/// A resource that the client wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subscription {
    pub(crate) server: String,
    pub(crate) uri: String,
}

/// Where a client wants its servers to run.
#[derive(Clone, Debug)]
pub struct Contexts {
    pub wanted: BTreeMap<String, ExecutionContext>,
    /// Whether the client takes servers that work on its own files.
    pub takes_local: bool,
}

impl Default for Contexts {
    fn default() -> Self {
        Self { wanted: BTreeMap::new(), takes_local: true }
    }
}

/// How a session ended.
#[derive(Clone, Debug)]
pub(crate) struct SessionEnd {
    pub(crate) reason: EndReason,
    /// What a client that still uses the session hears, if not that the session is unknown.
    pub(crate) error: Option<ErrorReply>,
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    Deleted,
    /// By the operator.
    Stopped,
    Idle,
    /// Older than a session may become.
    Expired,
    /// The client never finished its handshake.
    NeverInitialized,
    /// The client went away before it had its session id.
    Abandoned,
    /// The upstream is not what the client was told.
    UpstreamChanged,
    ScopeRefused,
    RootsChangeRejected,
    /// The client's roots changed, and it is to start over.
    RootsChanged,
    /// Another directory lies where the scope was.
    ScopeChanged,
    /// The token or the rights of its caller were taken away, or have expired.
    AccessWithdrawn,
    /// Not used for the longest, when there was no room for all stored sessions.
    Evicted,
    Shutdown,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Expired => "expired",
            Self::NeverInitialized => "never_initialized",
            Self::Abandoned => "abandoned",
            Self::UpstreamChanged => "upstream_changed",
            Self::ScopeRefused => "scope_refused",
            Self::RootsChangeRejected => "roots_change_rejected",
            Self::RootsChanged => "roots_changed",
            Self::ScopeChanged => "scope_changed",
            Self::AccessWithdrawn => "access_withdrawn",
            Self::Evicted => "evicted",
            Self::Shutdown => "shutdown",
        }
    }
}
