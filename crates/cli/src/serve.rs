//! `ringfence serve`: one endpoint in front of one MCP server.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use gateway::{Config, Gateway, Listeners};
use serde_json::json;
use session::Sessions;
use tokio::net::{TcpListener, lookup_host};

use crate::access_options::Access;
use crate::arguments::ServeTask;
use crate::assembly::Assembly;
use crate::configuration_file::ConfigurationFile;
use crate::configured::{Configured, local_is_here};
use crate::discovery::Announcement;
use crate::error::Failure;
use crate::{logging, signals};

pub(crate) fn run(mut task: ServeTask) -> Result<(), Failure> {
    logging::start(task.server.upstream.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // First what costs nothing: a package may take minutes.
    let address = runtime.block_on(address(&task))?;
    let access = task.http.access.open(address)?;
    task.server.fence.deny_read.extend(task.http.access.secret_files());
    let file = ConfigurationFile::of(&task.server)?;
    let is_loopback = address.ip().is_loopback();
    let (assembly, configured) = match &file {
        Some(file) => {
            let is_here = local_is_here(&file.configuration, is_loopback);
            let (assembly, configured) =
                Assembly::of_configuration(&task.server, &file.configuration, is_here)?;
            (assembly, Some(configured))
        }
        None => (Assembly::new(&task.server, task.lifecycle)?, None),
    };
    let configuration = file.zip(configured);
    // On a thread of the runtime: one that only waits here would have to be woken for every connection.
    let served = runtime.spawn(serve(task, address, access, assembly, configuration));
    runtime.block_on(served).map_err(std::io::Error::other)?
}

async fn serve(
    task: ServeTask,
    address: SocketAddr,
    access: Access,
    assembly: Assembly,
    configuration: Option<(ConfigurationFile, Configured)>,
) -> Result<(), Failure> {
    let Assembly { offer, rules, package } = assembly;
    let listener = TcpListener::bind(address).await.map_err(|reason| Failure::Bind { address, reason })?;
    let address = listener.local_addr()?;
    let operator = operator_listener(address, &access).await?;
    if task.server.fence.host_port.contains(&address.port()) {
        return Err(Failure::OwnPortMirrored(address.port()));
    }
    let stop = signals::stop_requested()?;
    session::adopt_orphans()?;
    let swept = session::sweep_orphans();
    if swept > 0 {
        tracing::warn!("{swept} processes of a gateway that was killed were ended");
    }
    raise_descriptor_limit();
    let own = rules.host_environment.outside().to_owned();
    let audit = task.server.audit_log()?;
    let sessions = Sessions::new(offer, task.settings(), rules, audit.clone());
    if let Err(refusal) = sessions.prepare().await {
        session::end_all_children().await;
        return Err(Failure::NotServing(refusal));
    }
    tokio::spawn(Arc::clone(&sessions).watch());
    if let Some((file, configured)) = configuration {
        let is_loopback = address.ip().is_loopback();
        tokio::spawn(file.follow(Arc::clone(&sessions), Arc::new(configured), is_loopback));
    }
    // Held until the end: it goes with the gateway.
    let url = format!("{}://{address}", if access.tls.is_some() { "https" } else { "http" });
    let operator_address = operator.as_ref().map(TcpListener::local_addr).transpose()?;
    let announcement = Announcement::publish(&own, &url, operator_address, &sessions.name())?;
    announce(&task, &url)?;
    let config = Config {
        allowed_hosts: task.http.allowed_host,
        allowed_origins: task.http.allowed_origin,
        max_body: task.server.upstream.max_message_bytes,
        park_after: task.http.park_after,
        retry: task.http.retry,
        admin_token: Some(announcement.token.clone()),
        authentication: access.authentication,
        is_behind_proxy: task.http.access.behind_proxy,
    };
    let listeners = Listeners { clients: listener, tls: access.tls, operator };
    Gateway::new(sessions, config).serve(listeners, stop, task.http.drain).await;
    drop(package);
    if let Some(audit) = audit {
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
    }
    Ok(())
}

async fn address(task: &ServeTask) -> Result<SocketAddr, Failure> {
    let unknown = |reason| Failure::UnknownHost { host: task.host.clone(), reason };
    let host = task.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = lookup_host((host, task.port)).await.map_err(unknown)?;
    addresses.next().ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))
}

/// The tools of the operator speak plain HTTP on loopback. Where clients do not, they get a listener of their own.
async fn operator_listener(address: SocketAddr, access: &Access) -> Result<Option<TcpListener>, Failure> {
    if address.ip().is_loopback() && access.tls.is_none() {
        return Ok(None);
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(address).await;
    listener.map(Some).map_err(|reason| Failure::Bind { address, reason })
}

/// A session needs some descriptors; the default of 1024 is for programs with few of them.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        // Best effort: with fewer, fewer sessions fit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

/// The one line on stdout: where the endpoint is.
fn announce(task: &ServeTask, base: &str) -> Result<(), Failure> {
    let url = format!("{base}/mcp");
    let mut stdout = std::io::stdout().lock();
    if task.http.json {
        let event = json!({
            "event": "listening",
            "url": url,
            "health": format!("{base}/health"),
            "lifecycle": task.lifecycle.as_str(),
            "pid": std::process::id(),
        });
        writeln!(stdout, "{event}")?;
    } else {
        writeln!(stdout, "ringfence listening on {url}   (health: /health)")?;
    }
    stdout.flush()?;
    Ok(())
}
