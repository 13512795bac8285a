//! `ringfence serve`: one HTTP endpoint in front of MCP servers.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use fence::Peers;
use gateway::{Authentication, Config, Gateway, Listeners};
use serde_json::json;
use session::{Grants, RightsBook, Sessions};
use tokio::net::{TcpListener, UnixListener, lookup_host};
use upstream::Lifecycle;

use crate::access_options::Access;
use crate::audit_options::close_audit_log;
use crate::discovery::{self, Announcement};
use crate::error::Error;
use crate::guarded_host::TrustedFiles;
use crate::http_options::HttpOptions;
use crate::operator_socket::OperatorSocket;
use crate::server_options::ServerOptions;
use crate::servers::{ClientPlace, Reload, Servers};
use crate::{logging, signals};

const EXAMPLES: &str = "\
Examples:
  ringfence serve
      file, search, edit and shell tools for each session, in its own workspace
  ringfence serve --read-only --block-tool run_terminal_cmd
      the same, but clients can only read
  ringfence serve -- npx -y @modelcontextprotocol/server-everything
      one process of the server for each MCP session, at http://127.0.0.1:3000/mcp
  ringfence serve --shared --port 8080 -- uvx mcp-server-time
      one process for all clients; each still has its own session and sees only its own data
  ringfence serve --env API_KEY --env MODE=test --timeout 300 -- ./my-server
      passes two variables to the server, and lets calls take five minutes without progress
  ringfence serve --allow-scope ~/projects --net none -- ./my-server
      sessions may only use directories inside ~/projects, and have no network
  ringfence serve --workspace docs=/srv/docs --lifecycle workspace -- ./my-server
      clients that connect to /mcp/w/docs share one process in /srv/docs
  ringfence serve --host 0.0.0.0 --auth-token-file tokens --tls-cert cert.pem --tls-key key.pem
      for other machines, too: callers send a token, made with `ringfence token create NAME --file tokens`, and
      work where `principals` in the configuration or --allow-scope lets them
  ringfence serve --audit-log audit.jsonl --audit-key audit.key --audit-sink syslog+tls://log.example.org:6514
      records what sessions do, hashed with the key of `ringfence audit key audit.key`, and sends it elsewhere";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArguments {
    /// Address to listen on. Any but a loopback address needs --auth-token-file, and --tls-cert or --behind-proxy.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Port to listen on; 0 takes any free one.
    #[arg(long, default_value_t = 3000)]
    pub(crate) port: u16,
    /// How processes of the server are shared: session (each MCP session has its own, the default), workspace
    /// (sessions on one directory share one), shared (all clients share one), call (each request has its own).
    #[arg(long, value_enum, conflicts_with_all = ["shared", "session_isolation"])]
    pub(crate) lifecycle: Option<LifecycleChoice>,
    /// The same as --lifecycle session.
    #[arg(long, conflicts_with = "shared")]
    pub(crate) session_isolation: bool,
    /// The same as --lifecycle shared: the scope is fixed at start, and all clients work in it.
    #[arg(long)]
    pub(crate) shared: bool,
    #[command(flatten)]
    pub(crate) http: HttpOptions,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LifecycleChoice {
    Shared,
    Workspace,
    Session,
    Call,
}

impl ServeArguments {
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        match self.lifecycle {
            Some(LifecycleChoice::Shared) => Lifecycle::Shared,
            Some(LifecycleChoice::Workspace) => Lifecycle::Workspace,
            Some(LifecycleChoice::Call) => Lifecycle::Call,
            None if self.shared => Lifecycle::Shared,
            Some(LifecycleChoice::Session) | None => Lifecycle::Session,
        }
    }
}

impl ServeArguments {
    /// Copies are for processes that work for one session or workspace, as the user who runs ringfence.
    fn check_stage(&self) -> Result<(), Error> {
        if !self.server.scope.needs_copies() {
            return Ok(());
        }
        if self.lifecycle() == Lifecycle::Shared {
            return Err(Error::NotWithStage("--shared"));
        }
        if self.http.access.gives_principals_users() {
            return Err(Error::NotWithStage("--principal-uids"));
        }
        Ok(())
    }
}

pub(crate) fn run(mut arguments: ServeArguments) -> Result<(), Error> {
    logging::start(arguments.server.upstream.log);
    arguments.check_stage()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Check the cheap things first: installing a package may take minutes.
    let address = runtime.block_on(address(&arguments))?;
    let access = arguments.http.access.open(address)?;
    arguments.server.fence.deny_read.extend(arguments.http.access.secret_files());
    let users = arguments.http.access.principal_users()?.map(Arc::new);
    arguments.server.fence.user = users.as_ref().map(|users| users.common());
    let clients = if address.ip().is_loopback() { ClientPlace::ThisMachine } else { ClientPlace::Anywhere };
    arguments.http.state.make_trusted(arguments.port == 0)?;
    let state = arguments.http.state.trusted();
    arguments.server.fence.deny_read.extend(state.iter().filter_map(|path| path.canonicalize().ok()));
    let mut files = arguments.http.access.files();
    files.extend(state);
    let trusted = TrustedFiles { what: "what decides who may connect, or goes on with sessions", files };
    let mut servers = Servers::of(&arguments.server, arguments.lifecycle(), clients, trusted)?;
    servers.grants.users = users;
    // On a thread of the runtime: a thread that only waits here would have to be woken for every connection.
    let served = runtime.spawn(serve(arguments, address, access, servers));
    runtime.block_on(served).map_err(std::io::Error::other)?
}

async fn serve(
    arguments: ServeArguments,
    address: SocketAddr,
    access: Access,
    servers: Servers,
) -> Result<(), Error> {
    let Servers { set, rules, mut grants, package, mut reload } = servers;
    let listener = TcpListener::bind(address).await.map_err(|reason| Error::Bind { address, reason })?;
    let address = listener.local_addr()?;
    if arguments.server.fence.host_port.contains(&address.port()) {
        return Err(Error::OwnPortMirrored(address.port()));
    }
    let stop = signals::stop_requested()?;
    prepare_process()?;
    let own = rules.host_environment.outside().to_owned();
    // What a session needs in its scope is left there for the next one, until the gateway ends.
    let _lingering = rules.host_environment.keep_placeholders_a_moment();
    let audit = arguments.server.upstream.audit.open()?;
    let settings = arguments.http.settings(&arguments.server);
    let kept = arguments.http.state.open(address, arguments.port == 0)?;
    grants.sessions = settings.max_sessions_per_principal;
    grants.calls_per_second = settings.calls_per_second;
    let sessions = Sessions::new(set, settings, rules, audit.clone(), kept);
    grant(&sessions, grants, &access.authentication, reload.as_mut());
    if let Err(refusal) = sessions.prepare().await {
        upstream::end_all_children().await;
        return Err(Error::NotServing(refusal));
    }
    tokio::spawn(Arc::clone(&sessions).watch());
    if let Some(reload) = reload {
        tokio::spawn(reload.follow(Arc::clone(&sessions)));
    }
    let url = format!("{}://{address}", if access.tls.is_some() { "https" } else { "http" });
    // Both remove themselves when they are dropped, so they are held until the gateway ends.
    let (socket, operator) = operator_socket(&own).unzip();
    let socket_name = socket.as_ref().map(OperatorSocket::name);
    let announcement = Announcement::publish(&own, &url, socket_name, &sessions.name())?;
    announce(&arguments, &url)?;
    let config = Config {
        allowed_hosts: arguments.http.allowed_host,
        allowed_origins: arguments.http.allowed_origin,
        max_body: arguments.server.upstream.max_message_bytes,
        park_after: arguments.http.park_after,
        retry: arguments.http.retry,
        admin_token: Some(announcement.token.clone()),
        authentication: access.authentication,
        is_behind_proxy: arguments.http.access.behind_proxy,
        allowed_uids: arguments.http.allow_uid,
        max_connections: possible_connections(arguments.http.max_connections),
    };
    let listeners = Listeners { clients: listener, tls: access.tls, operator };
    Gateway::new(sessions, config, Peers::new(&own)).serve(listeners, stop, arguments.http.drain).await;
    drop((package, socket));
    close_audit_log(audit).await;
    Ok(())
}

/// Gives callers with tokens their rights, now and when the configuration changes. Without tokens there are none to give.
fn grant(
    sessions: &Arc<Sessions>,
    grants: Grants,
    authentication: &Authentication,
    reload: Option<&mut Reload>,
) {
    if matches!(authentication, Authentication::Open) {
        if !grants.principals.is_empty() {
            tracing::warn!("the rights of principals count for nothing without --auth-token-file");
        }
        return;
    }
    sessions.set_rights(RightsBook::of_grants(grants.clone()));
    if let Some(reload) = reload {
        reload.grants = Some(grants);
    }
}

/// Makes this process the parent of orphans, ends those of a killed gateway, and raises the limit of descriptors.
fn prepare_process() -> Result<(), Error> {
    upstream::adopt_orphans()?;
    let swept = upstream::sweep_orphans();
    if swept > 0 {
        tracing::warn!("ended {swept} processes that a killed gateway had left");
    }
    raise_descriptor_limit();
    Ok(())
}

async fn address(arguments: &ServeArguments) -> Result<SocketAddr, Error> {
    let unknown = |reason| Error::UnknownHost { host: arguments.host.clone(), reason };
    let host = arguments.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = lookup_host((host, arguments.port)).await.map_err(unknown)?;
    addresses.next().ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))
}

/// The operator's own listener. Without it, its tools use that of the clients.
fn operator_socket(own: &Path) -> Option<(OperatorSocket, UnixListener)> {
    let bound = OperatorSocket::bind(&discovery::directory_in(own));
    bound.map_err(|error| tracing::warn!("no socket for the operator: {error}")).ok()
}

/// Leaves half of the descriptors that this process may open to sessions.
fn possible_connections(wanted: NonZeroUsize) -> NonZeroUsize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let possible = limit.and_then(|limit| usize::try_from(limit / 2).ok()).and_then(NonZeroUsize::new);
    match possible {
        Some(possible) if possible < wanted => {
            tracing::warn!(
                "at most {possible} connections at once, because of the limit of open files (ulimit -n)"
            );
            possible
        }
        _ => wanted,
    }
}

/// Each session needs several descriptors, so the usual limit of 1024 is too low.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        // Best effort: a lower limit only means fewer sessions.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

/// Prints the address of the endpoint, the only line on stdout.
fn announce(arguments: &ServeArguments, base: &str) -> Result<(), Error> {
    let url = format!("{base}/mcp");
    let mut stdout = std::io::stdout().lock();
    if arguments.http.json {
        let event = json!({
            "event": "listening",
            "url": url,
            "health": format!("{base}/health"),
            "lifecycle": arguments.lifecycle().as_str(),
            "pid": std::process::id(),
        });
        writeln!(stdout, "{event}")?;
    } else {
        writeln!(stdout, "ringfence listening on {url}   (health: /health)")?;
    }
    stdout.flush()?;
    Ok(())
}
