//! `ringfence serve`: one HTTP endpoint in front of MCP servers.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fence::{PassedSockets, Peers};
use gateway::{Authentication, Config, Departure, Gateway, LastUpgrade, Leaving, Listeners};
use serde_json::json;
use session::{Grants, RightsBook, Sessions};
use tokio::net::{TcpListener, UnixListener};
use upstream::Lifecycle;

use crate::access_options::Access;
use crate::audit_options::close_audit_log;
use crate::discovery::{self, Announcement};
use crate::error::Error;
use crate::guarded_host::TrustedFiles;
use crate::http_options::HttpOptions;
use crate::listening::{Listening, Wanted};
use crate::logging;
use crate::operator_socket::OperatorSocket;
use crate::own_program::own_program;
use crate::server_options::ServerOptions;
use crate::servers::{self, ClientPlace, Reload, Servers};
use crate::service_manager::ServiceManager;
use crate::signals::{self, StopNoted};
use crate::upgrade::{self, UpgradeTerms, Upgrades};

/// How long threads that still read or write may take before the program leaves or another takes over.
const LAST_TASKS: Duration = Duration::from_secs(2);

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

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArguments {
    /// Address to listen on. Any but a loopback address needs --auth-token-file, and --tls-cert or --behind-proxy.
    /// [default: 127.0.0.1, or that of the sockets that a service manager passes]
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Port to listen on; 0 takes any free one. [default: 3000, or that of the sockets that a service manager passes]
    #[arg(long)]
    pub(crate) port: Option<u16>,
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
    fn wanted(&self) -> Wanted<'_> {
        Wanted { host: self.host.as_deref(), port: self.port }
    }

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

pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Error> {
    // First of all: no thread may run yet, and no file may be open.
    let mut passed = PassedSockets::take()?;
    own_program()?;
    logging::start(arguments.server.upstream.log);
    arguments.check_stage()?;
    let manager = ServiceManager::of_environment();
    let mut start = Start {
        sockets: std::mem::take(&mut passed.sockets),
        last_upgrade: passed.is_upgrade.then_some(LastUpgrade::Done),
        manager,
    };
    loop {
        let manager = start.manager.clone();
        let listeners = match serve_once(arguments.clone(), start)? {
            Departure::End => return Ok(()),
            Departure::Upgrade(listeners) => listeners,
        };
        if let Some(manager) = &manager {
            manager.upgrading();
        }
        let error = upgrade::take_over(&listeners);
        tracing::error!("the upgrade failed, and this program goes on: {error}");
        start = Start {
            sockets: listeners.into_iter().map(Into::into).collect(),
            last_upgrade: Some(LastUpgrade::Failed(error.to_string())),
            manager,
        };
    }
}

/// What a gateway finds when it starts.
struct Start {
    /// Sockets that listen already.
    sockets: Vec<OwnedFd>,
    last_upgrade: Option<LastUpgrade>,
    manager: Option<Arc<ServiceManager>>,
}

fn serve_once(mut arguments: ServeArguments, start: Start) -> Result<Departure, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Start { sockets, last_upgrade, manager } = start;
    // Check the cheap things first: installing a package may take minutes.
    let listening = runtime.block_on(Listening::of(arguments.wanted(), sockets))?;
    let (access, clients, trusted) = open_access(&mut arguments, &listening.addresses()?)?;
    let users = arguments.http.access.principal_users()?.map(Arc::new);
    arguments.server.fence.user = users.as_ref().map(|users| users.common());
    let mut servers = Servers::of(&arguments.server, arguments.lifecycle(), clients, trusted)?;
    servers.grants.users = users;
    // On a thread of the runtime: a thread that only waits here would have to be woken for every connection.
    let served = runtime.spawn(serve(arguments, listening, access, servers, manager, last_upgrade));
    let departure = runtime.block_on(served).map_err(std::io::Error::other)??;
    let noted = StopNoted::begin()?;
    runtime.shutdown_timeout(LAST_TASKS);
    Ok(if noted.has_come() { Departure::End } else { departure })
}

/// Reads what protects the gateway at these addresses, and keeps it from all servers.
fn open_access(
    arguments: &mut ServeArguments,
    addresses: &[SocketAddr],
) -> Result<(Access, ClientPlace, TrustedFiles), Error> {
    let access = arguments.http.access.open(addresses)?;
    let is_here = addresses.iter().all(|address| address.ip().is_loopback());
    let clients = if is_here { ClientPlace::ThisMachine } else { ClientPlace::Anywhere };
    arguments.http.state.make_trusted(arguments.wanted().is_any_port())?;
    let state = arguments.http.state.trusted();
    arguments.server.fence.deny_read.extend(arguments.http.access.secret_files());
    arguments.server.fence.deny_read.extend(state.iter().filter_map(|path| path.canonicalize().ok()));
    let mut files = arguments.http.access.files();
    files.extend(state);
    let trusted = TrustedFiles { what: "what decides who may connect, or goes on with sessions", files };
    Ok((access, clients, trusted))
}

/// Finds out whether a gateway with these arguments could start at these addresses, without starting it.
pub(crate) fn check(mut arguments: ServeArguments, addresses: &[SocketAddr]) -> Result<(), Error> {
    arguments.check_stage()?;
    let (_, _, trusted) = open_access(&mut arguments, addresses)?;
    servers::check(&arguments.server, trusted)
}

async fn serve(
    arguments: ServeArguments,
    listening: Listening,
    access: Access,
    servers: Servers,
    manager: Option<Arc<ServiceManager>>,
    last_upgrade: Option<LastUpgrade>,
) -> Result<Departure, Error> {
    let Servers { set, rules, mut grants, package, mut reload } = servers;
    let is_known_elsewhere = matches!(listening, Listening::On(_));
    let (clients, addresses) = open_sockets(listening, &arguments).await?;
    let address = addresses[0];
    let stop = signals::stop_requested()?;
    prepare_process(last_upgrade.is_some()).await?;
    let own = rules.host_environment.outside().to_owned();
    // What a session needs in its scope is left there for the next one, until the gateway ends.
    let _lingering = rules.host_environment.keep_placeholders_a_moment();
    let audit = arguments.server.upstream.audit.open()?;
    let settings = arguments.http.settings(&arguments.server);
    let kept = arguments.http.state.open(address, arguments.wanted().is_any_port())?;
    let within = arguments.http.drain_timeout + arguments.http.drain;
    let (requests, upgrades) = Upgrades::listen(UpgradeTerms { addresses, is_kept: kept.is_some(), within })?;
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
    announce(&arguments, &url).or_else(|error| if is_known_elsewhere { Ok(()) } else { Err(error) })?;
    let config = Config {
        admin_token: Some(announcement.token.clone()),
        upgrades: Some(requests),
        last_upgrade,
        ..config(&arguments, access.authentication)
    };
    let listeners = Listeners { clients, tls: access.tls, operator };
    let leaving = Leaving {
        stop: told_of(stop, manager.clone()),
        upgrade: upgrades.accepted(),
        drain: arguments.http.drain,
        drain_timeout: arguments.http.drain_timeout,
    };
    if let Some(manager) = manager {
        manager.ready(&sessions);
        tokio::spawn(manager.follow(Arc::clone(&sessions)));
    }
    let departure = Gateway::new(sessions, config, Peers::new(&own)).serve(listeners, leaving).await;
    drop((package, socket, announcement));
    close_audit_log(audit).await;
    Ok(departure)
}

/// Opens the sockets, if they are not open, and makes sure that no fence reaches them.
async fn open_sockets(
    listening: Listening,
    arguments: &ServeArguments,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), Error> {
    let listeners = listening.open().await?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>()?;
    match addresses.iter().find(|address| arguments.server.fence.host_port.contains(&address.port())) {
        Some(mirrored) => Err(Error::OwnPortMirrored(mirrored.port())),
        None => Ok((listeners, addresses)),
    }
}

/// The HTTP side, as the options want it.
fn config(arguments: &ServeArguments, authentication: Authentication) -> Config {
    let http = &arguments.http;
    Config {
        allowed_hosts: http.allowed_host.clone(),
        allowed_origins: http.allowed_origin.clone(),
        max_body: arguments.server.upstream.max_message_bytes,
        park_after: http.park_after,
        retry: http.retry,
        authentication,
        is_behind_proxy: http.access.behind_proxy,
        allowed_uids: http.allow_uid.clone(),
        max_connections: possible_connections(http.max_connections),
        ..Config::default()
    }
}

/// Tells the service manager that the gateway stops.
async fn told_of(stop: impl Future<Output = ()>, manager: Option<Arc<ServiceManager>>) {
    stop.await;
    if let Some(manager) = manager {
        manager.stopping();
    }
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
/// `is_upgrade`: this process had another program before.
async fn prepare_process(is_upgrade: bool) -> Result<(), Error> {
    upstream::adopt_orphans()?;
    if is_upgrade {
        // What that could not end has the mark of this process.
        upstream::end_all_children().await;
    }
    let swept = upstream::sweep_orphans();
    if swept > 0 {
        tracing::warn!("ended {swept} processes that a killed gateway had left");
    }
    raise_descriptor_limit();
    Ok(())
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
