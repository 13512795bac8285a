//! The options of `serve` about its HTTP clients.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::Args;
use gateway::{AllowedHost, AllowedOrigin, DEFAULT_MAX_CONNECTIONS};
use session::Settings;

use crate::access_options::AccessOptions;
use crate::seconds::seconds;
use crate::server_options::ServerOptions;
use crate::state_options::StateOptions;

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpOptions {
    #[command(flatten)]
    pub(crate) access: AccessOptions,
    #[command(flatten)]
    pub(crate) state: StateOptions,
    /// Accept requests for this host name, too (repeatable).
    #[arg(long, value_name = "NAME[:PORT]")]
    pub(crate) allowed_host: Vec<AllowedHost>,
    /// Accept calls from web pages of this origin (repeatable).
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allowed_origin: Vec<AllowedOrigin>,
    /// Serve processes of this user of the host, too, although they send no token (repeatable): for a proxy or relay
    /// that runs as another user. Without --auth-token-file, only the user who runs the gateway can connect; root,
    /// 0, is no exception.
    #[arg(long, value_name = "UID")]
    pub(crate) allow_uid: Vec<u32>,
    /// Keep this many connections at once. Then idle ones are closed for new ones, and when all have requests in
    /// progress, further ones are refused with 503. Another host or user, and the requests of one principal, can have
    /// half.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_CONNECTIONS)]
    pub(crate) max_connections: NonZeroUsize,
    /// Close event streams after this long, and let clients of revision 2025-11-25 come back for the rest.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) park_after: Option<Duration>,
    /// Tell clients to wait this long before they come back.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub(crate) retry: Duration,
    /// End a session that has not been used for this long.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "3600")]
    idle_timeout: Duration,
    /// Stop the servers of a session whose client has closed its stream and sent nothing for this long; a client that
    /// never opened one gets three times as long. The session stays, and its next request starts them again.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300")]
    client_grace: Duration,
    /// End a session of this age. By default, sessions have no maximum age.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_session_age: Option<Duration>,
    /// End a session whose client did not finish the handshake, after this long without a request.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    handshake_timeout: Duration,
    /// End a process of --lifecycle shared or workspace that no session has used for this long; the next call
    /// starts another.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    idle_stop: Duration,
    /// Allow this many sessions at once; refuse more with 503.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_sessions: usize,
    /// Allow this many sessions of one caller at once; refuse more with 429. The default is 50 with
    /// --auth-token-file; `limits` of a principal in the configuration takes precedence.
    #[arg(long, value_name = "N")]
    max_sessions_per_principal: Option<usize>,
    /// Allow this many sessions of one client window at once; refuse more with 429.
    #[arg(long, value_name = "N")]
    max_sessions_per_instance: Option<usize>,
    /// Allow this many requests of one session at once; refuse more with 429.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_calls: usize,
    /// Allow this many requests of one caller per second; refuse more with 429. The default is 50 with
    /// --auth-token-file; `limits` of a principal in the configuration takes precedence.
    #[arg(long, value_name = "N")]
    calls_per_second: Option<NonZeroU32>,
    /// Allow this many requests of one client window per second; refuse more with 429.
    #[arg(long, value_name = "N")]
    instance_calls_per_second: Option<NonZeroU32>,
    /// On SIGINT or SIGTERM, and before another program takes over, wait this long for calls in flight.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub(crate) drain: Duration,
    /// Before an upgrade, go on for at most this long to find a moment without calls in flight.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub(crate) drain_timeout: Duration,
    /// Print the address as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl HttpOptions {
    /// The settings of a gateway with these options and those of its servers.
    pub(crate) fn settings(&self, servers: &ServerOptions) -> Settings {
        Settings {
            idle_timeout: self.idle_timeout,
            client_grace: self.client_grace,
            max_age: self.max_session_age,
            handshake_timeout: self.handshake_timeout,
            idle_stop: self.idle_stop,
            max_sessions: self.max_sessions,
            max_sessions_per_principal: self.max_sessions_per_principal,
            max_sessions_per_instance: self.max_sessions_per_instance,
            max_calls: self.max_calls,
            calls_per_second: self.calls_per_second,
            instance_calls_per_second: self.instance_calls_per_second,
            max_stored_bytes: self.state.state_size,
            ..servers.settings()
        }
    }
}
