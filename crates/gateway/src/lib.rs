//! HTTP in and out: admission, the MCP endpoint, health, and errors as status codes.
//!
//! The principal type is [`Gateway`]: it holds the sessions and the HTTP configuration, and serves both on a
//! listener until it is told to stop. One request takes a straight line, each step a function:
//!
//! ```text
//! admit (Host, Origin) → authenticate (principal) → check headers → read body → parse → classify (era) → locate (session)
//!       → Session::call | notify | answer → respond (JSON or SSE) ; errors become HTTP in `status`
//! ```

mod admin;
mod admission;
mod attach;
mod authentication;
mod event_body;
mod failed_attempts;
mod headers;
mod health;
mod mcp;
mod metrics;
mod pieces_body;
mod reloaded;
mod revocation;
mod self_wake;
mod serve;
mod session_endpoints;
mod status;
mod tls;
mod token_file;

use std::sync::Arc;
use std::time::Duration;

pub use admission::{AllowedHost, AllowedOrigin, InvalidName};
pub use authentication::{Authentication, TokenStore};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use fence::Peers;
pub use serve::Listeners;
use session::Sessions;
pub use tls::{CertificateError, Tls};
pub use token_file::{LineFlaw, TokenFile, TokenFileError, hashed_line};
use tokio::sync::Semaphore;

/// How the HTTP side behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names beside the loopback ones under which clients may address the gateway.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Web origins beside loopback ones that may call it; only these are also answered with CORS headers.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// Longest body of a POST.
    pub max_body: usize,
    /// Closes a call's event stream after this long and lets the client come back for the rest, where the
    /// client's protocol revision knows how to. `None`: streams stay open.
    pub park_after: Option<Duration>,
    /// What a client is told to wait before it comes back.
    pub retry: Duration,
    /// What an operator shows to see and stop sessions; nobody can without one.
    pub admin_token: Option<String>,
    /// Who may call, beside the operator.
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
    sessions: Arc<Sessions>,
    config: Config,
    peers: Peers,
    refused: authentication::Refused,
    /// Places for clients' machines.
    attachments: Arc<Semaphore>,
}

impl Gateway {
    pub fn new(sessions: Arc<Sessions>, config: Config) -> Arc<Self> {
        Arc::new(Self {
            sessions,
            config,
            peers: Peers::new(),
            refused: authentication::Refused::default(),
            attachments: Arc::new(Semaphore::new(attach::MAX_ATTACHMENTS)),
        })
    }

    /// What clients reach. Whatever is added before the layer of authentication needs a principal.
    fn router(self: &Arc<Self>) -> Router {
        let mcp = |post| {
            get(mcp::get).merge(post).delete(mcp::delete).head(mcp::wrong_method).fallback(mcp::wrong_method)
        };
        Router::new()
            .route("/mcp", mcp(post(mcp::post)))
            .route("/mcp/w/{workspace}", mcp(post(mcp::post_in_workspace)))
            .route("/session/init", post(session_endpoints::init).fallback(session_endpoints::wrong_method))
            .route(
                "/session/{id}",
                get(session_endpoints::show)
                    .delete(session_endpoints::destroy)
                    .fallback(session_endpoints::wrong_method),
            )
            .route(
                "/session/{id}/destroy",
                post(session_endpoints::destroy).fallback(session_endpoints::wrong_method),
            )
            .route("/session/{id}/attach", get(attach::attach))
            .fallback(status::no_such_path)
            .layer(from_fn_with_state(Arc::clone(self), authentication::require_principal))
            .route("/health", get(health::health))
            .route("/ready", get(health::ready))
            .merge(Self::for_the_operator())
            .layer(from_fn_with_state(Arc::clone(self), admission::admit))
            .with_state(Arc::clone(self))
    }

    /// What the operator's own listener offers, where there is one.
    fn operator_router(self: &Arc<Self>) -> Router {
        Self::for_the_operator()
            .fallback(status::no_such_path)
            .layer(from_fn_with_state(Arc::clone(self), admission::admit))
            .with_state(Arc::clone(self))
    }

    /// These look for the operator's token themselves.
    fn for_the_operator() -> Router<Arc<Self>> {
        Router::new()
            .route("/metrics", get(metrics::metrics))
            .route("/sessions", get(admin::list))
            .route("/sessions/{handle}", get(admin::show).delete(admin::stop))
    }

    /// Whether callers must show who they are.
    fn wants_tokens(&self) -> bool {
        matches!(self.config.authentication, Authentication::Tokens(_))
    }
}
