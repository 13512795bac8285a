//! `ringfence serve`: one endpoint on a loopback address in front of one MCP server.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use gateway::{Config, Gateway};
use serde_json::json;
use session::Sessions;
use tokio::net::{TcpListener, lookup_host};

use crate::arguments::ServeTask;
use crate::assembly::Assembly;
use crate::discovery::Announcement;
use crate::error::Failure;
use crate::{logging, signals};

pub(crate) fn run(task: ServeTask) -> Result<(), Failure> {
    logging::start(task.server.upstream.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // First what costs nothing: a package may take minutes.
    let address = runtime.block_on(loopback_address(&task))?;
    let assembly = Assembly::new(&task.server, task.lifecycle)?;
    // On a thread of the runtime: one that only waits here would have to be woken for every connection.
    let served = runtime.spawn(serve(task, address, assembly));
    runtime.block_on(served).map_err(std::io::Error::other)?
}

async fn serve(task: ServeTask, address: SocketAddr, assembly: Assembly) -> Result<(), Failure> {
    let Assembly { upstream, rules, package } = assembly;
    let listener = TcpListener::bind(address).await.map_err(|reason| Failure::Bind { address, reason })?;
    let address = listener.local_addr()?;
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
    let own = rules.surroundings.outside().to_owned();
    let audit = task.server.audit_log()?;
    let sessions = Sessions::new(upstream, task.settings(), rules, audit.clone());
    if let Err(refusal) = sessions.prepare().await {
        session::end_all_children().await;
        return Err(Failure::NotServing(refusal));
    }
    tokio::spawn(Arc::clone(&sessions).watch());
    // Held until the end: it goes with the gateway.
    let announcement = Announcement::publish(&own, address, &sessions.upstream().name)?;
    announce(&task, address)?;
    let config = Config {
        allowed_hosts: task.http.allowed_host,
        allowed_origins: task.http.allowed_origin,
        max_body: task.server.upstream.max_message_bytes,
        park_after: task.http.park_after,
        retry: task.http.retry,
        admin_token: Some(announcement.token.clone()),
    };
    Gateway::new(sessions, config).serve(listener, stop, task.http.drain).await;
    drop(package);
    if let Some(audit) = audit {
        let _ = tokio::task::spawn_blocking(move || audit.close()).await;
    }
    Ok(())
}

/// While there is no authentication, only this machine may connect.
async fn loopback_address(task: &ServeTask) -> Result<SocketAddr, Failure> {
    let unknown = |reason| Failure::UnknownHost { host: task.host.clone(), reason };
    let host = task.host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = lookup_host((host, task.port)).await.map_err(unknown)?;
    let address = addresses.next().ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))?;
    if address.ip().is_loopback() { Ok(address) } else { Err(Failure::NotLoopback(address)) }
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
fn announce(task: &ServeTask, address: SocketAddr) -> Result<(), Failure> {
    let url = format!("http://{address}/mcp");
    let mut stdout = std::io::stdout().lock();
    if task.http.json {
        let event = json!({
            "event": "listening",
            "url": url,
            "health": format!("http://{address}/health"),
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
